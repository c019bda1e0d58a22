#pragma once

// Inside the library only.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cephalo/attention/ring/ring_units.h"
#include "cephalo/world/patience.h"

namespace cephalo {

// Memory of messages that is used again. Blocks of megabytes that come and go between small ones
// would leave holes which the system does not get back. Never more is held than messages have had
// at once.
class MessageMemory {
 public:
  Tensor take(dim_t bytes);  // at least as many
  void give_back(Tensor memory);
  std::size_t spare_bytes() const;

 private:
  std::vector<Tensor> spare_;
  std::size_t taken_ = 0, most_taken_ = 0;
};

// Tensors side by side in memory, so that they travel as one message; values undefined.
class PackedTensors {
 public:
  struct Part {
    Shape shape;
    DType dtype;
  };
  PackedTensors(const std::vector<Part>& parts, MessageMemory& from);

  const MutableTensorView& operator[](std::size_t n) const { return views_[n]; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes();
  Tensor memory() && { return std::move(memory_); }

 private:
  std::size_t size_ = 0;
  Tensor memory_;
  std::vector<MutableTensorView> views_;
};

// Processes that are done attend for those that are not: cores of one machine may differ by a
// factor of two while each has as much to do, and the slowest would keep all of them waiting.
//
// Who is done asks one process after the other. One that still has units answers with a run of
// them, its rows and keys packed, and goes on; the result comes back as a message and joins in its
// place. Others look at messages only between two units, so a helper asks for the next run before
// it begins with one. A unit gives the same bits whoever attends to it, so nothing depends on who
// helped. Help is given among up to kMostTogether neighbouring ranks, which mostly share a machine.
// Every process says that it has finished, and later that it asks no more, so that no message is
// left when all return.
class RingHelp {
 public:
  explicit RingHelp(const RingCall& call);

  // Does it pay, with units of so many flops for a thread? The same answer on all processes.
  static bool pays(const RingCall& call, double unit_flops);
  // The same by the flops of a piece of queries against one of keys alone.
  static bool pays_for(double piece_flops, double unit_flops = kUnitFlops);
  static UnitSize unit_size(const RingCall& call, double unit_flops);

  // Looks at messages. give(share, when): a run of units for one who asks, of about this share of
  // what is left, with the keys that the process has at hand; none: there are none to give.
  enum class When { now, later };  // later: who asks is busy until then
  using Give = std::function<std::optional<RingUnit>(double share, When when)>;
  void serve(const Give& give, RingKeys& keys);

  // Does the result of an earlier unit with the same rows have to come first?
  bool is_awaited_for(const RingUnit& unit) const;
  bool all_back() const { return given_.empty(); }
  int awaited() const { return given_.front().peer; }  // who has what joins first
  // join(unit, context, lse) for those that have come back and whose turn it is -> were there any?
  using Join = std::function<void(const RingUnit&, const TensorView&, const TensorView&)>;
  bool join_returned(const Join& join);

  // This process is done: helps until all are.
  void help_others();

  std::int64_t helped() const { return helped_; }  // runs of others that were attended to here

  static constexpr int kMostTogether = 16;
  // About 40 ms of one core: long against a message, short against a piece worth helping with.
  static constexpr double kUnitFlops = 4e9;

 private:
  enum class Word : std::int64_t { ask, ask_ahead, ask_no_more, nothing, unit, finished };
  struct Message {
    Word word{};
    Share q_rows = {}, kv_rows = {}, kv_heads = {};  // of the whole
  };
  // A message that is expected. Here and below transfers end before the memory that they use.
  struct Coming {
    Message message;
    std::unique_ptr<Transfers> transfers;
  };
  struct Peer {
    int rank;
    std::unique_ptr<Coming> question;  // its next; none after ask_no_more
    std::unique_ptr<Coming> answer;    // its next; none after finished
  };
  struct Leaving {
    Message message;
    std::optional<PackedTensors> tensors;  // instead of a message
    std::unique_ptr<Transfers> transfers;
  };
  struct Given {
    RingUnit unit;
    int peer;
    PackedTensors result;
    std::unique_ptr<Transfers> transfers;
    bool there;
  };

  std::unique_ptr<Coming> expect(int rank, int tag);
  void say(int rank, int tag, const Message& message);
  void send(int rank, int tag, PackedTensors tensors);
  void answer_question(Peer& peer, const Give& give, RingKeys* keys);
  void give_unit(const Peer& peer, const RingUnit& unit, RingKeys& keys, When when);
  void forget(Leaving& leaving);
  enum class Came { nothing, word, work };
  // Takes in the answer of a peer, if it is there; a unit is attended to.
  Came take_answer(Peer& peer);
  void attend_for(const Peer& peer, const Message& message);
  double share() const;
  void look(const Give& give, RingKeys* keys);
  void ask_next(Word word);
  bool all_said() const;
  int silent_peer() const;
  bool has_room(When when) const;
  std::size_t leaving_bytes() const;
  std::size_t awaited_bytes() const;

  const RingCall& call_;
  MessageMemory memory_;
  std::vector<Peer> peers_;
  std::list<Leaving> leaving_;
  std::list<Given> given_;  // in the order in which they join
  std::size_t next_peer_ = 0;
  const Peer* asked_ = nullptr;
  bool finished_ = false;
  std::int64_t helped_ = 0;
};

// attend_ring with units of so many flops; helped: how many runs of others this process attended
// to.
AttendResult attend_ring_in_units(const RingCall& call, double unit_flops,
                                  std::int64_t* helped = nullptr);

}  // namespace cephalo
