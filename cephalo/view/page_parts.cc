#include "cephalo/view/page_parts.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/io/base64.h"
#include "cephalo/io/short_checksum.h"
#include "cephalo/view/page_files.h"
#include "cephalo/view/report_head.h"

namespace cephalo {
namespace {

// Before and after the script, which begins to work while the browser reads what follows it.
constexpr std::string_view kDataMark = "{{data}}";
constexpr std::string_view kBlocksMark = "{{blocks}}";
constexpr std::string_view kBlockEnd = "</script>\n";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What stands before, between and after the two marks.
struct PageParts {
  std::string_view begin;
  std::string_view script;
  std::string_view end;
};

PageParts parts_of(std::string_view html) {
  const std::size_t data = html.find(kDataMark);
  const std::size_t blocks = html.rfind(kBlocksMark);
  require(data != std::string_view::npos && blocks != std::string_view::npos,
          "page: this library was built without the page");
  const std::size_t script = data + kDataMark.size();
  return {html.substr(0, data), html.substr(script, blocks - script),
          html.substr(blocks + kBlocksMark.size())};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The beginning of an element that is not run. The page compares what is in it with the checksum:
// a file may be damaged on its way.
std::string element_begin(const char* type, const char* id, std::string_view content) {
  return format_text("<script type=\"application/{}\" data-check=\"{:08x}\" id=\"{}\">", type,
                     short_checksum(bytes_of(content)), id);
}

std::string block_begin(const char* id, std::string_view bytes) {
  return element_begin("octet-stream", id, bytes);
}

// Nothing in it can end the element.
std::string data_element(const Json& data) {
  std::string text;
  for (const char c : data.dump({.replace = true})) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return element_begin("json", "page-data", text).append(text).append(kBlockEnd);
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

}  // namespace

std::string size_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (bytes < 1000) return format_text("{} bytes", bytes);
  return size < 0.1e6 ? format_text("{:.1f} KB", size / 1e3) : format_text("{:.1f} MB", size / 1e6);
}

PageWriter::PageWriter(const Json& data) {
  const PageFiles files = page_files();
  const PageParts parts = parts_of(text_of(files.page_html));
  html_ = parts.begin;
  html_ += data_element(data);
  add_block("engine", text_of(files.engine));
  html_ += parts.script;
}

void PageWriter::add_block(const char* id, std::string_view bytes) {
  html_ += block_begin(id, bytes);
  append_base64(bytes_of(bytes), html_);
  html_ += kBlockEnd;
}

std::string PageWriter::finish() && {
  html_ += parts_of(text_of(page_files().page_html)).end;
  return std::move(html_);
}

std::int64_t PageWriter::bytes_without_blocks(const Json& data) {
  const PageFiles files = page_files();
  return std::ssize(files.page_html) + std::ssize(data_element(data)) +
         block_bytes(std::ssize(files.engine));
}

std::int64_t PageWriter::block_bytes(std::int64_t bytes) {
  return (bytes + 2) / 3 * 4 + std::ssize(block_begin("recording", "")) + std::ssize(kBlockEnd);
}

Json page_model_json(const std::string& name, const Gpt& gpt, const std::string& dtype) {
  return {{"name", name},
          {"parameters", parameters_sha256(gpt).substr(0, 8)},
          {"dtype", dtype},
          {"untrained", is_untrained(gpt)}};
}

}  // namespace cephalo
