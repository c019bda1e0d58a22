"""What is compared: each row makes its arrays once and gives one function per library."""

import dataclasses
import typing

import numpy as np
import torch

import layers
import native

CEPHALO = "cephalo"


@dataclasses.dataclass
class Sizes:
    batch: int
    heads: int
    q_tokens: int
    kv_tokens: int
    head_dim: int


def fewer(tokens):
    """For a quick look at the machinery, not at speed."""
    return tokens if tokens == 1 else max(32, tokens // 16)


# A mask is two lists: cephalo's parts, and the arguments that make SDPA compute the same.

def nothing(sizes, rng):
    return [], {}


def causal(sizes, rng):
    return [("causal", 0)], {"is_causal": True}


def window(sizes, rng):
    behind = distances(sizes)
    return [("window", 255, 0)], with_mask((behind >= 0) & (behind <= 255))


def keep_triangle(sizes, rng):
    return kept(distances(sizes) >= 0)


def keep_half(sizes, rng):
    visible = rng.random((sizes.q_tokens, sizes.kv_tokens)) < 0.5
    return kept(visible | (distances(sizes) == 0))  # no query sees nothing


def bias_triangle(sizes, rng):
    return biased(np.where(distances(sizes) >= 0, 0, -np.inf))


def bias_per_head(sizes, rng):
    shape = (sizes.batch, sizes.heads, sizes.q_tokens, sizes.kv_tokens)
    return biased(rng.standard_normal(shape, dtype=np.float32))


def causal_alibi(sizes, rng):
    slopes = alibi_slopes(sizes.heads)
    behind = distances(sizes)
    added = np.where(behind >= 0, -slopes[:, None, None] * np.abs(behind), -np.inf)
    return ([("causal", 0), ("alibi", slopes)], with_mask(added[None].astype(np.float32)))


def lengths(sizes, rng):
    """Sequences of different length in one batch: full, three quarters, a half, a quarter."""
    kv = np.array([sizes.kv_tokens * (4 - b % 4) // 4 for b in range(sizes.batch)], np.int64)
    visible = np.arange(sizes.kv_tokens) < kv[:, None, None, None]
    return [("lengths", kv)], with_mask(visible)


def documents(sizes, rng):
    """Eight documents packed one behind the other."""
    ids = np.arange(sizes.kv_tokens, dtype=np.int64) * 8 // sizes.kv_tokens
    return [("documents", ids)], with_mask(ids[:, None] == ids[None, :])


def distances(sizes):
    """[q_tokens, kv_tokens]: how far a key lies behind its query."""
    last = sizes.kv_tokens - sizes.q_tokens
    return last + np.arange(sizes.q_tokens)[:, None] - np.arange(sizes.kv_tokens)[None, :]


def alibi_slopes(heads):
    """Of the paper: powers of two first, the rest from every second slope of the next power."""
    power = 2 ** int(np.log2(heads))
    first = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    rest = [2.0 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return np.array(first + rest, np.float32)


def with_mask(array):
    return {"attn_mask": torch.from_numpy(np.ascontiguousarray(array))}


def kept(visible):
    return [("keep", visible)], with_mask(visible)  # both read this one array


def biased(added):
    added = added.astype(np.float32)
    return [("bias", added)], with_mask(added)


# What differences are divided by, for each of a row's results.

def as_it_is(results):
    """Contexts are averages of values."""
    return [1.0] * len(results)


def at_least_one(results):
    return [max(1.0, float(np.abs(result).max())) for result in results]


def by_largest(results):
    """Gradients of parameters are sums over all tokens."""
    return [float(np.abs(result).max()) for result in results]


@dataclasses.dataclass
class AttentionRow:
    sizes: Sizes
    mask_name: str
    make_mask: typing.Callable
    onnx: bool = False
    most_rounds: int = 1000
    torch_mode = torch.inference_mode
    scales = staticmethod(as_it_is)

    @property
    def name(self):
        s = self.sizes
        if s.q_tokens == s.kv_tokens:
            return f"({s.batch},{s.heads},{s.q_tokens},{s.head_dim}) {self.mask_name}"
        return (f"decode ({s.batch},{s.heads},{s.head_dim}), {s.q_tokens} query, "
                f"{s.kv_tokens} keys")

    def shrunk(self):
        sizes = dataclasses.replace(self.sizes, q_tokens=fewer(self.sizes.q_tokens),
                                    kv_tokens=fewer(self.sizes.kv_tokens))
        return dataclasses.replace(self, sizes=sizes)

    def arrays(self, rng):
        s = self.sizes
        q = rng.standard_normal((s.batch, s.heads, s.q_tokens, s.head_dim), dtype=np.float32)
        k, v = (rng.standard_normal((s.batch, s.heads, s.kv_tokens, s.head_dim), dtype=np.float32)
                for _ in range(2))
        return q, k, v

    def calls(self, library, threads):
        rng = np.random.default_rng(1)
        q, k, v = self.arrays(rng)
        parts, arguments = self.make_mask(self.sizes, rng)
        mask = native.Mask(library, parts) if parts else None
        calls = {CEPHALO: library.attend(q, k, v, mask, threads),
                 "PyTorch SDPA": layers.sdpa(q, k, v, **arguments)}
        if self.onnx:
            calls["onnxruntime"] = layers.onnx_attention(q, k, v, bool(parts), threads)
        return calls


class BackwardRow(AttentionRow):
    """Gradients of q, k and v after a forward pass that is not timed."""
    torch_mode = torch.enable_grad
    scales = staticmethod(at_least_one)

    @property
    def name(self):
        return f"backward {super().name}"

    def calls(self, library, threads):
        rng = np.random.default_rng(1)
        q, k, v = self.arrays(rng)
        dcontext = rng.standard_normal(q.shape, dtype=np.float32)
        parts, arguments = self.make_mask(self.sizes, rng)
        mask = native.Mask(library, parts) if parts else None
        return {CEPHALO: library.attend_backward(q, k, v, dcontext, mask, threads),
                "PyTorch SDPA": layers.sdpa_backward(q, k, v, dcontext, **arguments)}


@dataclasses.dataclass
class LayerRow:
    batch: int
    tokens: int
    width: int
    heads: int
    most_rounds: int = 1000
    torch_mode = torch.inference_mode
    scales = staticmethod(as_it_is)

    @property
    def name(self):
        return f"layer ({self.batch},{self.tokens},{self.width}), {self.heads} heads, causal"

    def shrunk(self):
        return dataclasses.replace(self, tokens=fewer(self.tokens))

    def calls(self, library, threads):
        rng = np.random.default_rng(2)
        width, heads = self.width, self.heads
        x = rng.standard_normal((self.batch, self.tokens, width), dtype=np.float32)
        parameters = layers.make_parameters(width, rng)
        book = layers.BookLayer(width, self.tokens, heads)
        return {
            CEPHALO: native.Layer(library, width, heads, parameters).forward(x, threads),
            "PyTorch, the book's class": layers.torch_layer(book, parameters, x),
            "PyTorch, the same on SDPA":
                layers.torch_layer(layers.SdpaLayer(width, heads), parameters, x),
            "PyTorch nn.MultiheadAttention": layers.torch_multihead(parameters, x, heads),
            "onnxruntime": layers.onnx_layer(parameters, x, heads, threads),
        }


class LayerBackwardRow(LayerRow):
    """Forward and back: gradients of x and of every parameter."""
    torch_mode = torch.enable_grad
    scales = staticmethod(by_largest)

    @property
    def name(self):
        return f"layer + backward ({self.batch},{self.tokens},{self.width}), {self.heads} heads"

    def calls(self, library, threads):
        rng = np.random.default_rng(2)
        width, heads = self.width, self.heads
        x, dy = (rng.standard_normal((self.batch, self.tokens, width), dtype=np.float32)
                 for _ in range(2))
        parameters = layers.make_parameters(width, rng)
        layer = native.Layer(library, width, heads, parameters)
        book = layers.BookLayer(width, self.tokens, heads)
        return {
            CEPHALO: layer.forward_backward(x, dy, threads),
            "PyTorch, the book's class": layers.torch_layer_backward(book, parameters, x, dy),
            "PyTorch, the same on SDPA":
                layers.torch_layer_backward(layers.SdpaLayer(width, heads), parameters, x, dy),
        }


def square(batch, heads, tokens, head_dim):
    return Sizes(batch, heads, tokens, tokens, head_dim)


GPT2 = square(4, 12, 1024, 64)

ROWS = [
    AttentionRow(GPT2, "causal", causal, onnx=True),
    AttentionRow(GPT2, "full", nothing, onnx=True),
    AttentionRow(square(1, 12, 4096, 64), "causal", causal, onnx=True),
    AttentionRow(square(1, 16, 8192, 64), "causal", causal, onnx=True),
    AttentionRow(square(1, 32, 2048, 128), "causal", causal, onnx=True),
    # SDPA visits every pair there: seconds a call.
    AttentionRow(square(1, 12, 16384, 64), "window(255,0)", window, most_rounds=3),
    AttentionRow(GPT2, "keep [q,k], the triangle", keep_triangle),
    AttentionRow(GPT2, "bias [q,k], the triangle", bias_triangle),
    AttentionRow(GPT2, "causal & alibi", causal_alibi),
    AttentionRow(GPT2, "lengths", lengths),
    AttentionRow(GPT2, "documents (8)", documents),
    AttentionRow(GPT2, "bias [batch,heads,q,k]", bias_per_head),
    AttentionRow(GPT2, "keep [q,k], a random half", keep_half),
    AttentionRow(Sizes(1, 12, 1, 4096, 64), "", nothing, onnx=True),
    AttentionRow(Sizes(16, 12, 1, 4096, 64), "", nothing, onnx=True),
    LayerRow(4, 1024, 768, 12),
    BackwardRow(GPT2, "causal", causal),
    BackwardRow(GPT2, "full", nothing),
    BackwardRow(square(1, 12, 4096, 64), "causal", causal),
    LayerBackwardRow(4, 1024, 768, 12),
]


def selected(words):
    """Rows whose name holds one of the words; all without words."""
    found = [row for row in ROWS if not words or any(word in row.name for word in words)]
    if not found:
        raise SystemExit(f"no row holds {' or '.join(words)}; there are:\n  " +
                         "\n  ".join(row.name for row in ROWS))
    return found
