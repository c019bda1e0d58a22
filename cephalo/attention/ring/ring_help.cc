#include "cephalo/attention/ring/ring_help.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cephalo/core/cpu.h"
#include "cephalo/core/parallel.h"
#include "cephalo/kernels/sizes.h"

namespace cephalo {
namespace {

constexpr dim_t kLine = 64;  // bytes of a cache line

constexpr int kQuestionTag = 2;  // those of keys and of gradients are 0 and 1
constexpr int kAnswerTag = 3;
constexpr int kUnitTag = 4;
constexpr int kResultTag = 5;

// A piece of queries against one of keys has some units at least, and is worth the messages if it
// is not much shorter than one of full size.
constexpr double kUnitsOfPiece = 4.0;
constexpr double kLeastOfUnit = 0.125;
// Threads of one process share out what they have, and lose a little at the end of each unit.
constexpr double kUnitsOfThreads = 16.0;

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
double piece_flops(const RingCall& call) {
  const double rows = static_cast<double>(call.tokens) / (2.0 * call.world.size());
  const dim_t width = call.q.dim(3) + call.v.dim(3);
  return 2.0 * static_cast<double>(call.q.dim(0) * call.q.dim(1) * width) * rows * rows;
}

// q, k and v of a unit.
std::vector<PackedTensors::Part> rows_of(const RingCall& call, const RingUnit& unit) {
  const dim_t batch = call.q.dim(0);
  const dim_t heads = q_heads_of(call, unit).count();
  const dim_t kv_heads = unit.kv_heads.count();
  const dim_t keys = unit.kv_rows.whole.count();
  return {{{batch, heads, unit.q_rows.whole.count(), call.q.dim(3)}, call.q.dtype()},
          {{batch, kv_heads, keys, call.k.dim(3)}, call.k.dtype()},
          {{batch, kv_heads, keys, call.v.dim(3)}, call.v.dtype()}};
}

// Its context and lse.
std::vector<PackedTensors::Part> results_of(const RingCall& call, const RingUnit& unit) {
  const dim_t batch = call.q.dim(0);
  const dim_t heads = q_heads_of(call, unit).count();
  const dim_t rows = unit.q_rows.whole.count();
  return {{{batch, heads, rows, call.v.dim(3)}, call.sums}, {{batch, heads, rows}, call.sums}};
}

}  // namespace

// The smallest that will do; not one of rows and keys for a short result. If there is none, others
// make room for it.
Tensor MessageMemory::take(dim_t bytes) {
  auto best = spare_.end();
  for (auto each = spare_.begin(); each != spare_.end(); ++each) {
    const bool fits = each->numel() >= bytes && each->numel() <= 2 * bytes;
    if (fits && (best == spare_.end() || each->numel() < best->numel())) best = each;
  }
  Tensor taken;
  if (best != spare_.end()) {
    taken = std::move(*best);
    spare_.erase(best);
  } else {
    const std::size_t all = taken_ + static_cast<std::size_t>(bytes);
    while (!spare_.empty() && all + spare_bytes() > std::max(all, most_taken_)) {
      spare_.erase(spare_.begin());  // the one that has been here longest
    }
    taken = Tensor::empty({bytes}, DType::u8);
  }
  taken_ += taken.bytes();
  most_taken_ = std::max(most_taken_, taken_);
  return taken;
}

void MessageMemory::give_back(Tensor memory) {
  taken_ -= memory.bytes();
  spare_.push_back(std::move(memory));
}

std::size_t MessageMemory::spare_bytes() const {
  std::size_t bytes = 0;
  for (const Tensor& each : spare_) bytes += each.bytes();
  return bytes;
}

PackedTensors::PackedTensors(const std::vector<Part>& parts, MessageMemory& from) {
  std::vector<dim_t> begins;
  dim_t bytes = 0;
  for (const Part& part : parts) {
    begins.push_back(bytes);
    bytes += round_up(numel(part.shape) * static_cast<dim_t>(item_size(part.dtype)), kLine);
  }
  size_ = static_cast<std::size_t>(bytes);
  memory_ = from.take(bytes);
  auto* first = static_cast<std::byte*>(memory_.mutable_view().mutable_data());
  for (std::size_t n = 0; n < parts.size(); ++n) {
    views_.emplace_back(first + begins[n], parts[n].dtype, parts[n].shape);
  }
}

std::span<std::byte> PackedTensors::bytes() {
  return {static_cast<std::byte*>(memory_.mutable_view().mutable_data()), size_};
}

bool RingHelp::pays(const RingCall& call, double unit_flops) {
  World& world = call.world;
  if (world.size() == 1 || !world.tells_progress()) return false;
  if (!pays_for(piece_flops(call), unit_flops)) return false;
  // Tensors of a mask are each process's own, and another instruction set has other bits. Either
  // may be so on one process only: all say what they have.
  const bool has_tensors = !call.mask.tensors.empty();
  const std::vector<std::string> all =
      world.gather(has_tensors ? "" : name(current_isa(call.q.dtype())));
  return !all[0].empty() && std::count(all.begin(), all.end(), all[0]) == std::ssize(all);
}

bool RingHelp::pays_for(double piece_flops, double unit_flops) {
  return piece_flops >= kLeastOfUnit * unit_flops;
}

UnitSize RingHelp::unit_size(const RingCall& call, double unit_flops) {
  const int own = threads_of_caller();
  if (own == 1) return {std::min(unit_flops, piece_flops(call) / kUnitsOfPiece), true};
  return {unit_flops * kUnitsOfThreads * own, false};
}

RingHelp::RingHelp(const RingCall& call) : call_(call) {
  const int size = call.world.size();
  const int rank = call.world.rank();
  const int circles = (size + kMostTogether - 1) / kMostTogether;
  for (int circle = 0; circle < circles; ++circle) {
    const Share ranks = share_of(size, circle, circles);
    if (rank < ranks.begin || rank >= ranks.end) continue;
    // From the next one on, so that not all ask the same process first.
    const auto count = static_cast<int>(ranks.count());
    const auto first = static_cast<int>(ranks.begin);
    for (int n = 1; n < count; ++n) {
      const int peer = first + (rank - first + n) % count;
      peers_.push_back({peer, expect(peer, kQuestionTag), expect(peer, kAnswerTag)});
    }
  }
}

std::unique_ptr<RingHelp::Coming> RingHelp::expect(int rank, int tag) {
  auto coming = std::make_unique<Coming>();
  coming->transfers = call_.world.transfers();
  coming->transfers->receive(rank, tag, bytes_of(coming->message));
  return coming;
}

void RingHelp::say(int rank, int tag, const Message& message) {
  Leaving& leaving = leaving_.emplace_back();
  leaving.message = message;
  leaving.transfers = call_.world.transfers();
  leaving.transfers->send(rank, tag, bytes_of(leaving.message));
}

void RingHelp::send(int rank, int tag, PackedTensors tensors) {
  Leaving& leaving = leaving_.emplace_back();
  leaving.tensors = std::move(tensors);
  leaving.transfers = call_.world.transfers();
  leaving.transfers->send(rank, tag, leaving.tensors->bytes());
}

// Of what is left with these keys, the same for those who are done and for one who is not: each run
// less makes a helper wait once more until somebody looks at its question.
double RingHelp::share() const {
  const auto done = static_cast<double>(std::count_if(
      peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.answer == nullptr; }));
  const double busy = static_cast<double>(peers_.size()) + 1.0 - done;
  return 1.0 / (1.0 + done / busy);
}

void RingHelp::answer_question(Peer& peer, const Give& give, RingKeys* keys) {
  const Word word = peer.question->message.word;
  peer.question = word != Word::ask_no_more ? expect(peer.rank, kQuestionTag) : nullptr;
  // Whoever has finished has said so, which answers what crosses it.
  if (word == Word::ask_no_more || finished_) return;
  const When when = word == Word::ask ? When::now : When::later;
  const std::optional<RingUnit> unit = has_room(when) ? give(share(), when) : std::nullopt;
  if (unit) {
    give_unit(peer, *unit, *keys, when);
  } else {
    say(peer.rank, kAnswerTag, {.word = Word::nothing});
  }
}

void RingHelp::give_unit(const Peer& peer, const RingUnit& unit, RingKeys& keys, When when) {
  say(peer.rank, kAnswerTag, {Word::unit, unit.q_rows.whole, unit.kv_rows.whole, unit.kv_heads});
  PackedTensors result(results_of(call_, unit), memory_);
  auto coming = call_.world.transfers();
  coming->receive(peer.rank, kResultTag, result.bytes());
  given_.push_back({unit, peer.rank, std::move(result), std::move(coming), false});
  PackedTensors rows(rows_of(call_, unit), memory_);
  rows[0].copy_from(unit_queries(call_, unit));
  rows[1].copy_from(unit_keys(unit, keys.k()));
  rows[2].copy_from(unit_keys(unit, keys.v()));
  send(peer.rank, kUnitTag, std::move(rows));
  if (when == When::later) return;
  // Who waits for it gets it at once, also where messages travel only while both look; and the next
  // to ask gets its memory, since many may ask at the same time.
  leaving_.back().transfers->wait();
  forget(leaving_.back());
  leaving_.pop_back();
}

void RingHelp::forget(Leaving& leaving) {
  leaving.transfers.reset();
  if (leaving.tensors) memory_.give_back(std::move(*leaving.tensors).memory());
}

// Rows and keys on their way to others.
std::size_t RingHelp::leaving_bytes() const {
  std::size_t bytes = 0;
  for (const Leaving& leaving : leaving_) {
    if (leaving.tensors) bytes += leaving.tensors->size();
  }
  return bytes;
}
// Results that others are at.
std::size_t RingHelp::awaited_bytes() const {
  std::size_t bytes = 0;
  for (const Given& given : given_) bytes += given.result.size();
  return bytes;
}

// A run is a piece at most. Those who are busy, and take theirs later, leave memory to those who
// wait: plan counts with a piece and a half of rows for them and one for others, and with three
// pieces of results.
bool RingHelp::has_room(When when) const {
  const dim_t columns = call_.q.dim(0) * call_.q.dim(1) * (call_.v.dim(3) + 1);
  const auto result =
      static_cast<std::size_t>(columns * call_.q.dim(2) / 2) * item_size(call_.sums);
  if (when == When::now) return awaited_bytes() < 2 * result;
  const std::size_t rows = (call_.q.bytes() + call_.k.bytes() + call_.v.bytes()) / 2;
  return awaited_bytes() < result && 2 * leaving_bytes() < rows;
}

RingHelp::Came RingHelp::take_answer(Peer& peer) {
  if (peer.answer == nullptr || !peer.answer->transfers->progress()) return Came::nothing;
  const Message message = peer.answer->message;
  if (asked_ == &peer) asked_ = nullptr;
  if (message.word == Word::finished) {
    peer.answer = nullptr;
    say(peer.rank, kQuestionTag, {.word = Word::ask_no_more});
    return Came::word;
  }
  peer.answer = expect(peer.rank, kAnswerTag);
  if (message.word != Word::unit) return Came::word;
  attend_for(peer, message);
  return Came::work;
}

void RingHelp::attend_for(const Peer& peer, const Message& message) {
  const RingUnit unit{{0, message.q_rows}, {0, message.kv_rows}, message.kv_heads};
  PackedTensors rows(rows_of(call_, unit), memory_);
  const auto coming = call_.world.transfers();
  coming->receive(peer.rank, kUnitTag, rows.bytes());
  coming->wait();
  ask_next(Word::ask_ahead);
  PackedTensors result(results_of(call_, unit), memory_);
  attend_unit(call_, unit, {result[0], result[1]}, rows[0], rows[1], rows[2]);
  memory_.give_back(std::move(rows).memory());
  send(peer.rank, kResultTag, std::move(result));
  ++helped_;
}

void RingHelp::look(const Give& give, RingKeys* keys) {
  leaving_.remove_if([&](Leaving& each) {
    const bool gone = each.transfers->progress();
    if (gone) forget(each);
    return gone;
  });
  for (Peer& peer : peers_) {
    while (peer.question != nullptr && peer.question->transfers->progress()) {
      answer_question(peer, give, keys);
    }
  }
}

void RingHelp::serve(const Give& give, RingKeys& keys) {
  look(give, &keys);
  // One that nobody asked yet can only say that it has finished.
  for (Peer& peer : peers_) take_answer(peer);
}

bool RingHelp::is_awaited_for(const RingUnit& unit) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const Given& given) { return given.unit.overlaps(unit); });
}

bool RingHelp::join_returned(const Join& join) {
  bool joined = false;
  for (Given& given : given_) given.there = given.there || given.transfers->progress();
  for (auto given = given_.begin(); given != given_.end();) {
    const bool first = std::none_of(given_.begin(), given, [&](const Given& before) {
      return before.unit.overlaps(given->unit);
    });
    if (!given->there || !first) {
      ++given;
      continue;
    }
    join(given->unit, given->result[0], given->result[1]);
    given->transfers.reset();
    memory_.give_back(std::move(given->result).memory());
    given = given_.erase(given);
    joined = true;
  }
  return joined;
}

void RingHelp::ask_next(Word word) {
  for (std::size_t n = 0; n < peers_.size() && asked_ == nullptr; ++n) {
    const Peer& peer = peers_[next_peer_];
    next_peer_ = (next_peer_ + 1) % peers_.size();
    if (peer.answer != nullptr) asked_ = &peer;
  }
  if (asked_ != nullptr) say(asked_->rank, kQuestionTag, {.word = word});
}

bool RingHelp::all_said() const {
  return leaving_.empty() && std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
           return peer.answer == nullptr && peer.question == nullptr;
         });
}

// One that has not said all.
int RingHelp::silent_peer() const {
  for (const Peer& peer : peers_) {
    if (peer.answer != nullptr || peer.question != nullptr) return peer.rank;
  }
  return peers_[0].rank;  // to whom something is on its way
}

void RingHelp::help_others() {
  finished_ = true;
  for (const Peer& peer : peers_) say(peer.rank, kAnswerTag, {.word = Word::finished});
  Patience silence(call_.world.timeout());  // of all others
  Patience idle(0.0);
  while (!all_said()) {
    look({}, nullptr);
    for (Peer& peer : peers_) {
      const Came came = take_answer(peer);
      if (came != Came::nothing) silence.begin_again();
      if (came == Came::work) idle.begin_again();
    }
    if (asked_ == nullptr) ask_next(Word::ask);
    if (silence.is_out()) silence.give_up(asked_ != nullptr ? asked_->rank : silent_peer());
    idle.nap();
  }
}

}  // namespace cephalo
