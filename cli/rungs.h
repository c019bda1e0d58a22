#pragma once

#include <memory>
#include <string>

#include "cephalo/learn/ladder.h"

namespace cephalo::cli {

constexpr int kFirstSplit = 5;  // the rung from which on one width is split into heads
constexpr int kPipeline = 8;

// "3", "causal" or "CausalAttention" -> 3; a UsageError otherwise
int parse_rung(const std::string& text);

// Rungs whose layers have one width for what comes in and goes out.
bool has_one_width(int rung);

// The layer of rungs 2 to 8; it continues the generator. In rung 4 d_out is that of one head.
std::unique_ptr<MultiHeadAttention> make_rung(int rung, const MultiHeadAttentionOptions& options,
                                              TorchGenerator& generator);

}  // namespace cephalo::cli
