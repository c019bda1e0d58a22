"""PyTorch's attention function and the book's layer, computed by cephalo and trainable; and attend, with what
PyTorch's function lacks.

    from cephalo.torch import MultiHeadAttention            # instead of your own class
    from cephalo.torch import scaled_dot_product_attention  # instead of F's
    from cephalo.torch import attend, causal, window        # attend(q, k, v, causal() & window(127, 0))
    from cephalo.torch import register_hf                   # attn_implementation="cephalo" for transformers

Tensors are read in place, on the CPU or, in builds with CUDA, on a GPU: the layer, weights and second derivatives are
the CPU's alone. torch.compile, torch.export, torch.func and checkpointing work as they do with PyTorch's own function.
"""

from .. import alibi_slopes, unlimited
from ._masks import Mask, alibi, bias, causal, documents, drop, keep, lengths, positions, window
from ._weights import pooled_weights, row_sums, weights
from .attend import attend
from .hf import register_hf
from .module import MultiHeadAttention
from .sdpa import scaled_dot_product_attention

__all__ = ["Mask", "MultiHeadAttention", "alibi", "alibi_slopes", "attend", "bias", "causal", "documents", "drop",
           "keep", "lengths", "pooled_weights", "positions", "register_hf", "row_sums",
           "scaled_dot_product_attention", "unlimited", "weights", "window"]
