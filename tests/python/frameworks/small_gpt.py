"""A small GPT whose attention is the class it is given: the one line that changes."""

import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, CONTEXT, VOCABULARY = 64, 4, 32, 96


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.att = attention(WIDTH, WIDTH, CONTEXT, 0.0, HEADS)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.att(self.norm1(x))
        return x + self.ff(self.norm2(x))


class SmallGPT(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.tok_emb = nn.Embedding(VOCABULARY, WIDTH)
        self.pos_emb = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(attention), Block(attention))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def train(attention, steps=50, batch=8, lowered=None):
    """The loss of each step, and milliseconds a step. lowered: the dtype of autocast."""
    torch.manual_seed(123)
    model = SmallGPT(attention)
    ids = torch.randint(VOCABULARY, (4 * batch, CONTEXT + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    begin = time.perf_counter()
    for step in range(steps):
        chosen = ids[(step % 4) * batch:][:batch]
        with torch.autocast("cpu", lowered, enabled=lowered is not None):
            loss = F.cross_entropy(model(chosen[:, :-1]).flatten(0, 1), chosen[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, (time.perf_counter() - begin) / steps * 1e3
