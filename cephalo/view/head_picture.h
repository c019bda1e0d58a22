#pragma once

#include <string>
#include <vector>

#include "cephalo/view/head_metrics.h"
#include "cephalo/view/picture.h"
#include "cephalo/view/weight_map.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What is written next to the weights in a picture.
struct PictureText {
  std::string text;
  std::string model;                // its name
  std::vector<std::string> tokens;  // one for each token
};

// The heads of neighbouring layers: a row for each layer; tokens next to the maps (but not in
// models of more than 256 heads), labels below. Long texts are pooled: a cell shows the largest of
// its weights, and the picture says so.
Picture draw_heads(const Recording& recording, const std::vector<HeadReport>& reports,
                   const PictureText& text, const MapOptions& maps = {});

// One head with its tokens on both sides; numbers in the cells where there is room for them.
Picture draw_head(const Recording& recording, const HeadReport& report, const PictureText& text,
                  const MapOptions& maps = {});

}  // namespace cephalo
#pragma GCC visibility pop
