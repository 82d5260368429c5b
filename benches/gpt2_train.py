"""Training steps of a new GPT-2 with PyTorch and transformers: the peer of `examples/train_gpt2`.

    python benches/gpt2_train.py --tokens FILE [--steps 20] [--batch-size 8] [--threads N] [sizes]

Prints one JSON line. A step is what the example's is: a batch of windows from a token file, forward with dropout,
backward, clipping, AdamW with decay on matrices only, the loss read. The first `--warm-up` steps do not count for
`tokens_per_second`; `peak_mib` is the largest resident size of the whole process, `loss` the mean of the counted steps.

What PyTorch has that is faster is used: scaled_dot_product_attention, the fused AdamW.
"""

import argparse
import json
import os
import resource
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", required=True, help="token file, two bytes a token")
    parser.add_argument("--n-layer", type=int, default=6)
    parser.add_argument("--n-head", type=int, default=6)
    parser.add_argument("--n-embd", type=int, default=384)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    config = GPT2Config(
        n_layer=args.n_layer,
        n_head=args.n_head,
        n_embd=args.n_embd,
        n_positions=args.context,
        vocab_size=args.vocab_size,
        embd_pdrop=args.dropout,
        attn_pdrop=args.dropout,
        resid_pdrop=args.dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config).train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)

    # 16 bytes of head, 8 of tail: train/src/data/token_file.rs.
    stream = np.memmap(args.tokens, dtype="<u2", mode="r")[8:-4]
    generator = np.random.default_rng(0)
    windows = generator.permutation((len(stream) - 1) // args.context)
    losses, begun = [], time.perf_counter()
    for step in range(args.steps + args.warm_up):
        if step == args.warm_up:
            losses, begun = [], time.perf_counter()
        chosen = [windows[(step * args.batch_size + row) % len(windows)] for row in range(args.batch_size)]
        rows = np.stack([stream[i * args.context : (i + 1) * args.context + 1] for i in chosen])
        batch = torch.from_numpy(rows.astype(np.int64))
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - begun

    print(
        json.dumps(
            {
                "framework": f"PyTorch {torch.__version__.split('+')[0]}",
                "parameters": sum(p.numel() for p in model.parameters()),
                "tokens_per_second": args.steps * args.batch_size * args.context / seconds,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "loss": sum(losses) / len(losses),
                "threads": args.threads,
            }
        )
    )


if __name__ == "__main__":
    main()
