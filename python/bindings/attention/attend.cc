#include "bindings/attention/attend.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/bindings.h"
#include "cephalo/core/allocator.h"
#include "cephalo/core/format.h"
#include "cephalo/core/views.h"

namespace cephalo::python {
namespace {

// The keys and values of one call: arrays, or a cache that holds them.
class KeysAndValues {
 public:
  KeysAndValues(const AnyArray& k, const std::optional<AnyArray>& v) {
    if (nb::isinstance<Cache>(k)) {
      if (v) throw nb::type_error("attend: k is a KVCache, which has its own values; omit v");
      cache_ = nb::cast<Cache*>(k);
      return;
    }
    if (!v) throw nb::type_error("attend: v is missing");
    k_ = ArrayIn::argument(k, "attend", "k");
    v_ = ArrayIn::argument(*v, "attend", "v");
  }

  // v's, unless a cache holds it
  const TensorView* values() const { return cache_ == nullptr ? &v_.view() : nullptr; }

  AttendResult attend(const TensorView& q, const Mask& mask, const AttendOptions& options) const {
    if (cache_ == nullptr) return cephalo::attend(q, k_, v_, mask, options);
    const CacheReading reading(cache_);
    return cephalo::attend(q, cache_->stored, mask, options);
  }

  void attend_into(const AttendOutput& output, const TensorView& q, const Mask& mask,
                   const AttendOptions& options) const {
    if (cache_ == nullptr) return cephalo::attend_into(output, q, k_, v_, mask, options);
    const CacheReading reading(cache_);
    cephalo::attend_into(output, q, cache_->stored, mask, options);
  }

 private:
  Cache* cache_ = nullptr;
  ArrayIn k_, v_;
};

// The shape of lse for q: q's without head_dim.
Shape lse_shape(const TensorView& q) {
  Shape shape;
  for (int axis = 0; axis + 1 < q.rank(); ++axis) shape.push_back(q.dim(axis));
  return shape;
}

AttendResult compute(const TensorView& q, const KeysAndValues& kv, const Mask& mask,
                     const AttendOptions& options) {
  const WithoutGil released;
  return kv.attend(q, mask, options);
}

bool wants_matrix(const AttendOptions& options) {
  return options.return_weights || options.return_scores != ScoresTap::none;
}

// Into the caller's memory; with weights or scores, which are as large as a matrix, by a copy.
AttendResult compute_into(const MutableTensorView& out, const TensorView& q,
                          const KeysAndValues& kv, const Mask& mask, const AttendOptions& options) {
  const WithoutGil released;
  if (wants_matrix(options)) {
    AttendResult result = kv.attend(q, mask, options);
    out.copy_from(result.context);
    return result;
  }
  AttendResult result;
  if (options.return_lse) {
    const DType wide = compute_type(q.dtype());
    const UseStream use(options.stream);
    result.lse = Tensor::empty(lse_shape(q), wide, q.device());
    kv.attend_into({out, result.lse.mutable_view()}, q, mask, options);
  } else {
    kv.attend_into({out}, q, mask, options);
  }
  return result;
}

nb::object as_python(AttendResult&& result, const AttendOptions& options, Kind kind,
                     const std::optional<AnyArray>& out) {
  nb::object context = out ? nb::object(*out) : to_python(std::move(result.context), kind);
  const bool scores = options.return_scores != ScoresTap::none;
  if (!options.return_lse && !options.return_weights && !scores) return context;
  return ResultType("AttendResult")(
      std::move(context), to_python_or_none(std::move(result.lse), kind, options.return_lse),
      to_python_or_none(std::move(result.weights), kind, options.return_weights),
      to_python_or_none(std::move(result.scores), kind, scores));
}

// On a GPU, into the caller's memory or some that fits its library; lse: none unless wanted.
nb::object attend_on_gpu(const ArrayIn& q, const KeysAndValues& kv, const Mask& mask,
                         const AttendOptions& options, const WorkStream& stream,
                         const std::optional<AnyArray>& out) {
  const UseStream use(options.stream);
  const Shape rows = lse_shape(q);
  std::optional<ArrayOut> given;
  std::optional<ResultMemory> context, lse;
  if (out) {
    given.emplace(*out, "attend", "out", Taken{.on_gpu = true});
  } else {
    Shape shape = rows;
    shape.push_back(kv.values()->dim(-1));
    context.emplace(q, shape, q.view().dtype());
  }
  if (options.return_lse) lse.emplace(q, rows, compute_type(q.view().dtype()));
  {
    const WithoutGil released;
    kv.attend_into({out ? given->view() : context->view(), lse ? lse->view() : MutableTensorView()},
                   q, mask, options);
    stream.finish();
  }
  nb::object result = out ? nb::object(*out) : nb::object(std::move(*context).to_python());
  if (!lse) return result;
  return ResultType("AttendResult")(std::move(result), std::move(*lse).to_python(), nb::none(),
                                    nb::none());
}

// Is it a call whose results' sizes are known ahead, on a GPU?
bool fits_gpu_call(const TensorView& q, const KeysAndValues& kv, const AttendOptions& options) {
  return !q.device().is_host() && q.rank() >= 2 && kv.values() != nullptr &&
         kv.values()->rank() == q.rank() && !wants_matrix(options);
}

// [tokens, heads, dim] as [heads, tokens, dim]
TensorView heads_first(const TensorView& t) {
  return permute(t, {1, 0, 2});
}

// Sequences packed one after another on a GPU: q [q_total, num_heads, head_dim], k and v likewise;
// ends: int32 or int64 [sequences + 1] there -> context [q_total, num_heads, v_dim]. One call,
// since views and masks made in Python take longer than all the rest.
AnyArray attend_packed(const AnyArray& q, const AnyArray& k, const AnyArray& v,
                       const AnyArray& mask, const AnyArray& q_ends, const AnyArray& kv_ends,
                       std::optional<double> scale, std::optional<double> softcap) {
  AttendOptions options = attend_options(scale, softcap, 0.0, 0, std::nullopt);
  const ArrayIn queries = ArrayIn::argument(q, "attend", "q");
  const ArrayIn keys = ArrayIn::argument(k, "attend", "k");
  const ArrayIn values = ArrayIn::argument(v, "attend", "v");
  const ArrayIn q_ends_in = ArrayIn::argument(q_ends, "attend", "cu_seqlens");
  const ArrayIn kv_ends_in = ArrayIn::argument(kv_ends, "attend", "cu_seqlens_k");
  for (const ArrayIn* each : {&queries, &keys, &values}) {
    if (each->view().rank() != 3) throw nb::value_error("attend: packed tensors have rank 3");
  }
  const WorkStream stream(queries);
  options.stream = stream.stream();
  const UseStream use(options.stream);
  const TensorView& of_q = queries.view();
  ResultMemory context(queries, {of_q.dim(0), of_q.dim(1), values.view().dim(2)}, of_q.dtype());
  const MutableTensorView& out = context.view();
  const MutableTensorView out_by_heads(
      out.mutable_data(), out.dtype(), {out.dim(1), out.dim(0), out.dim(2)},
      {out.strides()[1], out.strides()[0], out.strides()[2]}, out.device());
  const Mask parts = mask_of(mask, "attend") & packed_sequences(q_ends_in, kv_ends_in);
  {
    const WithoutGil released;
    attend_into({out_by_heads}, heads_first(queries), heads_first(keys), heads_first(values), parts,
                options);
    stream.finish();
  }
  return std::move(context).to_python();
}

AnyArray attend_python(const AnyArray& q, const AnyArray& k, const std::optional<AnyArray>& v,
                       const AnyArray& mask, std::optional<double> scale,
                       std::optional<double> softcap, double dropout, std::uint64_t seed,
                       bool return_lse, bool return_weights,
                       const std::optional<std::string>& return_scores, const std::string& engine,
                       const std::optional<std::string>& require, std::optional<int> threads,
                       const std::optional<AnyArray>& out, const std::string& arithmetic,
                       const std::optional<AnyArray>& device_seed) {
  AttendOptions options = attend_options(scale, softcap, dropout, seed, threads);
  options.return_lse = return_lse;
  options.return_weights = return_weights;
  options.return_scores = tap_of(return_scores);
  options.engine = engine_of(engine, "attend");
  options.require = required_engine(require, "attend");
  options.arithmetic = arithmetic_of(arithmetic, "attend");
  const ArrayIn queries = ArrayIn::argument(q, "attend", "q");
  const KeysAndValues kv(k, v);
  const DeviceSeed seed_there(device_seed, "attend");
  options.device_seed = seed_there.address();
  const WorkStream stream(queries);
  options.stream = stream.stream();
  const Mask& parts = mask_of(mask, "attend");
  if (fits_gpu_call(queries, kv, options)) {
    return nb::borrow<AnyArray>(attend_on_gpu(queries, kv, parts, options, stream, out));
  }
  if (!out) {
    AttendResult result = compute(queries, kv, parts, options);
    return nb::borrow<AnyArray>(as_python(std::move(result), options, queries.kind(), out));
  }
  const ArrayOut memory(*out, "attend", "out", {.on_gpu = true});
  AttendResult result = compute_into(memory.view(), queries, kv, parts, options);
  {
    const WithoutGil released;
    stream.finish();
  }
  return nb::borrow<AnyArray>(as_python(std::move(result), options, queries.kind(), out));
}

}  // namespace

DeviceSeed::DeviceSeed(const std::optional<AnyArray>& seed, const char* function) {
  if (!seed) return;
  array_ = ArrayIn::argument(*seed, function, "device_seed");
  const TensorView& t = array_.view();
  if (t.dtype() == DType::i64 && t.numel() == 1 && !t.device().is_host()) return;
  throw nb::value_error(format_text("{}: device_seed is {} {} on {}; one int64 number on a GPU is "
                                    "needed, or seed",
                                    function, name(t.dtype()), to_tuple_string(t.shape()),
                                    to_string(t.device()))
                            .c_str());
}

ResultType::ResultType(const char* name) {
  // Looked up once for the process, which keeps it: an import is a tenth of a small call.
  static const nb::handle results = nb::module_::import_("cephalo._results").release();
  type_ = results.attr(name);
}

// tuple.__new__(type_, fields), without looking for __new__.
nb::object ResultType::made_of(const nb::tuple& fields) const {
  static const auto create = reinterpret_cast<newfunc>(PyType_GetSlot(&PyTuple_Type, Py_tp_new));
  const nb::tuple arguments = nb::make_tuple(fields);
  PyObject* made = create(reinterpret_cast<PyTypeObject*>(type_.ptr()), arguments.ptr(), nullptr);
  if (made == nullptr) nb::raise_python_error();
  return nb::steal(made);
}

void bind_attend(nb::module_& m) {
  m.def("_attend_packed", &attend_packed, "q"_a, "k"_a, "v"_a, "mask"_a.none(), "q_ends"_a,
        "kv_ends"_a, "scale"_a, "softcap"_a,
        "Of cephalo.torch: packed sequences on a GPU, without derivatives.");
  m.def("attend", &attend_python, "q"_a, "k"_a, "v"_a = nb::none(), "mask"_a = nb::none(),
        "scale"_a = nb::none(), "softcap"_a = nb::none(), "dropout"_a = 0.0, "seed"_a = 0,
        "return_lse"_a = false, "return_weights"_a = false, "return_scores"_a = nb::none(),
        "engine"_a = "auto", "require"_a = nb::none(), "threads"_a = nb::none(), nb::kw_only(),
        "out"_a = nb::none(), "arithmetic"_a = "exact", "device_seed"_a = nb::none(),
        R"(softmax(scale * q k^T) v, with whatever the arguments ask for in between.

q: [batch, num_heads, q_tokens, head_dim]
k: [batch, num_kv_heads, kv_tokens, head_dim], or a KVCache (then without v)
v: [batch, num_kv_heads, kv_tokens, v_dim]
or all of rank 3 (no batch) or 2 (one head); any strides; nothing is copied. Arrays of PyTorch, CuPy and JAX
may be on a GPU, in builds with CUDA: the call is then queued on their current stream; of JAX's it is waited for.

Returns context [batch, num_heads, q_tokens, v_dim], an array of q's kind; if you ask for more, the named
tuple (context, lse, weights, scores), with None for what you did not ask for. return_scores: "scaled",
"softcapped" or "masked". engine: "auto", "reference" or "fused", on a GPU "cuda" or "cuda_simple"; require:
an error unless that one runs. out: your own array for context. arithmetic: of float32 on a GPU, "exact" or
"bf16x3", about twice as fast with an error near 1e-5. device_seed: on a GPU, an int64 array of one number there,
instead of seed; read when kernels run, so that a captured graph may drop other weights each time.)");
}

}  // namespace cephalo::python
