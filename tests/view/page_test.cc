#include "cephalo/view/page.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "cephalo/io/base64.h"
#include "cephalo/model/builtin.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_model()) GTEST_SKIP() << "built without a model";
  }
};

std::string base64(const std::string& text) {
  std::string out;
  append_base64(std::as_bytes(std::span(text.data(), text.size())), out);
  return out;
}

// A model of the built-in one's vocabulary with parameters as they are drawn.
TextModel untrained_model() {
  GptOptions options{
      .vocab_size = 4096, .context_length = 64, .d_model = 16, .num_heads = 2, .num_layers = 1};
  return {"drawn", Gpt(options), {}, builtin_tokenizer()};
}

TEST(Base64Test, one_two_and_three_bytes_at_the_end) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST_F(PageTest, holds_the_engine_the_model_and_the_text) {
  const PageModel files = builtin_page_model();
  const std::string html = page_html(builtin_model(), files, "The cat");
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(html.find("{{"), std::string::npos);
  EXPECT_NE(html.find("\"text\":\"The cat\""), std::string::npos);
  EXPECT_NE(html.find("\"dtype\":\"bfloat16\",\"untrained\":false"), std::string::npos);
  EXPECT_NE(html.find("id=\"model-config\">" + base64(files.config_json) + "</script>"),
            std::string::npos);
  EXPECT_NE(html.find("id=\"model-parameters\">" + base64(files.parameters) + "</script>"),
            std::string::npos);
  EXPECT_NE(html.find("id=\"engine\">"), std::string::npos);
}

TEST_F(PageTest, a_text_cannot_leave_its_element) {
  const std::string html =
      page_html(builtin_model(), builtin_page_model(), "</script><script>alert(1)</script>");
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script>\\u003cscript>alert(1)"), std::string::npos);
}

TEST_F(PageTest, parameters_as_they_were_drawn_are_called_untrained) {
  const PageModel files{"{}", builtin_page_model().parameters};  // the page does not read them
  const std::string html = page_html(untrained_model(), files, "cat");
  EXPECT_NE(html.find("\"untrained\":true"), std::string::npos);
}

TEST_F(PageTest, it_is_live_where_parameters_are_few_and_the_text_is_short) {
  EXPECT_EQ(longest_live_text(builtin_model().gpt.options()), 256);  // all that it reads
  GptOptions longer = builtin_model().gpt.options();
  longer.context_length = 2048;
  EXPECT_EQ(longest_live_text(longer), 512);
  EXPECT_EQ(why_not_live(builtin_model(), 24'000'000, 256), "");
  EXPECT_EQ(why_not_live(builtin_model(), 24'000'001, 4),
            "the parameters of cephalo-small take 24.0 MB, and a page that runs the model holds at "
            "most 24.0 MB");
  EXPECT_EQ(why_not_live(builtin_model(), 1, 257),
            "257 tokens are more than a page that runs cephalo-small shows (256)");
}

TEST_F(PageTest, too_many_parameters_or_tokens_are_refused_in_words) {
  const PageModel files = builtin_page_model();
  EXPECT_EQ(error_of([&] { page_html(builtin_model(), files, "cat", {.most_bytes = 1'000'000}); }),
            "page: the parameters of cephalo-small take 8.4 MB, and a page that runs the model "
            "holds at most 1.0 MB; raise most_bytes");
  std::string longer;
  for (int n = 0; n < 300; ++n) longer += " cat";
  EXPECT_EQ(error_of([&] { page_html(builtin_model(), files, longer); }),
            "page: 301 tokens are more than cephalo-small reads at once (context_length 256); use "
            "a part of the text");
}

}  // namespace
}  // namespace cephalo
