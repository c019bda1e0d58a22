#include "cli/train_export.h"

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/model/gpt_file.h"
#include "cli/terminal.h"

namespace cephalo::cli {
namespace {

void save(const Gpt& model, const std::string& folder, const Bpe& bpe,
          const TrainSettings& settings) {
  SaveGptOptions options;
  options.replace = true;
  options.dtype = settings.bf16_export ? DType::bf16 : DType::f32;
  if (const auto id = bpe.find(kEndOfText)) {
    options.bos_token_id = *id;
    options.add_bos_token = true;  // every row of the training began so
    options.eos_token_id = *id;
  }
  save_gpt(model, folder, options);
}

Gpt read_best(const BestModel& kept, std::int64_t step, const GptOptions& options) {
  try {
    return kept.read(step, options);
  } catch (const Error& error) {
    throw Error(error.kind(),
                format_text("{}; --resume --export last exports the last step", error.what()));
  }
}

// A word of a command as a shell reads it.
std::string quoted(const std::string& text, char quote) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,";
  if (text.find_first_not_of(kPlain) == std::string::npos && quote == '\'') return text;
  return format_text("{0}{1}{0}", quote, printable(text));
}

}  // namespace

Exported export_model(const Gpt& last, const TrainingHistory& history, std::int64_t steps_done,
                      const std::string& folder, const Bpe& bpe, const TrainSettings& settings) {
  const BestModel kept(folder);
  const std::optional<ValidationRecord> best =
      settings.export_last ? std::nullopt : best_validation(history);
  if (best && best->step != steps_done && kept.has(best->step)) {
    save(read_best(kept, best->step, last.options()), folder, bpe, settings);
    return {best->step, best->loss};
  }
  save(last, folder, bpe, settings);
  Exported exported{steps_done, {}};
  if (!history.validation.empty() && history.validation.back().step == steps_done) {
    exported.validation_loss = history.validation.back().loss;
  }
  return exported;
}

std::string what_next(const std::string& folder, const std::string& prompt) {
  const bool plain = !prompt.empty() && prompt.find_first_of("\"$`\\!\n") == std::string::npos;
  const std::string text = quoted(plain ? prompt : "Once upon a time", '"');
  const std::string model = quoted(folder, '\'');
  return format_text("next: cephalo generate {0} --model {1}\n      cephalo look {0} --model {1}\n",
                     text, model);
}

}  // namespace cephalo::cli
