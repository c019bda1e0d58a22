#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cephalo/text/bpe.h"
#include "cephalo/text/token_file.h"
#include "cephalo/train/recipe.h"
#include "cli/train_flags.h"
#include "cli/train_plan.h"

namespace cephalo::cli {

inline constexpr const char* kEndOfText = "<|endoftext|>";

// What a run reads: the vocabulary, and the texts as tokens in a file of the run's folder.
struct TrainCorpus {
  Bpe bpe;
  std::shared_ptr<const TokenFile> tokens;
};

// Texts that are missing, empty or too short for any plan are refused before a folder is made.
void check_texts(const TrainFlags& flags);

// Learns or loads a vocabulary, saves it in the folder, and tokenises the texts.
TrainCorpus prepare_corpus(const TrainFlags& flags, const std::string& folder);
// What prepare_corpus left there.
TrainCorpus open_corpus(const std::string& folder);

// Of the token file, as it stands at its end: 32 digits.
std::string checksum_of(const TrainCorpus& corpus);

// Where the part for validation begins.
dim_t training_tokens(const TokenFile& tokens, double validation_share);

// The rows of a run: see recipe_rows.
TrainRows rows_of(const TrainCorpus& corpus, dim_t training_tokens, const GptOptions& model,
                  const TrainSettings& settings);

}  // namespace cephalo::cli
