#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/attention/ring/attend_ring.h"

namespace cephalo::python {
namespace {

// Messages by whatever the caller's Python has: an object with send(to, tag, memory),
// receive(from, tag, memory) and wait(), memory being a memoryview of bytes. They travel by
// themselves.
class PythonTransfers : public Transfers {
 public:
  PythonTransfers(nb::object made, double timeout) : Transfers(timeout), made_(std::move(made)) {}
  ~PythonTransfers() override {
    const WithGil held;
    made_.reset();
  }

  void send(int to, int tag, std::span<const std::byte> bytes) override {
    const WithGil held;
    in_python([&] {
      auto* first = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
      made_.attr("send")(to, tag, memory_of(first, bytes.size()));
    });
  }

  void receive(int from, int tag, std::span<std::byte> bytes) override {
    waiting_for_ = from;
    const WithGil held;
    in_python([&] {
      auto* first = reinterpret_cast<char*>(bytes.data());
      made_.attr("receive")(from, tag, memory_of(first, bytes.size()));
    });
  }

  bool progress() override { return false; }
  void wait() override {
    const WithGil held;
    in_python([&] { made_.attr("wait")(); });
  }

 private:
  // What is sent is writable, too: PyTorch warns of memory that is not.
  static nb::object memory_of(char* first, std::size_t size) {
    static char nothing;  // an empty view needs an address
    return nb::steal(PyMemoryView_FromMemory(size > 0 ? first : &nothing,
                                             static_cast<Py_ssize_t>(size), PyBUF_WRITE));
  }
  int awaited() override { return waiting_for_; }

  nb::object made_;
  int waiting_for_ = 0;
};

// An object with rank, size and transfers(), which makes one of the above.
class PythonWorld : public World {
 public:
  explicit PythonWorld(const nb::object& made)
      : World(nb::cast<int>(made.attr("rank")), nb::cast<int>(made.attr("size"))), made_(made) {}

  int processes_here() const override { return 1; }
  std::unique_ptr<Transfers> transfers() override {
    nb::object transfers;
    const WithGil held;
    in_python([&] { transfers = made_.attr("transfers")(); });
    return std::make_unique<PythonTransfers>(std::move(transfers), timeout());
  }
  bool tells_progress() const override { return false; }
  void end() override {}
  void abort(int status) override { std::_Exit(status); }

 private:
  const nb::object& made_;  // the caller's, for as long as its call runs
};

struct RingArguments {
  RingArguments(const AnyArray& q, const AnyArray& k, const AnyArray& v, const AnyArray& mask,
                const char* function)
      : queries(q, function, "q"),
        keys(k, function, "k"),
        values(v, function, "v"),
        parts(mask_of(mask, function)) {}
  ArrayIn queries, keys, values;
  const Mask& parts;
};

using Forward = AttendResult (*)(World&, dim_t, const TensorView&, const TensorView&,
                                 const TensorView&, const Mask&, const AttendOptions&);

template <Forward forward>
AnyArray attend_spread(const nb::object& world, dim_t tokens, const AnyArray& q, const AnyArray& k,
                       const AnyArray& v, const AnyArray& mask, std::optional<double> scale,
                       std::optional<double> softcap, double dropout, std::uint64_t seed,
                       std::optional<int> threads, const char* function) {
  const RingArguments in(q, k, v, mask, function);
  const AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  PythonWorld processes(world);
  AttendResult result;
  {
    const WithoutGil released;
    result = forward(processes, tokens, in.queries, in.keys, in.values, in.parts, options);
  }
  const Kind kind = in.queries.kind();
  return nb::borrow<AnyArray>(ResultType("AttendResult")(to_python(std::move(result.context), kind),
                                                         to_python(std::move(result.lse), kind),
                                                         nb::none(), nb::none()));
}

AnyArray ring_forward(const nb::object& world, dim_t tokens, const AnyArray& q, const AnyArray& k,
                      const AnyArray& v, const AnyArray& mask, std::optional<double> scale,
                      std::optional<double> softcap, double dropout, std::uint64_t seed,
                      std::optional<int> threads) {
  return attend_spread<&attend_ring>(world, tokens, q, k, v, mask, scale, softcap, dropout, seed,
                                     threads, "attend_ring");
}

AnyArray ring_backward(const nb::object& world, dim_t tokens, const AnyArray& q, const AnyArray& k,
                       const AnyArray& v, const AnyArray& context, const AnyArray& lse,
                       const AnyArray& dcontext, const std::optional<AnyArray>& dlse,
                       const AnyArray& mask, std::optional<double> scale,
                       std::optional<double> softcap, double dropout, std::uint64_t seed,
                       bool with_dbias, std::optional<int> threads) {
  constexpr const char* kName = "attend_ring_backward";
  const RingArguments in(q, k, v, mask, kName);
  const ArrayIn forward(context, kName, "context");
  const ArrayIn sums(lse, kName, "lse");
  const ArrayIn back(dcontext, kName, "dcontext");
  const ArrayIn back_of_sums = dlse ? ArrayIn(*dlse, kName, "dlse") : ArrayIn();
  const AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  PythonWorld processes(world);
  AttendGradients found;
  {
    const WithoutGil released;
    found = attend_ring_backward(processes, tokens, {forward, sums, back, back_of_sums}, in.queries,
                                 in.keys, in.values, in.parts, options, with_dbias);
  }
  const Kind kind = in.queries.kind();
  nb::list dbias;
  for (Tensor& d : found.dbias) dbias.append(to_python(std::move(d), kind));
  return nb::borrow<AnyArray>(ResultType("AttendGradients")(
      to_python(std::move(found.dq), kind), to_python(std::move(found.dk), kind),
      to_python(std::move(found.dv), kind), dbias));
}

std::pair<std::pair<dim_t, dim_t>, std::pair<dim_t, dim_t>> share(dim_t tokens, int rank,
                                                                  int size) {
  const RingShare found = ring_share(tokens, rank, size);
  return {{found.early.begin, found.early.end}, {found.late.begin, found.late.end}};
}

}  // namespace

void bind_ring(nb::module_& m) {
  m.def("ring_share", &share, "tokens"_a, "rank"_a, "size"_a,
        "((begin, end), (begin, end)): the early and the late tokens that a process has.");
  m.def(
      "attend_ring", &ring_forward, "world"_a, "tokens"_a, "q"_a, "k"_a, "v"_a,
      "mask"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0,
      "seed"_a = 0, "threads"_a = nb::none(),
      R"(attend over the tokens of all processes, each of which passes its own rows -> (context, lse, None, None)

world: has rank, size and transfers(), which makes an object with send(to, tag, memory),
receive(from, tag, memory) and wait(); memory is a memoryview of bytes.
tokens: of the whole sequence. q, k, v: [batch, heads, mine, head_dim], the rows of ring_share.
In the mask keep, drop and bias have this process's rows and all keys; the rest is the whole's.
cephalo.torch.ring does this over a torch.distributed group.)");
  m.def("attend_ring_backward", &ring_backward, "world"_a, "tokens"_a, "q"_a, "k"_a, "v"_a,
        "context"_a, "lse"_a, "dcontext"_a, "dlse"_a = nb::none(), "mask"_a = nb::none(),
        "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0,
        "with_dbias"_a = false, "threads"_a = nb::none(),
        "The gradients of this process's rows: (dq, dk, dv, dbias), as attend_backward returns "
        "them.");
}

}  // namespace cephalo::python
