"""Attention over processes: the tokens of a sequence spread over a torch.distributed group."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import AttendResult, ring_share
from .. import attend_ring as _forward
from .. import attend_ring_backward as _backward
from . import _engine
from ._masks import mask_from
from .attend import attend


class _Transfers:
    """Messages on their way. gloo moves them in a thread of its own."""

    def __init__(self, group):
        self._group = group
        self._works = []

    def send(self, to, tag, memory):
        self._begin(dist.isend, to, tag, memory)

    def receive(self, origin, tag, memory):
        self._begin(dist.irecv, origin, tag, memory)

    def wait(self):
        for work, _ in self._works:
            work.wait()
        self._works.clear()

    def _begin(self, start, peer, tag, memory):
        if not len(memory):
            return
        tensor = torch.frombuffer(memory, dtype=torch.uint8)
        # Tags of cephalo's own are negative, those of backends are not.
        work = start(tensor, dist.get_global_rank(self._group, peer), group=self._group, tag=tag % 2**15)
        self._works.append((work, tensor))


class _World:
    """A group as cephalo sees it."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def transfers(self):
        return _Transfers(self.group)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, world, tokens, rule, seed, q, k, v, *tensors):
        options = _engine.options(rule, seed, q, k)
        found = _forward(world, tokens, q, k, v, _engine.mask_of(rule, tensors), **options)
        ctx.world, ctx.tokens, ctx.rule, ctx.seed = world, tokens, rule, seed
        ctx.save_for_backward(q, k, v, found.context, found.lse, *tensors)
        return found.context, found.lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dcontext, dlse):
        q, k, v, context, lse, *tensors = ctx.saved_tensors
        # Every process has to take part, whoever asked for the gradient of a bias.
        biases = [role == "bias" for role in ctx.rule.roles()[:len(tensors)]]
        found = _backward(ctx.world, ctx.tokens, q, k, v, context, lse, dcontext.resolve_neg(),
                          dlse.resolve_neg(), mask=_engine.mask_of(ctx.rule, tensors), with_dbias=any(biases),
                          **_engine.options(ctx.rule, ctx.seed, q, k))
        dbias = iter(found.dbias)
        of_tensors = [next(dbias).to(t.dtype) if bias else None for t, bias in zip(tensors, biases)]
        return None, None, None, None, found.dq, found.dk, found.dv, *of_tensors


def _same_seed(group):
    """One number of PyTorch's generator, that of the group's first process."""
    seed = torch.randint(2**62, ())
    dist.broadcast(seed, dist.get_global_rank(group, 0), group=group)
    return int(seed)


def attend_ring(q: Tensor, k: Tensor, v: Tensor, tokens: int, mask=None, scale: float | None = None,
                softcap: float | None = None, dropout: float = 0.0, return_lse: bool = False, *, group=None):
    """attend over the tokens of all processes of a group, each of which passes its own rows; trainable.

    q, k, v: [batch, heads, mine, head_dim]: the rows of cephalo.ring_share(tokens, rank, size), the early tokens
    first; split_tokens takes them out of a whole. tokens: of the whole sequence.
    mask: as in attend. keep, drop and bias have this process's rows and all keys; the rest is the whole's.
    dropout: seeded by the generator of the group's first process; the pairs that one process would drop.
    group: of torch.distributed, on CPUs (gloo); None: the default group. A group of one, of NCCL too, takes tensors of
    a GPU and attends there: it has nobody to exchange with.
    -> context of these rows; with return_lse, the named tuple (context, lse, None, None)
    """
    group = group if group is not None else dist.group.WORLD
    if q.is_cuda and dist.get_world_size(group) == 1:
        if q.shape[-2] != tokens:
            raise ValueError(f"attend_ring: a process by itself has all {tokens} tokens, not {q.shape[-2]}")
        return attend(q, k, v, mask, scale, softcap, dropout, return_lse)
    mask = mask_from(mask)
    rule = _engine.Rule(mask.rule_text(), scale, softcap, dropout)
    seed = _same_seed(group) if dropout else None
    context, lse = _Ring.apply(_World(group), tokens, rule, seed, q, k, v, *mask.tensors)
    return AttendResult(context, lse, None, None) if return_lse else context


def split_tokens(x: Tensor, dim: int, *, group=None) -> Tensor:
    """This process's rows of a whole along dim, as attend_ring takes them."""
    group = group if group is not None else dist.group.WORLD
    pieces = ring_share(x.shape[dim], dist.get_rank(group), dist.get_world_size(group))
    return torch.cat([x.narrow(dim, begin, end - begin) for begin, end in pieces], dim)


def join_tokens(x: Tensor, dim: int, tokens: int, *, group=None) -> Tensor:
    """The whole of what each process has along dim, on every process; without a gradient."""
    group = group if group is not None else dist.group.WORLD
    size = dist.get_world_size(group)
    shares = [ring_share(tokens, rank, size) for rank in range(size)]
    longest = max(sum(end - begin for begin, end in share) for share in shares)
    rows = x.detach().movedim(dim, 0).contiguous()
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[:len(rows)] = rows
    everyone = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(everyone, padded, group=group)
    whole = rows.new_empty((tokens, *rows.shape[1:]))
    for found, share in zip(everyone, shares):
        first = 0
        for begin, end in share:
            whole[begin:end] = found[first:first + end - begin]
            first += end - begin
    return whole.movedim(0, dim)
