"""Step time of PyTorch's DDP with gloo on the GPT-2 of `grove-rank bench`: python benches/ranks/ddp.py RANKS STEPS.

Each rank has one thread, 4 rows of 128 tokens, AdamW. Prints medians in milliseconds.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT, ROWS, TOKENS = 6, 6, 384, 2048, 256, 4, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.ln_f = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return F.linear(self.ln_f(self.blocks(x)), self.wte.weight)


def rank(number, ranks, steps):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Gpt2()
    if ranks > 1:
        dist.init_process_group("gloo", rank=number, world_size=ranks)
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        wrapped = model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, VOCABULARY, (ROWS, TOKENS + 1), generator=torch.Generator().manual_seed(number))
    times = []
    for _ in range(steps + 3):
        begun = time.perf_counter()
        optimizer.zero_grad()
        logits = wrapped(ids[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begun))
    if number == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"torch {torch.__version__} DDP gloo, {parameters} parameters, {ranks} ranks: {statistics.median(times[3:]):.0f} ms a step")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    ranks, steps = int(sys.argv[1]), int(sys.argv[2])
    if ranks == 1:
        rank(0, 1, steps)
    else:
        mp.spawn(rank, (ranks, steps), ranks)
