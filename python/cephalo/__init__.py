"""Multi-head attention that you can use, train and look into.

Arrays are NumPy's, PyTorch's or anything with DLPack or the buffer protocol; they are read where they
lie, and results are of the caller's kind. cephalo itself needs none of them.
"""

from ._cephalo import (
    Array,
    CausalAttention,
    CausalSelfAttention,
    EasyMultiHeadAttention,
    FastMultiHeadAttention,
    Gradients,
    GradcheckReport,
    HeadWrapper,
    KVCache,
    Mask,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    Plan,
    Rotary,
    SavedPass,
    SelfAttention,
    TorchGenerator,
    Verdict,
    __version__,
    alibi,
    alibi_slopes,
    attend,
    attend_backward,
    bias,
    causal,
    check,
    documents,
    drop,
    gradcheck,
    isa,
    keep,
    lengths,
    load,
    plan,
    pooled_weights,
    positions,
    row_sums,
    simple_attention,
    threads,
    trace_simple_attention,
    unlimited,
    weights,
    window,
)
from ._exercise import Exercise, exercise
from ._from_torch import from_torch, to_torch_state_dict
from ._look import Look, look
from ._results import (
    ROW_SUMS,
    AttendGradients,
    AttendResult,
    LayerGradients,
    PooledWeights,
    SimpleAttention,
)
from ._trace import Step, Trace

MultiHeadAttention.look = look  # and so every rung's

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
