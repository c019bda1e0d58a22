"""Multi-head attention you can use, train and look inside.

Arrays can come from NumPy, PyTorch or anything else with DLPack or the buffer protocol. They are read in
place, and results are the same kind of array. cephalo itself needs none of these libraries.
"""

from ._cephalo import (
    AdamWState,
    Array,
    Bpe,
    BpeTrainer,
    CausalAttention,
    CausalSelfAttention,
    EasyMultiHeadAttention,
    Embedding,
    FastMultiHeadAttention,
    Gpt,
    GptCache,
    GptGradients,
    GradcheckReport,
    Gradients,
    HeadMetrics,
    HeadReport,
    HeadWrapper,
    KVCache,
    LayerNorm,
    LookProbe,
    LookReport,
    Mask,
    Mlp,
    ModelRun,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    Picture,
    Pipeline,
    Plan,
    ProbeScores,
    Recipe,
    Recording,
    Rotary,
    RowRecipe,
    RowSource,
    RunFolder,
    SavedPass,
    Schedule,
    Score,
    SelfAttention,
    SgdState,
    StepRecord,
    TokenFile,
    TorchGenerator,
    Trainer,
    TrainingHistory,
    ValidationRecord,
    Verdict,
    Windows,
    WordTokenizer,
    __version__,
    adamw_step,
    alibi,
    alibi_slopes,
    attend,
    attend_backward,
    attend_second,
    attend_tangent,
    bias,
    builtin_model,
    builtin_tokenizer,
    causal,
    check,
    checkpoint_summary,
    choose_recipe,
    clip_gradient_norm,
    cross_entropy,
    documents,
    draw_head,
    draw_heads,
    drop,
    embed_tokens,
    first_token_share,
    gpt_preset_names,
    gradcheck,
    has_builtin_model,
    head_divergence,
    head_labels,
    head_metrics,
    isa,
    jensen_shannon,
    keep,
    learning_rate_at,
    lengths,
    load,
    longest_probe,
    pipeline,
    plan,
    pooled_weights,
    positions,
    probe_for_look,
    probe_heads,
    probe_ids,
    recipe_rows,
    recipe_vocab_size,
    report_heads,
    row_sums,
    sample_token,
    sentence_ends,
    sgd_step,
    simple_attention,
    split_tokens,
    split_words,
    strongest_links,
    threads,
    trace_simple_attention,
    unlimited,
    value_weighted,
    weights,
    window,
    write_token_file,
)
from ._exercise import Exercise, exercise
from ._from_torch import from_torch, to_torch_state_dict
from ._head_trace import HeadTrace, TracedKey
from ._head_trace import trace as _trace_text
from ._look import Look
from ._look import look as _look_at_layer
from ._look_text import HeadLook, TextLook, look
from ._look_token import TokenLink, TokenLook
from ._parts import attribute as _attribute
from ._parts import names as _names
from ._parts import state_dict as _state_dict
from ._results import (
    ROW_SUMS,
    AttendGradients,
    AttendResult,
    AttendSecond,
    AttendTangents,
    Generated,
    LayerGradients,
    PassHeads,
    PooledWeights,
    SimpleAttention,
    TrainPass,
    TrainRows,
    WindowBatch,
)
from ._trace import SplitPicture, Step, Trace

Gpt.trace = _trace_text
# And so every rung's.
MultiHeadAttention.look = _look_at_layer
MultiHeadAttention.state_dict = _state_dict
MultiHeadAttention.__getattr__ = _attribute
MultiHeadAttention.__dir__ = _names

__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
