"""A small transformer that trains until it is ended, for modules_check.py. Its `logits` stay alive
over the end of a step.

Writes into the file that its argument names, after each step: the highest requested memory of the
step, its number of allocations, and the median and the highest seconds of the last 200 steps.
"""

import sys
import time
from collections import deque
from pathlib import Path

import torch
from torch import nn

BATCH, LENGTH, WIDTH, WORDS, BLOCKS = 4, 64, 128, 1000, 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        scores = torch.bmm(query, key.transpose(1, 2)) * WIDTH**-0.5
        return self.out(torch.bmm(torch.softmax(scores, dim=-1), value))


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    model = Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
    figures, seconds = Path(sys.argv[1]), deque(maxlen=200)
    while True:
        began = time.perf_counter()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        logits = model(words)
        loss = logits.float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
        peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
        count = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        draft = figures.with_suffix(".part")
        median = sorted(seconds)[len(seconds) // 2]
        draft.write_text("%d %d %f %f" % (peak, count, median, max(seconds)))
        draft.rename(figures)


main()
