"""Greedy decoding of a GPT-2 directory with PyTorch and transformers at batch 1: the peer of `examples/gpt2.rs`.

    python benches/gpt2_decode.py --model DIR [--prompt-ids 5,17,40] [--max-new-tokens 64] [--threads N]

Prints one JSON line. Nothing is warmed up, because the example is not either. `tokens_per_second` counts the tokens
after the first, `first_token_seconds` is the time from the prompt's ids to the first new id, `load_seconds` the time
of from_pretrained, `peak_rss_mib` the largest resident size of the whole process.

The loop is written out instead of `generate`, which spends a millisecond or two a token on bookkeeping.
"""

import argparse
import json
import os
import resource
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import GPT2LMHeadModel
from transformers.utils import logging


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="directory with config.json and weights")
    parser.add_argument("--prompt-ids", default="464,1468,17180,5509", help="comma-separated token ids")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()

    start = time.perf_counter()
    model = GPT2LMHeadModel.from_pretrained(args.model, dtype=torch.float32).eval()
    loaded = time.perf_counter()

    ids = torch.tensor([[int(i) for i in args.prompt_ids.split(",")]])
    generated, times, cache = [], [], None
    with torch.inference_mode():
        for _ in range(args.max_new_tokens):
            out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            generated.append(ids.item())
            times.append(time.perf_counter())

    rest = times[-1] - times[0]
    print(
        json.dumps(
            {
                "framework": f"PyTorch {torch.__version__.split('+')[0]}",
                "tokens_per_second": (len(times) - 1) / rest if rest > 0 else None,
                "first_token_seconds": times[0] - loaded,
                "load_seconds": loaded - start,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "threads": args.threads,
                "generated_ids": generated,
            }
        )
    )


if __name__ == "__main__":
    main()
