#include "cephalo/view/page.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cephalo/core/fail.h"
#include "cephalo/io/base64.h"
#include "cephalo/io/json_value.h"
#include "cephalo/model/builtin_files.h"
#include "cephalo/view/look.h"
#include "cephalo/view/page_files.h"
#include "cephalo/view/report_head.h"

namespace cephalo {
namespace {

constexpr std::string_view kDataMark = "{{data}}";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string all_of(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

std::string stored_type(const PageModel& files) {
  const SafetensorsFile file(InputFile("model.safetensors", bytes_of(files.parameters)));
  const auto& entries = file.entries();
  const bool one = std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.dtype == entries.front().dtype;
  });
  return entries.empty() ? "none" : one ? name(entries.front().dtype) : "several types";
}

// Biases are 0 and norms 1 until the first step of training.
bool is_untrained(const Gpt& model) {
  for (const GptParameter& parameter : model.parameters()) {
    const bool weight = parameter.name.ends_with("weight");
    if (parameter.kind != ParameterKind::bias && parameter.kind != ParameterKind::norm) continue;
    const double drawn = parameter.kind == ParameterKind::norm && weight ? 1.0 : 0.0;
    const Tensor wide = Tensor::copy(parameter.value, DType::f64);
    const auto* value = wide.data_as<double>();
    if (!std::all_of(value, value + wide.numel(), [&](double v) { return v == drawn; }))
      return false;
  }
  return true;
}

// Value, rows and uniform of duplicate, then of induction, of every head.
Json probe_json(const LookProbe& probe) {
  if (!probe.options) return {};
  Json scores = Json::array();
  for (const auto& layer : probe.scores) {
    for (const ProbeScores& head : layer) {
      for (const Score& score : {head.duplicate, head.induction}) {
        scores.push_back(score.value);
        scores.push_back(score.rows);
        scores.push_back(score.uniform);
      }
    }
  }
  return {{"length", probe.options->length},
          {"draws", probe.options->draws},
          {"seed", probe.options->seed},
          {"scores", std::move(scores)}};
}

// In an element that is not run; nothing in it can end the element.
std::string data_element(const Json& data) {
  std::string text = "<script type=\"application/json\" id=\"page-data\">";
  for (const char c : data.dump({.replace = true})) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text + "</script>\n";
}

void append_block(const char* id, std::string_view bytes, std::string& to) {
  to += format_text("<script type=\"application/octet-stream\" id=\"{}\">", id);
  append_base64(bytes_of(bytes), to);
  to += "</script>\n";
}

void check_text(const TextModel& model, const std::string& text) {
  const auto tokens = std::ssize(model.encode(text, true));
  const dim_t longest = model.gpt.options().context_length;
  require(tokens > 0, "page: the text is empty, and no token was prepended");
  require(
      tokens <= longest,
      "page: {} tokens are more than {} reads at once (context_length {}); use a part of the text",
      tokens, model.name, longest);
}

}  // namespace

PageModel builtin_page_model() {
  const BuiltinFiles files = builtin_files();
  return {std::string(text_of(files.config_json)), std::string(text_of(files.model_safetensors))};
}

PageModel load_page_model(const std::string& folder) {
  const std::string parameters = gpt_parameters_path(folder);
  require(parameters.ends_with(".safetensors"),
          "{}: its parameters are in several files; a page takes those of one", folder);
  return {all_of((std::filesystem::path(folder) / "config.json").string()), all_of(parameters)};
}

std::string page_html(const TextModel& model, const PageModel& files, const std::string& text,
                      const PageOptions& options) {
  constexpr double kMegabyte = 1e6;
  require(std::ssize(files.parameters) <= options.most_bytes,
          "page: the parameters of {} take {:.1f} MB, and a page that runs the model holds at most "
          "{:.1f} MB; raise most_bytes",
          model.name, static_cast<double>(files.parameters.size()) / kMegabyte,
          static_cast<double>(options.most_bytes) / kMegabyte);
  check_text(model, text);
  const LookProbe probe =
      probe_for_look(look_model(model), {.seed = options.seed, .threads = options.threads});
  const PageFiles page = page_files();
  const std::string_view html = text_of(page.page_html);
  const std::size_t mark = html.find(kDataMark);
  require(mark != std::string_view::npos, "page: this library was built without the page");

  std::string out(html.substr(0, mark));
  out += data_element({{"version", 1},
                       {"text", text},
                       {"model",
                        {{"name", model.name},
                         {"parameters", parameters_sha256(model.gpt).substr(0, 8)},
                         {"dtype", stored_type(files)},
                         {"untrained", is_untrained(model.gpt)}}},
                       {"probe", probe_json(probe)}});
  append_block("engine", text_of(page.engine), out);
  append_block("model-config", files.config_json, out);
  append_block("model-parameters", files.parameters, out);
  append_block("model-vocab", model.tokenizer.vocab_json(), out);
  append_block("model-merges", model.tokenizer.merges_txt(), out);
  out += html.substr(mark + kDataMark.size());
  return out;
}

}  // namespace cephalo
