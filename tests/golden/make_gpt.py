#!/usr/bin/env python3
"""Writes tests/golden/gpt2, a small random GPT-2 as the transformers package saves it, and gpt.json:
its logits, and the losses of ten training steps from there.

    pip install torch safetensors transformers && tests/golden/make_gpt.py

Ids are not stored: torch.manual_seed(s); torch.randint(0, vocab_size, shape) gives the same ones in
cephalo.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from make_golden import numbers, write

HERE = pathlib.Path(__file__).resolve().parent
VOCAB, CONTEXT, WIDTH, HEADS, LAYERS = 53, 24, 16, 2, 2
STEPS = 10


def ids(seed, *shape):
    torch.manual_seed(seed)
    return torch.randint(0, VOCAB, shape)


def make_model():
    torch.manual_seed(123)
    config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_head=HEADS,
                        n_layer=LAYERS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = GPT2LMHeadModel(config)
    for name, parameter in model.named_parameters():  # biases that are not 0, norms that are not 1
        shift = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        torch.nn.init.normal_(parameter, mean=shift, std=0.3)
    return model


def train(model):
    """AdamW on everything, new ids every step; the target of a token is the next one."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95),
                                  weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        batch = ids(100 + step, 3, CONTEXT + 1)
        optimiser.zero_grad()
        logits = model(batch[:, :-1]).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main():
    model = make_model().eval()
    model.save_pretrained(HERE / "gpt2")
    for extra in ("generation_config.json",):
        (HERE / "gpt2" / extra).unlink(missing_ok=True)
    x = ids(1, 2, CONTEXT)
    with torch.no_grad():
        logits = model(x).logits
        greedy = model.generate(x[:1, :5], max_new_tokens=12, do_sample=False, eos_token_id=None,
                                pad_token_id=0)
    write("gpt.json", {
        "sizes": {"vocab_size": VOCAB, "context_length": CONTEXT},
        "logits": {"seed": 1, "batch": 2, "result": numbers(logits, 400)},
        "greedy": {"prompt": x[0, :5].tolist(), "ids": greedy[0].tolist()},
        "training": {"first_seed": 100, "batch": 3, "learning_rate": 1e-2, "beta1": 0.9,
                     "beta2": 0.95, "weight_decay": 0.1, "losses": train(model)}})


if __name__ == "__main__":
    main()
