#include "cephalo/core/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/kv_cache.h"
#include "cephalo/core/matmul.h"
#include "cephalo/core/ops.h"
#include "cephalo/core/print.h"
#include "cephalo/core/views.h"
#include "cephalo/io/npy.h"
#include "cephalo/io/safetensors.h"
#include "cephalo/mask/bound_mask.h"
#include "cephalo/mask/mask.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::FakeDevice;

constexpr Device kOne{DeviceKind::cuda, 1};

TEST(DeviceTest, names_are_read_as_they_are_written) {
  for (const char* text : {"host", "cuda:0", "cuda:1", "cuda:255"}) {
    EXPECT_EQ(to_string(parse_device(text)), text);
  }
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceKind::cuda, 0}));
  for (const char* text :
       {"", "gpu", "cuda:", "cuda:256", "cuda:-1", "cuda:1 ", "host:0", "Host"}) {
    EXPECT_NE(error_of([&] {
                parse_device(text);
              }).find("is not a device; host, cuda or cuda:N with N in [0, 255] is"),
              std::string::npos)
        << text;
  }
}

// Numbers that no machine has: where there is a GPU, cuda:0 is found.
TEST(DeviceTest, a_device_that_is_not_there_is_refused_by_name) {
  constexpr Device kFar{DeviceKind::cuda, 254}, kFarther{DeviceKind::cuda, 255};
  EXPECT_EQ(error_of([&] { Tensor::empty({2}, DType::f32, kFar); }),
            "tensor: there is no device cuda:254 here");
  {
    const FakeDevice fake(kFar);
    EXPECT_EQ(fake.empty({2}).device(), kFar);
    EXPECT_EQ(error_of([&] { Tensor::empty({2}, DType::f32, kFarther); }),
              "tensor: there is no device cuda:255 here");
    EXPECT_EQ(error_of([&] { const FakeDevice again(kFar); }), "device: cuda:254 is there already");
  }
  EXPECT_EQ(error_of([&] { Tensor::empty({2}, DType::f32, kFar); }),
            "tensor: there is no device cuda:254 here");
}

// A device whose memory the host reaches by copies alone, or so it says.
class CopyDevice final : public Allocator {
 public:
  void* allocate(std::size_t bytes) const override { return ::operator new(bytes); }
  void release(void* memory) const noexcept override { ::operator delete(memory); }
  void copy_in(void* to, const void* host, std::size_t bytes) const override {
    std::memcpy(to, host, bytes);
  }
  void copy_out(void* host, const void* from, std::size_t bytes) const override {
    std::memcpy(host, from, bytes);
  }
};

TEST(DeviceTest, tensors_are_copied_to_a_device_and_back) {
  const CopyDevice memory;
  const ScopedAllocator registered(kOne, memory);
  const Tensor here = Tensor::of({{1, 2}, {3, 4}});
  const Tensor there = Tensor::copy(transpose(here, 0, 1), kOne);
  EXPECT_EQ(there.device(), kOne);
  const Tensor back = Tensor::copy(there, Device{});
  EXPECT_EQ(back.at({0, 1}), 3.0);
  EXPECT_EQ(back.at({1, 0}), 2.0);
  EXPECT_EQ(error_of([&] { Tensor::copy(transpose(there, 0, 1), Device{}); }),
            "copy: a tensor [2, 2] on cuda:1 with strides [1, 2] is not dense");
  EXPECT_EQ(error_of([&] {
              Tensor::copy(there, Device{DeviceKind::cuda, 2});
            }),
            "copy: from cuda:1 to cuda:2; one of them must be the host");
}

TEST(DeviceTest, memory_without_copies_is_not_reached) {
  const FakeDevice fake;
  EXPECT_EQ(error_of([&] {
              Tensor::copy(Tensor::of({1, 2}), fake.device());
            }),
            "copy: this device's memory cannot be reached from the host");
}

TEST(DeviceTest, memory_of_a_device_goes_back_to_it) {
  const FakeDevice fake;
  {
    Tensor a = fake.empty({3, 4});
    EXPECT_EQ(fake.tensors(), 1U);
    Tensor b = std::move(a);
    EXPECT_EQ(b.device(), kOne);
    EXPECT_EQ(a.device(), Device{});  // NOLINT: looking at it is the point
    b = fake.empty({5});
    EXPECT_EQ(fake.tensors(), 1U);
    const Tensor c = std::move(b).reshaped({5, 1});
    EXPECT_EQ(c.device(), kOne);
    b = Tensor::of({1, 2});
    EXPECT_EQ(b.at({1}), 2.0);
  }
  EXPECT_EQ(fake.tensors(), 0U);
}

TEST(DeviceTest, views_keep_the_device) {
  const FakeDevice fake;
  Tensor t = fake.empty({4, 6});
  EXPECT_EQ(t.mutable_view().device(), kOne);
  EXPECT_EQ(t.slice(0, 1, 3).device(), kOne);
  EXPECT_EQ(t[2].device(), kOne);
  EXPECT_EQ(t.mutable_view().slice(1, 0, 2).device(), kOne);
  EXPECT_EQ(t.mutable_view()[1].device(), kOne);
  EXPECT_EQ(view(t, {2, 12}).device(), kOne);
  EXPECT_EQ(transpose(t, 0, 1).device(), kOne);
  EXPECT_EQ(permute(t, {1, 0}).device(), kOne);
  EXPECT_EQ(chunk(t, 2, 0)[1].device(), kOne);
  EXPECT_EQ(broadcast_to(t, {3, 4, 6}).device(), kOne);
  const MaybeCopied reshaped = reshape(t, {24});
  EXPECT_EQ(reshaped.view().device(), kOne);
}

TEST(DeviceTest, the_host_reaches_no_element_of_a_device) {
  const FakeDevice fake;
  Tensor there = fake.empty({2, 3});
  Tensor here = Tensor::zeros({2, 3});
  const std::string elements = "elements lie on cuda:1, not on the host";
  EXPECT_EQ(error_of([&] { there.data_as<float>(); }), "tensor: " + elements);
  EXPECT_EQ(error_of([&] { there.mutable_data_as<float>(); }), "tensor: " + elements);
  EXPECT_EQ(error_of([&] { there.at({0, 0}); }), "at: " + elements);
  EXPECT_EQ(error_of([&] { there.set({0, 0}, 1.0); }), "set: " + elements);
  EXPECT_EQ(error_of([&] { there.mutable_view().fill(1.0); }), "fill: " + elements);
  const std::string alone = "; the host copies only its own memory";
  EXPECT_EQ(error_of([&] { here.mutable_view().copy_from(there); }),
            "copy: from cuda:1 to host" + alone);
  EXPECT_EQ(error_of([&] { there.mutable_view().copy_from(here); }),
            "copy: from host to cuda:1" + alone);
  EXPECT_EQ(error_of([&] { Tensor::copy(there); }), "copy: from cuda:1 to host" + alone);
  EXPECT_EQ(error_of([&] { contiguous(transpose(there, 0, 1)); }),
            "copy: from cuda:1 to host" + alone);
  EXPECT_NE(error_of([&] { to_string(there); }).find("lie on cuda:1"), std::string::npos);
  EXPECT_NE(there.data(), nullptr);
}

TEST(DeviceTest, what_only_the_host_computes_refuses_by_name) {
  const FakeDevice fake;
  const Tensor there = fake.empty({4, 4});
  const Tensor here = Tensor::zeros({4, 4});
  EXPECT_EQ(error_of([&] { matmul(here, there); }), "matmul: b lies on cuda:1, not on the host");
  EXPECT_EQ(error_of([&] { linear(there, here); }), "linear: x lies on cuda:1, not on the host");
  EXPECT_NE(error_of([&] { softmax(there); }).find("cuda:1"), std::string::npos);
  EXPECT_EQ(error_of([&] { attend(here, there, here); }), "attend: q lies on host, k on cuda:1");
  EXPECT_EQ(error_of([&] { attend(there, there, there); }),
            "attend: q lies on cuda:1, not on the host");
  KVCache cache = KVCache::growing({1, 1, 4, 4});
  EXPECT_EQ(error_of([&] {
              cache.append(view(there, {1, 1, 4, 4}), view(here, {1, 1, 4, 4}));
            }),
            "KVCache: k lies on cuda:1, not on the host");
  EXPECT_EQ(cache.tokens(), 0);
  EXPECT_EQ(error_of([&] { write_npy("there.npy", there); }),
            "there.npy: the tensor lies on cuda:1, not on the host");
  EXPECT_EQ(error_of([&] {
              write_safetensors("there.safetensors", {{"t", there}}, {});
            }),
            "there.safetensors: t lies on cuda:1, not on the host");
}

TEST(DeviceTest, numbers_of_a_mask_come_from_tensors_of_the_host_too) {
  const Tensor two = Tensor::of({3, 1}, DType::i32);
  EXPECT_EQ(causal(two).to_string(), causal({3, 1}).to_string());
  EXPECT_EQ(lengths(two).to_string(), lengths({3, 1}).to_string());
  EXPECT_EQ(lengths(two, two).to_string(), lengths({3, 1}, {3, 1}).to_string());
  EXPECT_EQ(alibi(Tensor::of({0.5, 0.25})).to_string(), alibi({0.5F, 0.25F}).to_string());
  EXPECT_EQ(error_of([] { lengths(Tensor::of({0.5})); }),
            "lengths(kv): numbers are float32, int32 or int64 is needed");
  EXPECT_EQ(error_of([] { causal(Tensor::of({{1}}, DType::i64)); }),
            "causal(prefix): [1, 1] must be [batch] or [1]");
  EXPECT_EQ(error_of([] { alibi(Tensor::of({1}, DType::i64)); }),
            "alibi: slopes are int64, float32 is needed");
}

TEST(DeviceTest, parts_of_a_mask_may_lie_on_a_device_and_no_problem_of_the_host_takes_them) {
  const FakeDevice fake;
  const Tensor numbers = fake.empty({2}, DType::i32);
  const Tensor ids = fake.empty({2, 4}, DType::i64);
  const Tensor slopes = fake.empty({3});
  const Tensor pairs = fake.empty({4, 4}, DType::boolean);
  const Mask parts[] = {causal(numbers), lengths(numbers), lengths(numbers, numbers),
                        documents(ids),  alibi(slopes),    keep(pairs)};
  for (const Mask& mask : parts) {
    EXPECT_FALSE(mask.empty());
    EXPECT_FALSE(mask.is_only_causal());
    EXPECT_NE((mask & window(3, 3)).to_string().find(mask.to_string()), std::string::npos);
    const std::string error = error_of([&] { BoundMask(mask, {2, 3, 4, 4}, "attend"); });
    EXPECT_NE(error.find("of the mask lies on cuda:1, the problem on host"), std::string::npos)
        << mask.to_string() << ": " << error;
  }
  EXPECT_EQ(lengths(numbers).to_string(), "lengths(kv): [2] on cuda:1");
  EXPECT_TRUE(alibi(slopes).has_bias());
  EXPECT_FALSE(lengths(numbers).has_bias());
  EXPECT_EQ(error_of([&] { lengths(numbers) & lengths(numbers); }),
            "mask: two lengths(kv) on a device in one mask; join them into one");
  EXPECT_EQ(error_of([&] {
              lengths({4, 4}) & lengths(numbers);
            }),
            "mask: lengths(kv) on the host and on cuda:1 in one mask; join them into one");
  EXPECT_EQ((alibi(slopes) & alibi(slopes)).device_parts.size(), 2U);
  EXPECT_EQ(error_of([&] {
              documents(ids, Tensor::zeros({2, 4}, DType::i64));
            }),
            "documents: q_ids lies on cuda:1, kv_ids on host");
}

TEST(DeviceTest, parts_on_the_problems_device_must_fit_its_sizes) {
  const FakeDevice fake;
  const Tensor numbers = fake.empty({2}, DType::i32), ids = fake.empty({2, 4}, DType::i64);
  const Tensor slopes = fake.empty({3});
  const Mask fitting = causal(numbers) & lengths(numbers, numbers) & alibi(slopes) &
                       documents_in_order(ids, ids) & window(1, 1);
  const BoundMask bound(fitting, {2, 3, 4, 4}, "attend", {}, ids.device());
  EXPECT_EQ(bound.device_parts().size(), 6U);
  EXPECT_TRUE(bound.device_parts().back().in_order);
  EXPECT_TRUE(bound.is_from_the_end());
  const auto error = [&](const Mask& mask, const MaskExtent& extent) {
    return error_of([&] { BoundMask(mask, extent, "attend", {}, ids.device()); });
  };
  const Mask by_number = lengths(numbers), by_id = documents(ids), by_slope = alibi(slopes);
  EXPECT_EQ(error(by_number, {3, 3, 4, 4}), "attend: lengths(kv) has 2 entries, batch is 3");
  EXPECT_EQ(error(by_id, {2, 3, 4, 5}),
            "attend: documents ids [2, 4] must be [2 (batch), 5 (kv_tokens)]");
  EXPECT_EQ(error(by_slope, {2, 4, 4, 4}), "attend: alibi has 3 slopes, num_heads is 4");
}

TEST(DeviceTest, documents_in_order_are_documents_on_the_host) {
  const Tensor ids = Tensor::of({0, 0, 1, -1}, DType::i64);
  EXPECT_EQ(documents_in_order(ids, ids).draw(4, 4), documents(ids, ids).draw(4, 4));
}

TEST(DeviceTest, packed_sequences_have_their_ends_on_a_device) {
  const FakeDevice fake;
  const Tensor ends = fake.empty({3}, DType::i32), others = fake.empty({4}, DType::i64);
  const Mask mask = packed_sequences(ends, ends) & causal();
  const BoundMask bound(mask, {1, 3, 70, 70}, "attend", {}, ends.device());
  ASSERT_EQ(bound.device_parts().size(), 2U);
  EXPECT_TRUE(bound.device_parts().front().is_ends && bound.device_parts().front().in_order);
  EXPECT_EQ(error_of([&] {
              BoundMask(mask, {1, 3, 100, 70}, "attend", {}, ends.device());
            }),
            "attend: queries and keys are packed by the same ends, but q_tokens is 100 and "
            "kv_tokens is 70");
  const Tensor of_keys = fake.empty({3}, DType::i32);
  const Mask otherwise = packed_sequences(ends, of_keys);
  EXPECT_EQ(error_of([&] {
              BoundMask(otherwise, {1, 3, 100, 70}, "attend", {}, ends.device());
            }),
            "");
  EXPECT_EQ(error_of([&] { packed_sequences(ends, others); }),
            "packed_sequences: there are 3 ends of queries and 4 of keys");
  EXPECT_EQ(error_of([&] {
              packed_sequences(ends, fake.empty({1, 3}, DType::i32));
            }),
            "packed_sequences: ends [1, 3] must be [sequences + 1]");
  EXPECT_EQ(error_of([&] { packed_sequences(ends, fake.empty({3})); }),
            "packed_sequences: ends are float32, int32 or int64 is needed");
  const Tensor here = Tensor::of({0, 4}, DType::i32);
  EXPECT_EQ(error_of([&] { packed_sequences(here, here); }),
            "packed_sequences: ends are on the host; documents(ids) says there who sees whom");
}

}  // namespace
}  // namespace cephalo
