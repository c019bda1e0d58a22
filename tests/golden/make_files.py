#!/usr/bin/env python3
"""Writes tests/golden/files: one layer in each form, made by PyTorch and saved by the packages that
people use, with an input and PyTorch's output; and arrays saved by NumPy.

    pip install torch numpy safetensors transformers && tests/golden/make_files.py
"""

import json
import pathlib

import numpy as np
import torch
from torch import nn
from safetensors.torch import save_file

import ladder_torch

HERE = pathlib.Path(__file__).resolve().parent / "files"
D, HEADS, TOKENS, CONTEXT = 24, 3, 7, 16


def save(form, state, x, y, flags):
    """state: name -> tensor; flags: what cephalo run must be told of a foreign file."""
    save_file({k: v.detach().clone().contiguous() for k, v in state.items()},
              HERE / f"{form}.safetensors")
    np.save(HERE / f"{form}.x.npy", x.detach().numpy())
    np.save(HERE / f"{form}.y.npy", y.detach().numpy())
    return {"form": form, "flags": flags}


def with_masks(state, module, prefix=""):
    """The buffers that the book's classes register."""
    mask = torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1)
    if isinstance(module, ladder_torch.HeadWrapper):
        return {**state, **{f"heads.{h}.mask": mask for h in range(len(module.heads))}}
    return {**state, f"{prefix}mask": mask}


def gpt2():
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
    config = GPT2Config(n_embd=D, n_head=HEADS, n_positions=CONTEXT, attn_pdrop=0.0,
                        resid_pdrop=0.0, attn_implementation="eager")
    attention = GPT2Attention(config, layer_idx=0).eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, TOKENS, D)
    future = torch.triu(torch.full((TOKENS, TOKENS), -torch.inf), diagonal=1)
    with torch.no_grad():
        y = attention(x, attention_mask=future.view(1, 1, TOKENS, TOKENS))[0]
    state = {f"h.0.attn.{k}": v for k, v in attention.state_dict().items()}
    state["h.0.ln_1.weight"] = torch.ones(D)
    state["wte.weight"] = torch.randn(5, D)
    return save("gpt2", state, x, y, ["--prefix", "h.0.", "--num-heads", str(HEADS)])


def main():
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(123)
    heads = ["--num-heads", str(HEADS)]
    x = torch.randn(2, TOKENS, D)
    cases = []
    with torch.no_grad():
        m = ladder_torch.MultiHeadAttention(D, D, CONTEXT, 0.0, HEADS, qkv_bias=True)
        cases.append(save("separate", with_masks(m.state_dict(), m), x, m(x), heads))
        m = ladder_torch.SelfAttentionRaw(D, 6)
        cases.append(save("raw", m.state_dict(), x[0] * 0.1, m(x[0] * 0.1), []))
        m = ladder_torch.HeadWrapper(D, 5, CONTEXT, 0.0, 4, out_proj=True)
        cases.append(save("heads", with_masks(m.state_dict(), m), x, m(x), []))
        m = ladder_torch.EasyMultiHeadAttention(D, HEADS)
        cases.append(save("linear", m.state_dict(), x, m(x), heads))
        m = ladder_torch.FastMultiHeadAttention(D, HEADS)
        cases.append(save("fused", m.state_dict(), x, m(x), heads))
        m = nn.MultiheadAttention(D, HEADS, batch_first=True)
        nn.init.normal_(m.in_proj_bias)
        cases.append(save("torch", m.state_dict(), x, m(x, x, x)[0], heads))
        cases.append(gpt2())
    np.save(HERE / "fortran.npy", np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)))
    np.save(HERE / "bool.npy", np.array([[True, False], [False, True]]))
    (HERE / "cases.json").write_text(json.dumps(
        {"torch": torch.__version__, "numpy": np.__version__, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
