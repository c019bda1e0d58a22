"""PyTorch's attention function and the book's layer, computed by cephalo and trainable.

    from cephalo.torch import MultiHeadAttention            # instead of your own class
    from cephalo.torch import scaled_dot_product_attention  # instead of F's

Tensors must be on the CPU; they are read in place. torch.compile, torch.export, torch.func and checkpointing
work as they do with PyTorch's own function.
"""

from .module import MultiHeadAttention
from .sdpa import scaled_dot_product_attention

__all__ = ["MultiHeadAttention", "scaled_dot_product_attention"]
