#!/usr/bin/env python3
"""Writes random.json, ladder.json, attend.json, train.json and windows.json: what PyTorch computes,
for tests without it.

    pip install torch && tests/golden/make_golden.py

Inputs are not stored: torch.manual_seed(s); torch.randn(shape) gives the same bits in cephalo.
Of a large result every n-th element is stored ("step"), in memory order.
"""

import json
import pathlib

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import ladder_torch

HERE = pathlib.Path(__file__).resolve().parent


def numbers(t, samples=96):
    """Shape and sampled elements of a tensor; floats with the digits that give the bits back."""
    flat = t.detach().contiguous().reshape(-1)
    step = max(1, flat.numel() // samples)
    digits = 17 if flat.dtype == torch.float64 else 9
    values = [float(f"{v:.{digits}g}") for v in flat[::step].tolist()]
    return {"shape": list(t.shape), "step": step, "values": values}


def seeded(seed, *shape):
    torch.manual_seed(seed)
    return torch.randn(*shape)


def write(name, content):
    content = {"torch": torch.__version__, **content}
    text = json.dumps(content, indent=None, separators=(",", ":"))
    (HERE / name).write_text(text.replace('{"case"', '\n{"case"') + "\n")
    print(f"{name}: {len(text)} bytes")


# --- the generator -------------------------------------------------------------------------------

def random_numbers():
    cases = []

    def add(case, seed, *tensors):
        cases.append({"case": case, "seed": seed, "results": [numbers(t) for t in tensors]})

    for seed in (0, 123, 4294967295):
        torch.manual_seed(seed)
        add("rand", seed, torch.rand(3, 5), torch.rand(4, dtype=torch.float64), torch.rand(2))
        torch.manual_seed(seed)
        add("uniform", seed, torch.empty(50).uniform_(-0.3, 0.7))
        torch.manual_seed(seed)
        add("randn_below_16", seed, torch.randn(15), torch.randn(1))
        torch.manual_seed(seed)  # the cached normal of the first call survives the second
        add("randn_mixed", seed, torch.randn(3), torch.randn(17), torch.randn(2), torch.randn(64))
        torch.manual_seed(seed)
        add("randn_float64", seed, torch.randn(7, dtype=torch.float64),
            torch.randn(37, dtype=torch.float64))
        torch.manual_seed(seed)
        linear = nn.Linear(7, 5)
        add("linear", seed, linear.weight, linear.bias)
        torch.manual_seed(seed)
        add("dropout", seed, F.dropout(torch.ones(6, 7), 0.3, training=True))
        torch.manual_seed(seed)
        add("randperm", seed, torch.randperm(20).double(), torch.randint(3, 40, (10,)).double())
    return {"cases": cases}


# --- the rungs -----------------------------------------------------------------------------------

def gradients(module, x, y, seed, **inputs):
    """d(sum of y · g) by x, by other inputs and by every parameter, g seeded."""
    g = seeded(seed, *y.shape)
    names = [name for name, _ in module.named_parameters()]
    tensors = [x, *inputs.values(), *module.parameters()]
    grads = torch.autograd.grad((y * g).sum(), tensors)
    return {name: numbers(grad, 32)
            for name, grad in zip(["x", *inputs, *names], grads)}


def ladder():
    cases = []
    sizes = [(3, 2, 1, 6), (16, 16, 4, 5), (12, 8, 2, 9), (768, 768, 12, 20), (1024, 512, 8, 7)]
    for rung in range(2, 8):
        for d_in, d_out, heads, tokens in sizes:
            if rung >= 6:
                d_in = d_out
            for qkv_bias, dropout, raw in ((False, 0.0, False), (True, 0.1, False),
                                           (False, 0.0, True)):
                if raw and (rung != 2 or d_in > 16):
                    continue  # rand matrices of large sizes saturate the softmax
                if not raw and (qkv_bias and rung >= 6):
                    continue  # always there
                if rung == 2:
                    dropout = 0.0
                head_out = d_out // heads if rung == 4 else d_out
                torch.manual_seed(123 + rung)
                module = ladder_torch.build(rung, d_in, head_out, heads, 32, dropout, qkv_bias, raw)
                x = seeded(7, 2, tokens, d_in).requires_grad_()
                torch.manual_seed(99)  # of dropout
                y = module(x)
                cases.append({
                    "case": "rung", "rung": rung, "seed": 123 + rung, "x_seed": 7,
                    "dropout_seed": 99, "g_seed": 11, "tokens": tokens, "d_in": d_in,
                    "d_out": head_out, "num_heads": heads, "context_length": 32,
                    "dropout": dropout, "qkv_bias": qkv_bias, "raw": raw, "output": numbers(y),
                    "parameters": {n: numbers(p, 16) for n, p in module.named_parameters()},
                    "gradients": gradients(module, x, y, 11)})
    for width, heads in ((768, 12), (1024, 16), (1280, 20), (1600, 25)):  # the GPT-2 family
        torch.manual_seed(123)
        module = ladder_torch.build(5, width, width, heads, 1024)
        cases.append({
            "case": "rung", "rung": 5, "seed": 123, "x_seed": 7, "dropout_seed": 99, "tokens": 12,
            "d_in": width, "d_out": width, "num_heads": heads, "context_length": 1024,
            "dropout": 0.0, "qkv_bias": False, "raw": False,
            "output": numbers(module(seeded(7, 2, 12, width))),
            "parameters": {n: numbers(p, 16) for n, p in module.named_parameters()}})
    # Rung 7 with its mask, 0 = hidden.
    torch.manual_seed(5)
    module = ladder_torch.FastMultiHeadAttention(16, 4)
    x = seeded(7, 2, 6, 16).requires_grad_()
    y = module(x, torch.tril(torch.ones(6, 6)))
    cases.append({"case": "masked", "seed": 5, "x_seed": 7, "tokens": 6, "d_model": 16,
                  "num_heads": 4, "output": numbers(y)})
    for seed in (0, 123):
        cases.append(torch_module(seed))
    return {"cases": cases}


def torch_module(seed):
    """nn.MultiheadAttention: self attention with padding (True = hidden), and cross attention."""
    torch.manual_seed(seed)
    module = nn.MultiheadAttention(24, 3, batch_first=True)
    x = seeded(7, 2, 5, 24).requires_grad_()
    kv = seeded(8, 2, 6, 24).requires_grad_()
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    same, weights = module(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    cross, _ = module(x, kv, kv)
    return {"case": "torch_module", "seed": seed, "x_seed": 7, "kv_seed": 8, "g_seed": 11,
            "output": numbers(same), "weights": numbers(weights), "cross": numbers(cross),
            "parameters": {n: numbers(p) for n, p in module.named_parameters()},
            "gradients": gradients(module, x, cross, 11, kv=kv)}


# --- attend --------------------------------------------------------------------------------------

def attend_masks(batch, q_tokens, kv_tokens):
    """name -> additive float64 mask [batch, 1, q, k], each written from its definition."""
    i = torch.arange(q_tokens).view(1, 1, -1, 1)
    j = torch.arange(kv_tokens).view(1, 1, 1, -1)
    p = i + kv_tokens - q_tokens
    lengths = torch.tensor([kv_tokens, max(1, kv_tokens - 2)][:batch]).view(-1, 1, 1, 1)
    ids_q = torch.tensor([k * 3 // q_tokens for k in range(q_tokens)]).view(1, 1, -1, 1)
    ids_k = torch.tensor([k * 3 // kv_tokens for k in range(kv_tokens)]).view(1, 1, 1, -1)
    keep = seeded(21, q_tokens, kv_tokens).view(1, 1, q_tokens, kv_tokens) > -0.5
    seen = {
        "none": torch.ones(1, 1, q_tokens, kv_tokens, dtype=torch.bool),
        "causal": j <= p,
        "causal_top_left": j <= i,
        "prefix": (j <= p) | (j < 2),
        "window": (j >= p - 2) & (j <= p + 1),
        "causal_window": (j >= p - 2) & (j <= p),
        "lengths": (j < lengths).expand(batch, 1, q_tokens, kv_tokens),
        "documents": ids_q == ids_k,
        "keep": keep,
        "drop": ~keep,
        "causal_keep": keep & (j <= p),
    }
    masks = {name: torch.zeros(m.shape).double().masked_fill(~m, -torch.inf)
             for name, m in seen.items()}
    masks["bias"] = seeded(22, q_tokens, kv_tokens).double().view(1, 1, q_tokens, kv_tokens)
    masks["alibi"] = None  # made per head below
    return masks


def attend_case(name, mask, b, h, kv_h, t_q, t_k, d, v_d):
    """q, k, v from seeds 1, 2, 3 in float32, everything after that in float64."""
    q, k, v = (seeded(s, *shape).double().requires_grad_() for s, shape in
               ((1, (b, h, t_q, d)), (2, (b, kv_h, t_k, d)), (3, (b, kv_h, t_k, v_d))))
    if name == "alibi":
        slopes = torch.tensor([2.0 ** (-8 * (n + 1) / h) for n in range(h)]).view(1, h, 1, 1)
        p = torch.arange(t_q).view(1, 1, -1, 1) + t_k - t_q
        mask = -slopes.double() * (p - torch.arange(t_k).view(1, 1, 1, -1)).abs()
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(b, h, t_q, t_k),
                                             enable_gqa=h != kv_h)
    grown = k.repeat_interleave(h // kv_h, dim=1)
    scores = (q @ grown.transpose(2, 3)) / d ** 0.5 + mask
    weights = torch.softmax(scores, dim=-1)
    # PyTorch gives NaN where a query may look at nothing; cephalo promises 0 and lse -inf.
    empty = torch.isneginf(scores).all(dim=-1)
    case = {"case": name, "batch": b, "num_heads": h, "num_kv_heads": kv_h, "q_tokens": t_q,
            "kv_tokens": t_k, "head_dim": d, "v_dim": v_d, "empty_rows": int(empty.sum()),
            "context": numbers(context.nan_to_num(0.0)),
            "weights": numbers(weights.nan_to_num(0.0)),
            "lse": numbers(torch.logsumexp(scores, dim=-1).nan_to_num(0.0, neginf=-1e30))}
    if not empty.any():
        g = seeded(4, *context.shape).double()
        grads = torch.autograd.grad((context * g).sum(), (q, k, v))
        case["gradients"] = {n: numbers(t) for n, t in zip("qkv", grads)}
    return case


def attend():
    cases = []
    for shape in ((2, 4, 4, 7, 7, 8, 8), (2, 4, 2, 5, 9, 16, 12), (1, 6, 1, 9, 5, 7, 3)):
        b, h, kv_h, t_q, t_k, d, v_d = shape
        for name, mask in attend_masks(b, t_q, t_k).items():
            cases.append(attend_case(name, mask, *shape))
    # Softcap and a scale of one's own have no SDPA argument: written out.
    for name, scale, cap in (("scale", 0.3, None), ("softcap", 0.5, 2.0)):
        q, k, v = (seeded(s, 1, 2, 6, 8).double().requires_grad_() for s in (1, 2, 3))
        scores = scale * (q @ k.transpose(2, 3))
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        context = torch.softmax(scores, dim=-1) @ v
        grads = torch.autograd.grad((context * seeded(4, *context.shape).double()).sum(), (q, k, v))
        cases.append({"case": name, "scale": scale, "softcap": cap, "batch": 1, "num_heads": 2,
                      "num_kv_heads": 2, "q_tokens": 6, "kv_tokens": 6, "head_dim": 8, "v_dim": 8,
                      "empty_rows": 0, "context": numbers(context),
                      "weights": numbers(torch.softmax(scores, dim=-1)),
                      "lse": numbers(torch.logsumexp(scores, dim=-1)),
                      "gradients": {n: numbers(t) for n, t in zip("qkv", grads)}})
    cases += [rotary_case(interleaved) for interleaved in (False, True)]
    return {"cases": cases}


def rotary_case(interleaved):
    """q and k turned by position, in float64: pair c by the angle position / 10000^(2c/d)."""
    def turn(t):
        half = t.shape[-1] // 2
        angle = torch.arange(t.shape[-2]).double().view(-1, 1) * 10000.0 ** (
            -torch.arange(half).double() / half)
        a, b = (t[..., 0::2], t[..., 1::2]) if interleaved else (t[..., :half], t[..., half:])
        x, y = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.stack((x, y), -1).flatten(-2) if interleaved else torch.cat((x, y), -1)
    torch.manual_seed(123)
    module = ladder_torch.MultiHeadAttention(12, 24, 16, 0.0, 3).double()
    x = seeded(7, 2, 6, 12).double()
    split = lambda t: t.view(2, 6, 3, 8).transpose(1, 2)
    q, k, v = (split(w(x)) for w in (module.W_query, module.W_key, module.W_value))
    context = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
    y = module.out_proj(context.transpose(1, 2).reshape(2, 6, 24))
    return {"case": "rotary", "interleaved": interleaved, "seed": 123, "x_seed": 7,
            "output": numbers(y)}


# --- training ------------------------------------------------------------------------------------

def cross_entropy_case(name, rows, vocab_size, scale=1.0, ignored=(), ignore_index=-100,
                       hidden_id=None):
    """float32 logits of seed 1 times `scale`, everything after that in float64."""
    logits = seeded(1, rows, vocab_size) * scale
    torch.manual_seed(2)
    targets = torch.randint(0, vocab_size, (rows,))
    if hidden_id is not None:
        targets[targets == hidden_id] = hidden_id + 1
        logits[:, hidden_id] = -torch.inf
    targets[list(ignored)] = ignore_index
    logits = logits.double().requires_grad_()
    loss = F.cross_entropy(logits, targets, ignore_index=ignore_index)
    (dlogits,) = torch.autograd.grad(loss, logits)
    return {"case": "cross_entropy", "name": name, "rows": rows, "vocab_size": vocab_size,
            "scale": scale, "ignore_index": ignore_index,
            "hidden_id": -1 if hidden_id is None else hidden_id, "targets": targets.tolist(),
            "loss": loss.item(), "dlogits": numbers(dlogits)}


OPTIMISER_STEPS = 5


def optimiser_case(name, make, state_names, shape, dtype, options):
    """Parameter of seed 1; gradient of step n of seed 100 + n, smaller from row to row."""
    parameter = seeded(1, *shape).to(dtype).requires_grad_()
    sizes = 10.0 ** -torch.arange(shape[0]).to(dtype).view(-1, 1)
    optimiser = make([parameter], **options)
    for n in range(OPTIMISER_STEPS):
        parameter.grad = seeded(100 + n, *shape).to(dtype) * sizes
        optimiser.step()
    state = {theirs: numbers(optimiser.state[parameter][theirs]) for theirs in state_names}
    return {"case": name, "dtype": str(dtype).split(".")[1], "shape": list(shape),
            "steps": OPTIMISER_STEPS, "options": options, "parameter": numbers(parameter),
            "state": state}


def clip_case(max_norm, dtype):
    """Gradients of seeds 1, 2, ... in these shapes."""
    shapes = ((3, 5), (7,), (40, 300))
    tensors = [torch.empty(0)] * len(shapes)
    for n, shape in enumerate(shapes):
        tensors[n] = torch.zeros(shape, dtype=dtype, requires_grad=True)
        tensors[n].grad = seeded(1 + n, *shape).to(dtype)
    norm = nn.utils.clip_grad_norm_(tensors, max_norm)
    return {"case": "clip", "dtype": str(dtype).split(".")[1], "max_norm": max_norm,
            "norm": norm.item(), "gradients": [numbers(t.grad) for t in tensors]}


def train():
    cases = [cross_entropy_case("plain", 7, 11), cross_entropy_case("one id", 3, 1),
             cross_entropy_case("some ignored", 6, 50, ignored=(0, 4)),
             cross_entropy_case("another ignore_index", 6, 50, ignored=(0, 4), ignore_index=-1),
             cross_entropy_case("large logits", 5, 33, scale=1e4),
             cross_entropy_case("an id hidden", 5, 9, hidden_id=3),
             cross_entropy_case("many ids", 4, 5003)]
    adamw = ({}, {"lr": 0.1, "weight_decay": 0.3}, {"lr": 0.01, "betas": [0.5, 0.75], "eps": 1e-3},
             {"lr": 1.0, "betas": [0.0, 0.0], "weight_decay": 0.0})
    sgd = ({}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "weight_decay": 0.2},
           {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.1, "nesterov": True})
    for dtype in (torch.float32, torch.float64):
        cases += [optimiser_case("adamw", torch.optim.AdamW, ("exp_avg", "exp_avg_sq"), (5, 31),
                                 dtype, options) for options in adamw]
        cases += [optimiser_case("sgd", torch.optim.SGD,
                                 ("momentum_buffer",) if "momentum" in options else (), (5, 31),
                                 dtype, options) for options in sgd]
        cases += [clip_case(max_norm, dtype) for max_norm in (0.5, 20.0, 1000.0)]
    return {"cases": cases}


# --- windows of a text ---------------------------------------------------------------------------

class Windows(Dataset):
    """The book's GPTDatasetV1: what is read, and the same one token further on."""

    def __init__(self, tokens, max_length, stride):
        self.rows = [(tokens[i:i + max_length], tokens[i + 1:i + max_length + 1])
                     for i in range(0, len(tokens) - max_length, stride)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        inputs, targets = self.rows[index]
        return torch.tensor(inputs), torch.tensor(targets)


def windows():
    """Three epochs of each: the first token of every row tells the order."""
    cases = []
    for tokens, context_length, stride, batch, shuffle, drop_last, seed in (
            (50, 4, 4, 3, False, True, 123), (50, 4, 1, 8, True, True, 123),
            (50, 4, 4, 5, True, False, 0), (1000, 16, 7, 10, True, True, 4294967295),
            (301, 5, 2, 4, False, False, 1), (11, 10, 1, 1, True, True, 7)):
        data = Windows(list(range(tokens)), context_length, stride)
        torch.manual_seed(seed)
        loader = DataLoader(data, batch_size=batch, shuffle=shuffle, drop_last=drop_last)
        epochs = [[x[:, 0].tolist() for x, y in loader if bool((y == x + 1).all())]
                  for _ in range(3)]
        cases.append({"case": "windows", "tokens": tokens, "context_length": context_length,
                      "stride": stride, "batch": batch, "shuffle": shuffle,
                      "drop_last": drop_last, "seed": seed, "epochs": epochs})
    return {"cases": cases}


if __name__ == "__main__":
    torch.set_num_threads(1)
    write("random.json", random_numbers())
    write("ladder.json", ladder())
    write("attend.json", attend())
    write("train.json", train())
    write("windows.json", windows())
