#pragma once

// Inside the library only: parts that the pages of several reports have.
#include <string>
#include <vector>

#include "cephalo/view/look.h"
#include "cephalo/view/report_page.h"

namespace cephalo {

// "cephalo-small: 4 layers x 8 heads"
std::string model_line(const std::string& name, const GptOptions& model);
// "L3 H2"
std::string place_name(dim_t layer, dim_t head);
// A token and its place: "12 Rabbit".
std::string numbered(const LookToken& token, dim_t place);

// The letters of a head's labels, P I = S C ~, and what they mean.
std::string label_letters(const HeadReport& head);
std::string letters_in_words();

// values: [num_layers, num_heads], NaN left empty; numbers with a sign, colours centred at 0. With
// `look`, the letters of each head's labels behind its number.
ReportTable table_of_heads(const std::string& title, const TensorView& values, int digits = 2,
                           const LookReport* look = nullptr);

// The same for sizes, which have no sign: colours from 0 on.
ReportTable table_of_sizes(const std::string& title, const TensorView& values, int digits = 3);

// A number and its colour; `largest`: what the strongest colour stands for.
ReportCell signed_cell(double value, double largest, int digits = 2);
double largest_of(const TensorView& values);
void say_range(ReportTable& table, double largest);

// The places of the `most` largest sizes, in the order of the text; all where they are no more.
std::vector<dim_t> largest_rows(const std::vector<double>& sizes, std::size_t most);

}  // namespace cephalo
