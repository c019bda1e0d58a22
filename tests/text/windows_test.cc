// Token files, and windows over them against what PyTorch's DataLoader gives.
#include "cephalo/text/windows.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>

#include "cephalo/core/error.h"
#include "tests/support/files.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"
#include "tests/support/vocabulary.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::golden_vocabulary;
using testing::read_bytes;
using testing::read_golden;
using testing::write_bytes;

std::shared_ptr<const TokenSource> counting(dim_t tokens) {
  std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  return std::make_shared<TokensInMemory>(std::move(ids), tokens);
}

std::vector<std::int64_t> row_of(const Windows& windows, std::int64_t number) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(windows.options().context_length) + 1);
  windows.row(number, ids);
  return ids;
}

TEST(WindowsTest, batches_are_those_of_the_books_data_loader) {
  const auto golden = read_golden("windows.json");
  for (const auto& c : golden.at("cases")) {
    const Windows windows(counting(c.at("tokens").get<dim_t>()),
                          {.context_length = c.at("context_length").get<dim_t>(),
                           .stride = c.at("stride").get<dim_t>(),
                           .batch = c.at("batch").get<dim_t>(),
                           .shuffle = c.at("shuffle").get<bool>(),
                           .drop_last = c.at("drop_last").get<bool>(),
                           .seed = c.at("seed").get<std::uint64_t>(),
                           .order = ShuffleOrder::torch});
    WindowPosition position;
    for (const auto& epoch : c.at("epochs")) {
      for (const auto& firsts : epoch) {
        const WindowBatch batch = windows.batch(position);
        ASSERT_EQ(batch.inputs.dim(0), static_cast<dim_t>(firsts.size()));
        for (dim_t b = 0; b < batch.inputs.dim(0); ++b) {
          const auto first = firsts.at(static_cast<std::size_t>(b)).get<double>();
          for (dim_t i = 0; i < windows.options().context_length; ++i) {
            ASSERT_EQ(batch.inputs.at({b, i}), first + static_cast<double>(i));
            ASSERT_EQ(batch.targets.at({b, i}), first + static_cast<double>(i) + 1);
          }
        }
        position = windows.after(position);
      }
    }
    EXPECT_EQ(position, (WindowPosition{3, 0}));
  }
  EXPECT_GE(golden.at("cases").size(), 6U);
}

TEST(WindowsTest, every_window_comes_once_in_an_epoch_and_in_another_order_in_the_next) {
  for (const dim_t tokens : {6, 7, 25, 100, 1000}) {
    const Windows windows(counting(tokens), {.context_length = 5, .stride = 1, .shuffle = true});
    std::vector<std::int64_t> orders[2];
    for (std::int64_t number = 0; number < 2 * windows.rows_per_epoch(); ++number) {
      orders[number / windows.rows_per_epoch()].push_back(row_of(windows, number)[0]);
    }
    for (const auto& order : orders) {
      EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(),
                static_cast<std::size_t>(windows.count()));
      EXPECT_EQ(*std::max_element(order.begin(), order.end()), windows.count() - 1);
    }
    EXPECT_TRUE(tokens < 100 || orders[0] != orders[1]);
    EXPECT_TRUE(tokens < 100 || !std::is_sorted(orders[0].begin(), orders[0].end()));
  }
}

TEST(WindowsTest, a_position_is_all_that_has_to_be_kept) {
  for (const ShuffleOrder order : {ShuffleOrder::counter, ShuffleOrder::torch}) {
    const WindowOptions options{.context_length = 8,
                                .stride = 3,
                                .batch = 4,
                                .shuffle = true,
                                .order = order,
                                .repeated_rows = 0.5,
                                .repeat_least = 2};
    const Windows first(counting(200), options);
    std::vector<Tensor> seen;
    std::vector<WindowPosition> positions;
    for (WindowPosition at; at.epoch < 3; at = first.after(at)) {
      positions.push_back(at);
      seen.push_back(first.batch(at).inputs);
    }
    const Windows second(counting(200), options);
    for (std::size_t k = positions.size(); k-- > 0;) {  // in any order
      EXPECT_TRUE(testing::same_bits(second.batch(positions[k]).inputs, seen[k]));
    }
  }
}

TEST(WindowsTest, rows_of_a_run_are_its_batches) {
  const Windows windows(counting(100),
                        {.context_length = 8, .stride = 8, .batch = 5, .shuffle = true});
  const WindowBatch batch = windows.batch({1, 1});
  for (dim_t b = 0; b < 5; ++b) {
    EXPECT_EQ(static_cast<double>(row_of(windows, windows.rows_per_epoch() + 5 + b)[0]),
              batch.inputs.at({b, 0}));
  }
}

TEST(WindowsTest, a_share_of_the_rows_repeats_a_segment) {
  const WindowOptions options{
      .context_length = 256, .stride = 1, .shuffle = true, .repeated_rows = 0.2};
  const Windows windows(counting(5000), options);
  WindowOptions plain = options;
  plain.repeated_rows = 0.0;
  const Windows without(counting(5000), plain);
  int repeated = 0;
  std::set<std::int64_t> lengths;
  for (std::int64_t number = 0; number < 4000; ++number) {
    const auto ids = row_of(windows, number);
    const auto window = row_of(without, number);
    EXPECT_EQ(ids, row_of(windows, number));
    if (ids == window) continue;
    ++repeated;
    // The first token tells the length: it comes again after it.
    const auto length = std::find(ids.begin() + 1, ids.end(), ids[0]) - ids.begin();
    lengths.insert(length);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      ASSERT_EQ(ids[k], ids[0] + static_cast<std::int64_t>(k) % length);
    }
    EXPECT_GE(ids[0], window.front());
    EXPECT_LE(ids[static_cast<std::size_t>(length) - 1], window.back());
  }
  EXPECT_NEAR(repeated, 800, 120);  // nearly five standard deviations
  EXPECT_EQ(*lengths.begin(), 20);
  EXPECT_EQ(*lengths.rbegin(), 100);
}

TEST(WindowsTest, a_repeated_segment_fits_twice_into_a_short_row) {
  const Windows windows(counting(50), {.context_length = 9, .stride = 1, .repeated_rows = 1.0});
  for (std::int64_t number = 0; number < 40; ++number) {
    const auto ids = row_of(windows, number);
    EXPECT_EQ(ids[5], ids[0]);  // of 5, half of 10
  }
}

// Sentences of 10 tokens, 10k to 10k + 9: in a row that returns to them, each token is the one
// after the last, or begins a fresh sentence or one that was said before.
TEST(WindowsTest, half_of_the_repeated_rows_return_to_earlier_sentences) {
  constexpr std::int64_t kLength = 10;
  WindowOptions options{.context_length = 256, .shuffle = true, .repeated_rows = 1.0};
  for (TokenId id = kLength - 1; id < 50'000; id += kLength) options.sentence_ends.push_back(id);
  const Windows windows(counting(50'000), options);
  int returning = 0;
  std::int64_t copied = 0;
  std::set<std::int64_t> distances;
  for (std::int64_t number = 0; number < windows.count(); ++number) {
    const auto ids = row_of(windows, number);
    EXPECT_EQ(ids, row_of(windows, number));
    const auto period = std::find(ids.begin() + 1, ids.end(), ids[0]) - ids.begin();
    const auto repeats = [&](std::size_t k) {
      return ids[k] == ids[k - static_cast<std::size_t>(period)];
    };
    std::size_t k = static_cast<std::size_t>(period);
    while (k < ids.size() && repeats(k)) ++k;
    if (k == ids.size() && period < std::ssize(ids)) continue;  // a segment, over and over
    ++returning;
    std::int64_t fresh = ids[0];  // the first token of the text that was not yet said
    for (std::size_t place = 0; place < ids.size(); ++place) {
      if (ids[place] == fresh) {
        ++fresh;
        continue;
      }
      ASSERT_LT(ids[place], fresh);  // nothing is passed over
      ++copied;
      const bool begins = ids[place - 1] % kLength == kLength - 1;
      ASSERT_TRUE(begins || ids[place] == ids[place - 1] + 1);
      if (!begins) continue;
      const auto before = std::find(ids.rbegin() + std::ssize(ids) - static_cast<dim_t>(place),
                                    ids.rend(), ids[place]);
      ASSERT_NE(before, ids.rend());
      distances.insert(before - ids.rbegin() - std::ssize(ids) + static_cast<dim_t>(place) + 1);
    }
  }
  EXPECT_NEAR(2 * returning, static_cast<int>(windows.count()),
              70);  // five standard deviations of 195 rows
  EXPECT_NEAR(static_cast<double>(copied) / (257.0 * returning), 0.5, 0.1);
  EXPECT_GE(*distances.begin(), 5);
  EXPECT_LE(*distances.rbegin(), 100);
}

TEST(WindowsTest, sentences_end_where_no_letter_follows_the_stop) {
  const Bpe bpe = golden_vocabulary();
  std::set<std::string> ends;
  for (const TokenId id : sentence_ends(bpe)) ends.emplace(bpe.token(id));
  for (const char* token : {".", "!", "?"}) EXPECT_TRUE(ends.contains(token)) << token;
  for (const std::string& token : ends) EXPECT_NE(token.find_first_of(".!?"), std::string::npos);
  EXPECT_FALSE(ends.contains("a"));
}

TEST(WindowsTest, tokens_are_split_for_training_and_validation) {
  const auto [train, validation] = split_tokens(1000, 0.1);
  EXPECT_EQ(train.begin, 0);
  EXPECT_EQ(train.end, 900);
  EXPECT_EQ(validation.begin, 900);
  EXPECT_EQ(validation.end, 1000);
  const Windows windows(counting(1000), {.context_length = 10, .range = validation});
  EXPECT_EQ(windows.count(), 9);
  EXPECT_EQ(row_of(windows, 0)[0], 900);
}

TEST(WindowsTest, sizes_that_cannot_be_are_errors) {
  const auto error = [](dim_t tokens, const WindowOptions& options) {
    return error_of([&] { Windows(counting(tokens), options); });
  };
  EXPECT_EQ(
      error(4, {.context_length = 4}),
      "Windows: 4 tokens are too few for a context_length of 4: one more than that is needed");
  EXPECT_EQ(error(5, {.context_length = 4}), "");
  EXPECT_EQ(error(5, {.context_length = 0}), "Windows: context_length (0) must be at least 1");
  EXPECT_EQ(error(5, {.context_length = 4, .stride = -1}),
            "Windows: stride (-1) must be at least 1");
  EXPECT_EQ(error(5, {.context_length = 4, .batch = 2}),
            "Windows: batch (2) is more than all 1 windows; allow fewer with drop_last = false");
  EXPECT_EQ(error(5, {.context_length = 4, .range = {2, 6}}),
            "Windows: range 2 to 6 is not within the 5 tokens");
  EXPECT_EQ(error(5, {.context_length = 4, .repeated_rows = 1.5}),
            "Windows: repeated_rows (1.5) must be in [0, 1]");
  const Windows windows(counting(50), {.context_length = 4});
  EXPECT_EQ(error_of([&] {
              windows.batch({0, 12});
            }),
            "Windows: epoch 0, batch 12 does not exist: an epoch has 12 batches");
}

class TokenFileTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "tokens"; }
  std::string text(const std::string& name, const std::string& content) const {
    write_bytes(folder_ / name, content);
    return folder_ / name;
  }
  static std::vector<TokenId> all_of(const TokenSource& source) {
    std::vector<TokenId> ids(static_cast<std::size_t>(source.tokens()));
    source.read(0, ids);
    return ids;
  }
  std::string error_of_bytes(const std::string& bytes) const {
    write_bytes(path(), bytes);
    const std::string error = error_of([&] { TokenFile file(path()); });
    return error.empty() ? "" : error.substr(path().size() + 2);
  }

  Folder folder_;
  const Bpe bpe_ = golden_vocabulary();
};

TEST_F(TokenFileTest, texts_are_tokenised_one_after_the_other) {
  const std::vector<std::string> texts = {text("a", "The cat sat.\n"), text("b", ""),
                                          text("c", "on the mat")};
  const TokenId end = *bpe_.find("<|endoftext|>");
  std::int64_t done = 0, all = 0;
  const dim_t count = write_token_file(
      bpe_, texts, path(),
      {.before_each_file = end, .progress = [&](std::int64_t bytes, std::int64_t of) {
         done = bytes;
         all = of;
       }});
  std::vector<TokenId> expected;
  for (const char* content : {"The cat sat.\n", "", "on the mat"}) {
    expected.push_back(end);
    const auto ids = bpe_.encode(content);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  const TokenFile file(path(), &bpe_);
  EXPECT_EQ(file.tokens(), count);
  EXPECT_EQ(file.vocab_size(), 420);
  EXPECT_EQ(all_of(file), expected);
  EXPECT_EQ(done, 23);
  EXPECT_EQ(all, 23);
  std::vector<TokenId> two(2);
  file.read(3, two);
  EXPECT_EQ(two, (std::vector<TokenId>{expected[3], expected[4]}));
  EXPECT_EQ(error_of([&] { file.read(count - 1, two); }),
            path() + ": tokens " + std::to_string(count - 1) + " to " + std::to_string(count + 1) +
                " of " + std::to_string(count) + " were asked for");
}

TEST_F(TokenFileTest, large_vocabularies_take_four_bytes_a_token) {
  std::vector<std::string> tokens = testing::byte_vocabulary();
  for (int k = 0; tokens.size() < 70000; ++k) tokens.push_back("<" + std::to_string(k) + ">");
  const Bpe large(tokens, {});
  const std::vector<std::string> texts = {text("a", "x<69000>y")};
  write_token_file(large, texts, path(), {.allowed_special = {"<69000>"}});
  EXPECT_EQ(all_of(TokenFile(path(), &large)), (std::vector<TokenId>{'x', 256 + 69000, 'y'}));
}

TEST_F(TokenFileTest, another_vocabulary_is_an_error) {
  write_token_file(bpe_, std::vector{text("a", "x")}, path());
  const Bpe bytes(testing::byte_vocabulary(), {});
  EXPECT_EQ(error_of([&] { TokenFile file(path(), &bytes); }),
            path() + ": was made with another vocabulary; tokenise the corpus again");
}

TEST_F(TokenFileTest, every_flipped_bit_and_every_cut_is_found) {
  write_token_file(bpe_, std::vector{text("a", "The cat")}, path());
  const std::string bytes = read_bytes(path());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(error_of_bytes(changed), "") << "bit " << bit;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(error_of_bytes(bytes.substr(0, size)), "") << size << " bytes";
  }
  EXPECT_EQ(error_of_bytes("x"), "is not a token file: 1 bytes, the least is 56");
  EXPECT_EQ(error_of_bytes(std::string(100, 'x')),
            "is not a token file: it does not begin with CEPHTOK1");
  EXPECT_EQ(error_of_bytes(bytes), "");
}

TEST_F(TokenFileTest, nothing_is_left_of_a_file_that_could_not_be_made) {
  const std::vector<std::string> texts = {text("a", "x"), folder_ / "missing"};
  EXPECT_TRUE(error_of([&] {
                write_token_file(bpe_, texts, path());
              }).ends_with("No such file or directory"));
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(TokenFileTest, A14_ids_outside_of_the_vocabulary) {
  EXPECT_EQ(error_of([] {
              TokensInMemory({1, 2, 3}, 3);
            }),
            "TokensInMemory: id 3 at position 2 is outside the vocabulary of 3");
}

#if !defined(__SANITIZE_THREAD__)  // TSan does not follow a fork of a process with threads
TEST(WindowsTest, a_forked_child_is_told_that_another_thread_was_using_them) {
  const Windows windows(counting(dim_t{1} << 20),
                        {.context_length = 1, .shuffle = true, .order = ShuffleOrder::torch});
  std::atomic<bool> done{false};
  std::thread other([&] {  // a new epoch with every row: it is shuffling nearly all the time
    for (std::int64_t epoch = 0; !done; ++epoch) row_of(windows, epoch * windows.rows_per_epoch());
  });
  bool told = false;
  for (int fork_number = 0; fork_number < 50 && !told; ++fork_number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      const std::string said = error_of([&] { row_of(windows, 0); });
      _exit(said.starts_with("Windows: another thread was using it when this process was forked")
                ? 7
                : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "the child waited for a thread that it has not";
    told = WEXITSTATUS(status) == 7;
  }
  done = true;
  other.join();
  EXPECT_TRUE(told);
}
#endif

}  // namespace
}  // namespace cephalo
