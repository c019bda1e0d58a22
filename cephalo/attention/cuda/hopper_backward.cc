#include "cephalo/attention/cuda/hopper_backward.h"

#include "cephalo/attention/cuda/hopper_forward.h"
#include "cephalo/attention/cuda/packed.h"
#include "cephalo/kernels/cuda/copy.h"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo {
namespace {

using kernels::cuda::BackwardBoxes;
using kernels::cuda::HopperBackward;
using kernels::cuda::Instance;
using kernels::cuda::LooksAt;

// The parts of the scratch, in bytes.
struct Layout {
  std::size_t dq, turns;            // cleared before the kernel starts
  std::size_t lse2, share2, delta;  // of whole blocks of queries
  std::size_t row_numbers;          // for rows that need care
  std::size_t queries, keys;        // lists of those
  std::size_t total() const {
    std::size_t sum = 0;
    for (const std::size_t part : {dq, turns, lse2, share2, delta, row_numbers, queries, keys}) {
      sum += DeviceProblem::taken(part);
    }
    return sum;
  }
};

std::size_t bytes_of(dim_t count, std::size_t each) {
  return static_cast<std::size_t>(count) * each;
}

dim_t query_blocks(const AttendProblem& p, const BackwardBoxes& boxes) {
  return (p.q.dim(2) + boxes.q_rows - 1) / boxes.q_rows;
}

Layout layout_of(const AttendProblem& p, const Instance& instance) {
  const BackwardBoxes boxes = backward_boxes(instance);
  const dim_t heads = p.q.dim(0) * p.q.dim(1);
  const dim_t blocks = heads * query_blocks(p, boxes);
  const dim_t padded = blocks * boxes.q_rows;
  const bool has_shares = instance.looks_at == LooksAt::pairs || instance.looks_at == LooksAt::bias;
  const kernels::cuda::Sizes sizes{p.q.dim(0), p.q.dim(1), p.k.dim(1), p.q.dim(2),
                                   p.k.dim(2), p.q.dim(3), p.v.dim(3)};
  return {.dq = bytes_of(padded * boxes.width, sizeof(float)),
          .turns = bytes_of(blocks, sizeof(unsigned)),
          .lse2 = bytes_of(padded, sizeof(float)),
          .share2 = bytes_of(has_shares ? padded : 0, sizeof(float)),
          .delta = bytes_of(padded, sizeof(float)),
          .row_numbers = bytes_of(kernels::cuda::row_numbers_bytes(sizes, p.q.dtype()), 1),
          // Twice: halves of a row, and dk and dv of a key, are looked at one after the other. Wide
          // kernels look at halves of dk and dv.
          .queries = bytes_of(2 * heads * p.q.dim(2), sizeof(unsigned)),
          .keys = bytes_of((instance.is_wide() ? 4 : 2) * p.k.dim(0) * p.k.dim(1) * p.k.dim(2),
                           sizeof(unsigned))};
}

// How a kernel reads its tensors.
struct BackwardOperands {
  OperandSize queries, keys;
  explicit BackwardOperands(const Instance& instance) {
    const BackwardBoxes boxes = backward_boxes(instance);
    queries = {boxes.q_rows, boxes.width, instance.parts};
    keys = {boxes.kv_rows, boxes.width, instance.parts};
  }
};

std::size_t input_bytes(const AttendProblem& p, const BackwardOperands& operands) {
  return operand_bytes(p.q, operands.queries) + operand_bytes(p.k, operands.keys) +
         operand_bytes(p.v, operands.keys);
}

// One backward pass: scratch, arguments of all kernels, launches.
class HopperBackwardCall {
 public:
  explicit HopperBackwardCall(const BackwardProblem& problem)
      : problem_(problem),
        p_(problem.forward),
        instance_(instance_of(p_)),
        by_turns_(adds_by_turns(instance_, !p_.options.deterministic)),
        boxes_(backward_boxes(instance_)),
        operands_(instance_),
        layout_(layout_of(p_, instance_)),
        call_(p_, scratch_bytes()) {
    fill_careful();
    fill_fast();
    fill_results();
  }

  void run() {
    check(clear());
    const std::int64_t padded = query_blocks(p_, boxes_) * boxes_.q_rows;
    check(prepare_backward(careful_, {lse2_, share2_, delta_, padded}, current_stream()));
    check(attend_backward_hopper(instance_, by_turns_, fast_, current_stream()));
    check(kernels::cuda::write_query_gradient({.from = fast_.dq,
                                               .turns = stores_first() ? fast_.turns : nullptr,
                                               .row_head = instance_.is_wide() ? padded : 0,
                                               .dq = careful_.dq,
                                               .careful = call_.counters() + 2,
                                               .careful_rows = queries_,
                                               .batch = p_.q.dim(0),
                                               .num_heads = p_.q.dim(1),
                                               .q_tokens = p_.q.dim(2),
                                               .width = boxes_.width,
                                               .columns = static_cast<int>(p_.q.dim(3)),
                                               .scale = dq_scale()},
                                              current_stream()));
    if (!instance_.is_wide()) {
      write_back(problem_.gradients.dk, dk_);
      write_back(problem_.gradients.dv, dv_);
    }
    check(listed_gradients(careful_, {call_.counters() + 2, queries_},
                           {fast_.careful, fast_.careful_rows}, call_.next_counters(),
                           current_stream()));
    for (const MutableTensorView& dbias : problem_.gradients.dbias) {
      const kernels::cuda::BiasGradient to{
          rows_of(dbias), {dbias.dim(0), dbias.dim(1), dbias.dim(2), dbias.dim(3)}};
      check(bias_gradient_simple(careful_, to, current_stream()));
    }
    call_.launch("attend_backward");
  }

 private:
  static void check(int error) { cuda::check(error, "attend_backward"); }

  // By turns it is known who is the first to add to a block of dq: no need to clear it.
  bool stores_first() const { return by_turns_ && !instance_.is_wide(); }
  int clear() {
    if (stores_first()) return kernels::cuda::clear(fast_.turns, layout_.turns, current_stream());
    const std::size_t both = DeviceProblem::taken(layout_.dq) + layout_.turns;
    return kernels::cuda::clear(fast_.dq, both, current_stream());
  }

  std::size_t scratch_bytes() const {
    const std::size_t bytes = layout_.total() + input_bytes(p_, operands_) +
                              operand_bytes(problem_.pass.dcontext, operands_.queries);
    if (instance_.is_wide()) return bytes;
    const DType dtype = p_.q.dtype();
    return bytes + packed_bytes(problem_.gradients.dk, dtype) +
           packed_bytes(problem_.gradients.dv, dtype);
  }
  // Kernels that look at dropout leave its factor out of dS.
  float dq_scale() const {
    const double grown = instance_.looks_at == LooksAt::dropout ? call_.args().dropout.grown : 1.0;
    return static_cast<float>(p_.scale * grown);
  }

  template <typename T>
  T* take(std::size_t bytes) {
    return static_cast<T*>(call_.take(bytes));
  }

  void fill_careful() {
    careful_.forward = call_.args();
    careful_.forward.context = rows_of(problem_.pass.context);
    careful_.forward.lse = rows_of(problem_.pass.lse);
    careful_.dcontext = rows_of(problem_.pass.dcontext);
    if (problem_.pass.dlse.numel() > 0) careful_.dlse = rows_of(problem_.pass.dlse);
    careful_.dq = rows_of(problem_.gradients.dq);
    careful_.dk = rows_of(problem_.gradients.dk);
    careful_.dv = rows_of(problem_.gradients.dv);
    careful_.has_all_keys = p_.mask.has_all_keys();
  }

  void fill_fast() {
    fast_.dq = take<float>(layout_.dq);  // dq and turns lie together
    fast_.turns = take<unsigned>(layout_.turns);
    lse2_ = take<float>(layout_.lse2);
    if (layout_.share2 > 0) share2_ = take<float>(layout_.share2);
    delta_ = take<float>(layout_.delta);
    careful_.row_numbers = take<void>(layout_.row_numbers);
    queries_ = take<unsigned>(layout_.queries);
    fast_.careful_rows = take<unsigned>(layout_.keys);
    // Products with v are used where there is a weight alone, so v may hold NaN; and where k did,
    // they tell. Of queries lse or delta tell.
    const RowCare of_queries{.clears = true};
    const TensorView v = operand(p_.v, operands_.keys, call_);
    const TensorView k = operand(p_.k, operands_.keys, call_, {.clears = true, .marks = &v});
    fast_.q = operand_map(operand(p_.q, operands_.queries, call_, of_queries), operands_.queries);
    fast_.k = operand_map(k, operands_.keys);
    fast_.v = operand_map(v, operands_.keys);
    fast_.dcontext = operand_map(
        operand(problem_.pass.dcontext, operands_.queries, call_, of_queries), operands_.queries);
    fast_.pairs = call_.pair_rules();
    if (instance_.looks_at == LooksAt::bias) fast_.bias = bias_map_of(p_);
    fast_.lse2 = lse2_;
    fast_.share2 = share2_;
    fast_.delta = delta_;
    fast_.next_tile = call_.counters();
    fast_.careful = call_.counters() + 1;
    fast_.rules = call_.args().mask.rules;
    fast_.rule_stride = static_cast<int>(call_.args().mask.rule_stride);
    fast_.batch = static_cast<int>(p_.q.dim(0));
    fast_.num_heads = static_cast<int>(p_.q.dim(1));
    fast_.num_kv_heads = static_cast<int>(p_.k.dim(1));
    fast_.q_tokens = static_cast<int>(p_.q.dim(2));
    fast_.kv_tokens = static_cast<int>(p_.k.dim(2));
    fast_.scale = static_cast<float>(p_.scale);
  }

  // Wide kernels write rows of dk and dv themselves; others leave that to the copy engine.
  void fill_results() {
    if (instance_.is_wide()) {
      fast_.dk_rows = careful_.dk;
      fast_.dv_rows = careful_.dv;
      fast_.columns = static_cast<int>(p_.q.dim(3));
      fast_.v_columns = static_cast<int>(p_.v.dim(3));
      return;
    }
    dk_ = packed_result(problem_.gradients.dk, p_.q.dtype(), call_);
    dv_ = packed_result(problem_.gradients.dv, p_.q.dtype(), call_);
    fast_.dk = make_tensor_map(dk_, {boxes_.gradient_rows, boxes_.width});
    fast_.dv = make_tensor_map(dv_, {boxes_.gradient_rows, boxes_.width});
  }

  const BackwardProblem& problem_;
  const AttendProblem& p_;
  Instance instance_;
  bool by_turns_;
  BackwardBoxes boxes_;
  BackwardOperands operands_;
  Layout layout_;
  DeviceProblem call_;
  MutableTensorView dk_, dv_;
  kernels::cuda::BackwardArgs careful_{};
  HopperBackward fast_{};
  float* lse2_ = nullptr;
  float* share2_ = nullptr;
  float* delta_ = nullptr;
  unsigned* queries_ = nullptr;
};

}  // namespace

std::size_t hopper_backward_scratch(const AttendProblem& p) {
  const Instance instance = instance_of(p);
  return layout_of(p, instance).total() + input_bytes(p, BackwardOperands(instance));
}

void attend_backward_on_hopper(const BackwardProblem& problem) {
  HopperBackwardCall(problem).run();
}

}  // namespace cephalo
