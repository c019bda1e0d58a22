#!/usr/bin/env python3
"""Writes effects.json: what docs/effects.md defines, computed as it is written there, in float64.

    pip install torch && tests/golden/make_effects.py

Nothing here is factored: circuits are whole d_model x d_model and vocab_size x vocab_size matrices.
Parameters and ids are not stored: torch.manual_seed(s), then randn in the order of a model's parameters,
gives the same ones in cephalo.
"""

import math

import torch
import torch.nn.functional as F

from make_golden import write

LEARNED = {"vocab_size": 23, "context_length": 12, "d_model": 24, "num_heads": 3, "num_kv_heads": 3,
           "num_layers": 3, "d_mlp": 32, "positions": "learned", "tied_head": True}
ROTARY = {"vocab_size": 29, "context_length": 12, "d_model": 24, "num_heads": 4, "num_kv_heads": 2,
          "num_layers": 2, "d_mlp": 20, "positions": "rotary", "tied_head": False}
EPSILON = 1e-5


def draw(*shape, middle=0.0):
    return middle + 0.3 * torch.randn(*shape, dtype=torch.float64)


def norm_parameters(d):
    return draw(d, middle=1.0), draw(d)


class Model:
    """Parameters, in the order in which cephalo lists them."""

    def __init__(self, o, seed):
        torch.manual_seed(seed)
        self.o, d = o, o["d_model"]
        self.head_dim = d // o["num_heads"]
        self.kv_width = self.head_dim * o["num_kv_heads"]
        self.token = draw(o["vocab_size"], d)
        self.position = draw(o["context_length"], d) if o["positions"] == "learned" else None
        self.layers = [self.layer(d) for _ in range(o["num_layers"])]
        self.norm = norm_parameters(d)
        self.unembed = self.token if o["tied_head"] else draw(o["vocab_size"], d)

    def layer(self, d):
        width, hidden = d + 2 * self.kv_width, self.o["d_mlp"]
        norm_1 = norm_parameters(d)
        qkv, out = (draw(width, d), draw(width)), (draw(d, d), draw(d))
        norm_2 = norm_parameters(d)
        fc, proj = (draw(hidden, d), draw(hidden)), (draw(d, hidden), draw(d))
        return {"norm_1": norm_1, "qkv": qkv, "out": out, "norm_2": norm_2, "fc": fc, "proj": proj}

    def kv_head(self, h):
        return h * self.o["num_kv_heads"] // self.o["num_heads"]

    def columns(self, qkv, h):
        """[..., d_model + 2 kv_width] -> q, k and v of head h."""
        d, k = self.head_dim, self.kv_head(h)
        first = self.o["d_model"]
        return (qkv[..., h * d:(h + 1) * d], qkv[..., first + k * d:first + (k + 1) * d],
                qkv[..., first + self.kv_width + k * d:first + self.kv_width + (k + 1) * d])


def layer_norm(x, parameters):
    return F.layer_norm(x, x.shape[-1:], *parameters, eps=EPSILON)


def rotated(x):
    """[tokens, head_dim]: pairs (c, c + head_dim / 2), turned by position · 10000^(−2c / head_dim)."""
    half = x.shape[1] // 2
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * \
        10000.0 ** (-2.0 * torch.arange(half, dtype=torch.float64) / x.shape[1])
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], 1)


def run(model, ids):
    """-> everything on the way: one entry for each layer, the last residual and the logits."""
    x = model.token[ids]
    if model.position is not None:
        x = x + model.position[:len(ids)]
    hidden = torch.triu(torch.ones(len(ids), len(ids), dtype=torch.bool), 1)
    kept = []
    for layer in model.layers:
        step = {"resid_pre": x, "weights": [], "values": [], "z": []}
        qkv = F.linear(layer_norm(x, layer["norm_1"]), *layer["qkv"])
        for h in range(model.o["num_heads"]):
            q, k, v = model.columns(qkv, h)
            if model.position is None:
                q, k = rotated(q), rotated(k)
            scores = (q @ k.T / math.sqrt(model.head_dim)).masked_fill(hidden, -math.inf)
            step["weights"].append(scores.softmax(1))
            step["values"].append(v)
            step["z"].append(step["weights"][-1] @ v)
        x = x + F.linear(torch.cat(step["z"], 1), *layer["out"])
        active = F.gelu(F.linear(layer_norm(x, layer["norm_2"]), *layer["fc"]), approximate="tanh")
        step["mlp_out"] = F.linear(active, *layer["proj"])
        x = x + step["mlp_out"]
        kept.append(step)
    return kept, x, layer_norm(x, model.norm) @ model.unembed.T


def w_out(model, layer, h):
    """W_O of a head: [head_dim, d_model]."""
    d = model.head_dim
    return model.layers[layer]["out"][0][:, h * d:(h + 1) * d].T


def scale_of(x):
    return torch.sqrt(x.var(-1, unbiased=False) + EPSILON)


def attribution(model, ids, kept, last, position, token):
    sigma = scale_of(last[position])

    def part(c):
        return float(((c - c.mean(-1, keepdim=True)) / sigma * model.norm[0]) @ model.unembed[token])

    layers, heads = range(len(kept)), range(model.o["num_heads"])
    found = {
        "position": position, "token": token,
        "token_embedding": part(model.token[ids[position]]),
        "position_embedding": 0.0 if model.position is None else part(model.position[position]),
        "heads": [[part(kept[l]["z"][h][position] @ w_out(model, l, h)) for h in heads]
                  for l in layers],
        "out_bias": [part(model.layers[l]["out"][1]) for l in layers],
        "mlp": [part(kept[l]["mlp_out"][position]) for l in layers],
        "bias": float(model.norm[1] @ model.unembed[token])}
    layer, head = len(kept) - 1, 1
    step = kept[layer]
    moved = step["values"][head] @ w_out(model, layer, head)
    found["sources"] = {
        "layer": layer, "head": head,
        "parts": [float(step["weights"][head][position][j]) * part(moved[j])
                  for j in range(position + 1)]}
    return found


def lens(model, kept, last, kind, token):
    def logits(x):
        if kind == "none":
            return x @ model.unembed.T
        sigma = scale_of(last if kind == "frozen" else x)[:, None]
        y = (x - x.mean(1, keepdim=True)) / sigma * model.norm[0] + model.norm[1]
        return y @ model.unembed.T

    rows = [logits(step["resid_pre"]) for step in kept] + [layer_norm(last, model.norm) @ model.unembed.T]
    p = torch.stack(rows).softmax(2)
    return {"token": token, "probability": p[:, :, token].tolist(),
            "rank": (p > p[:, :, token:token + 1]).sum(2).tolist(),
            "entropy": (-(p * p.log()).sum(2)).tolist(), "likeliest": p.argmax(2).tolist()}


def folded(model, layer, h):
    """W_Q, W_K, W_V: [d_model, head_dim], norm folded and centred; W_O: [head_dim, d_model], centred."""
    d = model.o["d_model"]
    centre = torch.eye(d, dtype=torch.float64) - 1.0 / d
    gain = torch.diag(model.layers[layer]["norm_1"][0])
    read = [centre @ gain @ w for w in model.columns(model.layers[layer]["qkv"][0].T, h)]
    return (*read, w_out(model, layer, h) @ centre)


def circuit(matrices, kind):
    q, k, v, out = matrices
    return {"query": q @ k.T, "key": k @ q.T, "value": v @ out}[kind]


def composition(model, kind):
    layers, heads = range(model.o["num_layers"]), range(model.o["num_heads"])

    def score(l1, h1, l2, h2):
        if l1 >= l2:
            return None
        a = circuit(folded(model, l1, h1), "value")
        b = circuit(folded(model, l2, h2), kind)
        return float((a @ b).norm() / (a.norm() * b.norm()))

    return [[[[score(l1, h1, l2, h2) for h2 in heads] for l2 in layers] for h1 in heads]
            for l1 in layers]


def copying(model, layer, h):
    _, _, v, out = folded(model, layer, h)
    whole = model.token @ v @ out @ torch.diag(model.norm[0]) @ model.unembed.T
    eigenvalues = torch.linalg.eigvals(whole)
    return float(eigenvalues.real.sum() / eigenvalues.abs().sum())


def case(name, o, seed):
    model = Model(o, seed)
    tokens = o["context_length"] - 1
    torch.manual_seed(seed + 1)
    ids = torch.randint(0, o["vocab_size"], (tokens,))
    kept, last, logits = run(model, ids)
    return {"case": name, "options": o, "seed": seed, "tokens": tokens, "logits": logits.tolist(),
            "attribution": [attribution(model, ids, kept, last, position, token)
                            for position, token in ((tokens - 1, 7), (4, 0), (0, 11))],
            "lens": {kind: lens(model, kept, last, kind, 5) for kind in ("fresh", "frozen", "none")},
            "composition": {kind: composition(model, kind) for kind in ("query", "key", "value")},
            "copying": [[copying(model, layer, h) for h in range(o["num_heads"])]
                        for layer in range(o["num_layers"])]}


def main():
    write("effects.json", {"cases": [case("learned", LEARNED, 41), case("rotary", ROTARY, 51)]})


if __name__ == "__main__":
    main()
