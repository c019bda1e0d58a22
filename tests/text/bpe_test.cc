// Byte-level BPE against the tokenizers package's golden data, and rows K1 to K5 of the list of bad
// tokenizer files, by their ids.
#include "cephalo/text/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cephalo/core/error.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"
#include "tests/support/vocabulary.h"

namespace cephalo {
namespace {

using nlohmann::ordered_json;
using testing::byte_vocabulary;
using testing::error_of;
using testing::Folder;
using testing::from_hex;
using testing::golden_vocabulary;
using testing::read_bytes;
using testing::read_golden;
using testing::write_bytes;
using Ids = std::vector<TokenId>;

const std::string kEndOfText = "<|endoftext|>";

TEST(BpeTest, ids_are_those_of_the_tokenizers_package) {
  const Bpe bpe = golden_vocabulary();
  const auto golden = read_golden("tokenizer.json");
  int cases = 0;
  for (const auto& c : golden.at("cases")) {
    const std::string text = from_hex(c.at("bytes"));
    EXPECT_EQ(bpe.encode(text), c.at("ids").get<Ids>()) << c.at("bytes");
    EXPECT_EQ(bpe.decode(bpe.encode(text)), text) << c.at("bytes");
    ++cases;
  }
  EXPECT_GT(cases, 300);
}

TEST(BpeTest, special_tokens_are_found_where_they_are_allowed) {
  const Bpe bpe = golden_vocabulary();
  EXPECT_EQ(bpe.special_tokens(), std::vector<std::string>{kEndOfText});
  const auto golden = read_golden("tokenizer.json");
  EXPECT_EQ(golden.at("allowed").size(), 7U);
  for (const auto& c : golden.at("allowed")) {
    const std::string text = from_hex(c.at("bytes"));
    const Ids ids = bpe.encode(text, {&kEndOfText, 1});
    EXPECT_EQ(ids, c.at("ids").get<Ids>()) << text;
    EXPECT_EQ(bpe.decode(ids), text);
  }
}

TEST(BpeTest, a_special_token_that_is_not_allowed_is_text_as_any_other) {
  const Bpe bpe = golden_vocabulary();
  const Ids ids = bpe.encode(kEndOfText);
  EXPECT_GT(ids.size(), 1U);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *bpe.find(kEndOfText)), 0);
  EXPECT_EQ(bpe.decode(ids), kEndOfText);
}

TEST(BpeTest, only_special_tokens_can_be_allowed) {
  const std::vector<std::string> allowed = {"the"};
  EXPECT_EQ(error_of([&] { golden_vocabulary().encode("the", allowed); }),
            "encode: \"the\" is allowed but is not a special token of the vocabulary");
}

TEST(BpeTest, of_two_special_tokens_at_one_place_the_longer_is_taken) {
  std::vector<std::string> tokens = byte_vocabulary();
  tokens.insert(tokens.end(), {"<a>", "<a><b>", "b><"});
  const Bpe bpe(tokens, {});
  const auto special = bpe.special_tokens();
  EXPECT_EQ(special, (std::vector<std::string>{"<a>", "<a><b>", "b><"}));
  EXPECT_EQ(bpe.encode("<a><b><a>", special), (Ids{257, 256}));
  EXPECT_EQ(bpe.encode("x<ab><a>", special).back(), bpe.find(">"));  // b>< comes first
}

TEST(BpeTest, merges_join_the_earliest_rank_first_and_the_leftmost_of_equals) {
  std::vector<std::string> tokens = byte_vocabulary();
  tokens.insert(tokens.end(), {"bc", "ab", "abc", "aa"});
  const auto id = [&](const char* text) {
    return static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
  };
  const Bpe bpe(tokens,
                {{id("b"), id("c")}, {id("a"), id("b")}, {id("a"), id("bc")}, {id("a"), id("a")}});
  EXPECT_EQ(bpe.encode("abc"), Ids{id("abc")});
  EXPECT_EQ(bpe.encode("abab"), (Ids{id("ab"), id("ab")}));
  EXPECT_EQ(bpe.encode("aaa"), (Ids{id("aa"), id("a")}));
  EXPECT_EQ(bpe.encode("aaab"), (Ids{id("aa"), id("ab")}));
}

TEST(BpeTest, long_pieces_are_joined_as_short_ones) {
  // Pieces on both sides of every limit within: of the cache, of the search for the best pair.
  const Bpe bpe = golden_vocabulary();
  const std::string letters = "abaathethinncdtheyaabbba";
  for (std::size_t bytes = 1; bytes < 200; ++bytes) {
    std::string word;
    while (word.size() < bytes) word += letters.substr(word.size() % 5);
    word.resize(bytes);
    Ids slow;
    for (const char c : word) slow.push_back(*bpe.find({&c, 1}));
    for (bool joined = true; joined;) {
      joined = false;
      for (const auto& [left, right] : bpe.merges()) {
        for (std::size_t k = 0; k + 1 < slow.size() && !joined; ++k) {
          if (slow[k] != left || slow[k + 1] != right) continue;
          slow[k] = *bpe.find(std::string(bpe.token(left)) + std::string(bpe.token(right)));
          slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(k) + 1);
          joined = true;
        }
        if (joined) break;
      }
    }
    EXPECT_EQ(bpe.encode(word), slow) << word;
    EXPECT_EQ(bpe.encode(word), slow) << word << ", the second time";
  }
}

TEST(BpeTest, a_file_in_blocks_gives_the_ids_of_the_whole) {
  // More than two blocks of 1 MiB, with pieces, spaces, characters and special tokens over the
  // cuts.
  const Bpe bpe = golden_vocabulary();
  Folder folder;
  const std::string path = folder / "text";
  const std::string parts[] = {"the cat  sat \n\n", "\xE4\xB8\x96\xE7\x95\x8C",     kEndOfText,
                               std::string(3, ' '), "it's \xF0\x9F\x99\x82 12345 ", "\xFF\xE4"};
  std::string text;
  for (unsigned k = 0; text.size() < 2'200'000; ++k) text += parts[k * k % 7 % 6];
  text += std::string(1'500'000, ' ') + "x" + std::string(1'100'000, 'a');
  for (const std::string& content :
       {text, std::string(), std::string("a"), text.substr(0, 1 << 20)}) {
    write_bytes(path, content);
    for (const bool allowed : {false, true}) {
      const std::span<const std::string> names(&kEndOfText, allowed ? 1 : 0);
      Ids ids;
      std::int64_t done = 0;
      bpe.encode_file(InputFile(path), names,
                      [&](std::span<const TokenId> more, std::int64_t bytes) {
                        ids.insert(ids.end(), more.begin(), more.end());
                        EXPECT_GE(bytes, done);
                        done = bytes;
                      });
      EXPECT_TRUE(ids == bpe.encode(content, names)) << content.size();
      EXPECT_EQ(done, static_cast<std::int64_t>(content.size()));
    }
  }
}

TEST(BpeTest, what_is_saved_is_loaded) {
  const Bpe bpe = golden_vocabulary();
  Folder folder;
  bpe.save(folder / "new/folder");
  const Bpe again = Bpe::load(folder / "new/folder");
  EXPECT_EQ(again.fingerprint(), bpe.fingerprint());
  EXPECT_EQ(again.vocab_json(), bpe.vocab_json());
  EXPECT_EQ(nlohmann::json::parse(bpe.vocab_json()),
            nlohmann::json::parse(read_bytes(testing::golden_vocabulary_folder() + "/vocab.json")));
  EXPECT_EQ(bpe.merges_txt(), read_bytes(testing::golden_vocabulary_folder() + "/merges.txt"));
  EXPECT_TRUE(error_of([&] {
                bpe.save(folder / "new/folder");
              }).ends_with("already exists; replace = true overwrites it"));
  bpe.save(folder / "new/folder", true);
}

TEST(BpeTest, special_tokens_with_spaces_survive_the_files) {
  std::vector<std::string> tokens = byte_vocabulary();
  tokens.insert(tokens.end(), {"<|im start|>", "\n\n<end>"});
  const Bpe bpe(tokens, {});
  const Bpe again = Bpe::parse(bpe.vocab_json(), bpe.merges_txt());
  EXPECT_EQ(again.special_tokens(), bpe.special_tokens());
  EXPECT_EQ(again.special_tokens(), (std::vector<std::string>{"<|im start|>", "\n\n<end>"}));
}

TEST(BpeTest, both_pairs_of_names_are_loaded_and_a_folder_without_is_an_error) {
  Folder folder;
  EXPECT_EQ(error_of([&] { Bpe::load(folder / "none"); }),
            (folder / "none") +
                ": has no vocab.json with merges.txt, nor encoder.json with "
                "vocab.bpe: no vocabulary");
  const Bpe bpe = golden_vocabulary();
  write_bytes(folder / "encoder.json", bpe.vocab_json());
  EXPECT_TRUE(
      error_of([&] { Bpe::load(folder / "."); }).ends_with("vocab.bpe: No such file or directory"));
  write_bytes(folder / "vocab.bpe", bpe.merges_txt());
  EXPECT_EQ(Bpe::load(folder / ".").fingerprint(), bpe.fingerprint());
}

TEST(BpeTest, A14_ids_outside_of_the_vocabulary) {
  const Bpe bpe = golden_vocabulary();
  const Ids high = {0, 1, 420}, negative = {-1};
  EXPECT_EQ(error_of([&] { bpe.decode(high); }),
            "decode: id 420 at position 2 is outside the vocabulary of 420");
  EXPECT_EQ(error_of([&] { bpe.decode(negative); }),
            "decode: id -1 at position 0 is outside the vocabulary of 420");
  EXPECT_EQ(error_of([&] { static_cast<void>(bpe.token(-1)); }),
            "token: id -1 is outside the vocabulary of 420");
}

TEST(BpeTest, several_threads_use_one_object) {
  const Bpe bpe = golden_vocabulary();
  const std::string text(read_golden("tokenizer.json").at("text").get<std::string>());
  const Ids expected = bpe.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&bpe, &text, &expected, &count] {
      for (int k = 0; k < 50; ++k) count += bpe.encode(text) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// --- K1 to K5 ------------------------------------------------------------------------------------

std::string vocab_error(const std::string& vocab_json, std::int64_t model_vocab_size = 0) {
  return error_of([&] { Bpe::parse(vocab_json, "", model_vocab_size); });
}

// The golden vocabulary with one change.
std::string changed_vocab(const std::string& token, const ordered_json& id) {
  auto vocab = ordered_json::parse(golden_vocabulary().vocab_json());
  vocab[token] = id;
  return vocab.dump();
}

TEST(BpeFilesTest, K1_vocabularies_that_are_no_vocabularies) {
  EXPECT_EQ(vocab_error("[]"), "vocab.json: is an array, not an object of tokens and their ids");
  EXPECT_EQ(vocab_error("3"), "vocab.json: is a number, not an object of tokens and their ids");
  EXPECT_EQ(vocab_error("\"a\""), "vocab.json: is a string, not an object of tokens and their ids");
  EXPECT_EQ(vocab_error("null"), "vocab.json: is null, not an object of tokens and their ids");
  EXPECT_EQ(vocab_error(""), "vocab.json: not valid UTF-8 JSON at byte 1");
  EXPECT_EQ(vocab_error("{\"a\xFF\":1}"), "vocab.json: not valid UTF-8 JSON at byte 4");
  EXPECT_EQ(vocab_error(R"({"a":{}})"), "vocab.json: token \"a\": an object is not an id");
  EXPECT_EQ(vocab_error(std::string(100000, '[')),
            "vocab.json: is an array, not an object of tokens and their ids");
  EXPECT_EQ(vocab_error("{}"), "vocab.json: lacks the token \"\xC4\x80\" of byte 0x00");
}

TEST(BpeFilesTest, K1_ids_that_are_no_ids) {
  EXPECT_EQ(vocab_error(changed_vocab("he", -3)), "vocab.json: token \"he\": id -3 is negative");
  EXPECT_EQ(vocab_error(changed_vocab("he", 1.5)),
            "vocab.json: token \"he\": id 1.5 is not a whole number up to 2147483647");
  EXPECT_EQ(vocab_error(changed_vocab("he", 2147483648)),
            "vocab.json: token \"he\": id 2147483648 is over the limit 2147483647");
  EXPECT_EQ(vocab_error(changed_vocab("he", "7")),
            "vocab.json: token \"he\": id \"7\" is not a number");
  EXPECT_EQ(vocab_error(changed_vocab("he", nullptr)),
            "vocab.json: token \"he\": null is not an id");
  EXPECT_EQ(vocab_error(changed_vocab("he", 0)),
            "vocab.json: tokens \"!\" and \"he\" share the id 0");
  EXPECT_EQ(vocab_error(changed_vocab("new", 421)),
            "vocab.json: token \"new\": id 421, but 421 tokens have the ids 0 to 420 without gaps");
  EXPECT_EQ(vocab_error(R"({"a":0,"a":1})"),
            "vocab.json: token \"a\" appears twice, with the ids 0 and 1");
  EXPECT_EQ(vocab_error(R"({"\u0120":0," ":1})"),  // both stand for a space
            "vocab.json: token \"\xC4\xA0\" appears twice, with the ids 0 and 1");
}

TEST(BpeFilesTest, K1_ids_that_the_model_does_not_have) {
  const std::string vocab = golden_vocabulary().vocab_json();
  EXPECT_EQ(vocab_error(vocab, 420), "");
  EXPECT_EQ(vocab_error(vocab, 1000), "");
  EXPECT_EQ(vocab_error(vocab, 419),
            "vocab.json: token \"<|endoftext|>\": id 419 is over the limit 418 of the model's "
            "vocab_size");
}

std::string merges_error(const std::string& merges_txt) {
  return error_of([&] { Bpe::parse(golden_vocabulary().vocab_json(), merges_txt); });
}

TEST(BpeFilesTest, K2_lines_that_are_no_merges) {
  EXPECT_EQ(merges_error("#version: 0.2\nt h\nthe\n"),
            "merges.txt:3: \"the\" is not two tokens with one space between");
  EXPECT_EQ(merges_error("#version: 0.2\nt h e\n"),
            "merges.txt:2: \"t h e\" is not two tokens with one space between");
  EXPECT_EQ(merges_error("t\th\n"),
            "merges.txt:1: \"t?h\" is not two tokens with one space between");
  EXPECT_EQ(merges_error("t  h\n"),
            "merges.txt:1: \"t  h\" is not two tokens with one space between");
  EXPECT_EQ(merges_error("t h \n"),
            "merges.txt:1: \"t h \" is not two tokens with one space between");
  EXPECT_EQ(merges_error("t h\nt h\n"),
            "merges.txt:2: the pair \"t h\" is already on an earlier line");
  EXPECT_EQ(merges_error("t h\n\xFF\n"),
            "merges.txt:2: \"?\" is not two tokens with one space between");
  EXPECT_EQ(
      merges_error(std::string(1000, 'x')),
      "merges.txt:1: \"" + std::string(40, 'x') + "\"... is not two tokens with one space between");
}

TEST(BpeFilesTest, K2_harmless_forms_are_accepted) {
  const Bpe bpe = golden_vocabulary();
  const std::string plain = bpe.merges_txt();
  const std::string lines = plain.substr(plain.find('\n') + 1);
  std::string windows;
  for (const char c : plain) windows += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& form : {lines, "\xEF\xBB\xBF" + plain, windows, plain + "\n\n",
                                  "\n" + lines, plain.substr(0, plain.size() - 1)}) {
    EXPECT_EQ(Bpe::parse(bpe.vocab_json(), form).fingerprint(), bpe.fingerprint());
  }
}

TEST(BpeFilesTest, K3_merges_of_tokens_that_are_not_there) {
  EXPECT_EQ(merges_error("t h\nqq e\n"), "merges.txt:2: the token \"qq\" is not in the vocabulary");
  EXPECT_EQ(merges_error("t h\ne qq\n"), "merges.txt:2: the token \"qq\" is not in the vocabulary");
  EXPECT_EQ(merges_error("t h\nq q\n"), "merges.txt:2: its result \"qq\" is not in the vocabulary");
}

TEST(BpeFilesTest, K4_a_vocabulary_that_lacks_a_byte) {
  auto vocab = ordered_json::parse(golden_vocabulary().vocab_json());
  vocab.erase("\xC4\xA0");  // a space
  ordered_json dense;
  for (const auto& item : vocab.items()) dense[item.key()] = dense.size();
  EXPECT_EQ(vocab_error(dense.dump()), "vocab.json: lacks the token \"\xC4\xA0\" of byte 0x20");
}

TEST(BpeTest, K5_any_bytes_come_back) {
  const Bpe bpe = golden_vocabulary();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& text :
       {std::string(), std::string(1, '\0'), all, std::string("\xED\xA0\x80 lone surrogate"),
        std::string("a\0b", 3), std::string("\xF0\x9F\x98"), std::string("\xE2\x82 \xC3")}) {
    EXPECT_EQ(bpe.decode(bpe.encode(text)), text);
  }
  std::mt19937 random(5);
  for (int k = 0; k < 2000; ++k) {
    std::string text(random() % 300, '\0');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_EQ(bpe.decode(bpe.encode(text)), text);
  }
}

TEST(BpeTest, K5_a_word_of_ten_megabytes_takes_about_linear_time) {
  const Bpe bpe = golden_vocabulary();
  const auto seconds_of = [&](std::size_t bytes) {
    std::string word(bytes, '\0');
    std::mt19937 random(1);
    for (char& c : word) c = "etaoinshrdlu"[random() % 12];
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = bpe.encode(word);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(bpe.decode(ids) == word);
    return time.count();
  };
  // Ten times the bytes: a quadratic algorithm would take a hundred times as long.
  const double small = std::min(seconds_of(1'000'000), seconds_of(1'000'000));
  const double large = seconds_of(10'000'000);
  EXPECT_LT(large, 35 * small);
  RecordProperty("seconds_of_10_MB", std::to_string(large));
}

}  // namespace
}  // namespace cephalo
