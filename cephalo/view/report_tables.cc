#include "cephalo/view/report_tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cephalo/core/format.h"
#include "cephalo/core/printable.h"

namespace cephalo {

std::string model_line(const std::string& name, const GptOptions& model) {
  return format_text("{}: {} layers x {} heads", printable(name), model.num_layers,
                     model.num_heads);
}

std::string place_name(dim_t layer, dim_t head) {
  return format_text("L{} H{}", layer, head);
}

std::string numbered(const LookToken& token, dim_t place) {
  return format_text("{} {}", place, token.label);
}

std::string label_letters(const HeadReport& head) {
  constexpr const char* kLetters[] = {"P", "I", "=", "S", "C", "~"};
  std::string letters;
  for (const LabelScore& label : head.labels) letters += kLetters[static_cast<int>(label.label)];
  return letters;
}

std::string letters_in_words() {
  return "Letters are the head's labels: P looks at the token before, I at what followed the same "
         "token earlier, = at the same token earlier, S at the first token, C at itself, ~ at all "
         "equally.";
}

ReportCell signed_cell(double value, double largest, int digits) {
  if (std::isnan(value)) return {};
  std::string text = format_text("{:+.{}f}", value, digits);
  if (text.find_first_not_of("+-0.") == text.npos) text[0] = ' ';  // a zero has no sign
  return {std::move(text), largest > 0.0 ? value / largest : 0.0};
}

double largest_of(const TensorView& values) {
  if (values.rank() == 0) return std::isnan(values.at({})) ? 0.0 : std::abs(values.at({}));
  double largest = 0.0;
  for (dim_t i = 0; i < values.dim(0); ++i) largest = std::max(largest, largest_of(values[i]));
  return largest;
}

void say_range(ReportTable& table, double largest) {
  table.least = format_text("{:.2f}", -largest);
  table.most = format_text("+{:.2f}", largest);
}

ReportTable table_of_heads(const std::string& title, const TensorView& values, int digits,
                           const LookReport* look) {
  ReportTable table{.title = title};
  const double largest = largest_of(values);
  say_range(table, largest);
  for (dim_t h = 0; h < values.dim(1); ++h) table.columns.push_back(format_text("H{}", h));
  for (dim_t l = 0; l < values.dim(0); ++l) {
    table.rows.push_back(format_text("layer {}", l));
    std::vector<ReportCell>& row = table.cells.emplace_back();
    for (dim_t h = 0; h < values.dim(1); ++h) {
      row.push_back(signed_cell(values.at({l, h}), largest, digits));
      const std::string letters = look != nullptr ? label_letters(look->at({l, h})) : "";
      if (!letters.empty()) row.back().text += " " + letters;
    }
  }
  return table;
}

ReportTable table_of_sizes(const std::string& title, const TensorView& values, int digits) {
  ReportTable table = table_of_heads(title, values, digits);
  table.shades = ReportTable::Shades::weights;
  table.least = "0";
  table.most = format_text("{:.{}f}", largest_of(values), digits);
  for (std::vector<ReportCell>& row : table.cells) {
    for (ReportCell& cell : row) {
      if (!cell.text.empty()) cell.text.erase(0, 1);  // the place of the sign
    }
  }
  return table;
}

std::vector<dim_t> largest_rows(const std::vector<double>& sizes, std::size_t most) {
  std::vector<dim_t> rows(sizes.size());
  std::iota(rows.begin(), rows.end(), dim_t{0});
  if (rows.size() <= most) return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](dim_t a, dim_t b) {
    return std::abs(sizes[static_cast<std::size_t>(a)]) >
           std::abs(sizes[static_cast<std::size_t>(b)]);
  });
  rows.resize(most);
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace cephalo
