"""torch.vmap over attention: the mapped axis becomes a part of batch where nothing need be copied for
it, and is a loop elsewhere."""

import torch

_STEP = 0x9E3779B97F4A7C15  # seeds far apart, as Weyl's sequence has them
_SEEDS = 1 << 62  # two of them, added, are still an int64


def _batch(tensor, dim):
    """The size of the axis after the mapped one."""
    return tensor.shape[1 if dim == 0 else 0]


def _folds(tensor, dim, batch):
    """Needs no copy to stand at the front of batch. What is the same for all stays as it is, or is
    repeated by a stride of 0, which only a batch of 1 can hide."""
    if tensor is None:
        return True
    if dim is None:
        return tensor.shape[0] == 1
    return _batch(tensor, dim) == batch


def _folded(tensor, dim, size, is_mask):
    if dim is None:
        return tensor if is_mask or tensor is None else tensor.expand(size, *tensor.shape[1:])
    return tensor.movedim(dim, 0).flatten(0, 1)


def _one(tensor, dim, n):
    return tensor if dim is None else tensor.select(dim, n)


def run(call, info, arrays, masks, dropout, seed, folds=True):
    """call(arrays, masks, seed) -> tensors with batch in front
    arrays, masks: pairs of a tensor and its mapped dimension, or None where it has none
    folds=False: a result is a sum over batch, which must not join what is mapped
    -> the tensors with the mapped axis in front
    """
    if dropout and info.randomness == "error":
        raise RuntimeError('cephalo.torch: attention with dropout under vmap, whose randomness is "error"; '
                           'pass randomness="different" or "same"')
    size, same = info.batch_size, dropout and info.randomness == "same"
    first, dim = arrays[0]
    batch = _batch(first, dim)
    if folds and not same and all(_folds(t, d, batch) for t, d in arrays + masks):
        out = call([_folded(t, d, size, False) for t, d in arrays],
                   [_folded(t, d, size, True) for t, d in masks], seed)
        return [None if t is None else t.unflatten(0, (size, batch)) for t in out]
    each = [call([_one(t, d, n) for t, d in arrays], [_one(t, d, n) for t, d in masks],
                 seed if same or not dropout else (seed + n * _STEP % _SEEDS) % _SEEDS)
            for n in range(size)]
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*each)]


def _is_batch_of_gradients(tensor):
    return tensor is not None and torch._C._functorch.is_legacy_batchedtensor(tensor)


def one_by_one(call, *gradients):
    """call(*gradients), where these may be batches of gradients: torch.autograd.grad(is_grads_batched=True)
    maps by an older vmap, which does not ask a Function how."""
    if not any(map(_is_batch_of_gradients, gradients)):
        return call(*gradients)
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    batches = [torch._remove_batch_dim(t, level, 0, 0) if _is_batch_of_gradients(t) else None
               for t in gradients]
    size = next(len(batch) for batch in batches if batch is not None)
    each = [call(*(t if batch is None else batch[n] for t, batch in zip(gradients, batches)))
            for n in range(size)]
    return [None if parts[0] is None else torch._add_batch_dim(torch.stack(parts), 0, level)
            for parts in zip(*each)]
