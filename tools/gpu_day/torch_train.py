"""Steps of training a GPT-2 as the example train_gpt2 makes them: AdamW, clipping, dropout, random tokens; with bf16 in
mixed precision, with tf32 in f32 whose products may round to TF32. One JSON object at the end.

    python tools/gpu_day/torch_train.py DIR --form compile --dtype f32 --dropout 0.1 --batch 8 --tokens 1024 --steps 30
"""

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="directory with a config.json")
    parser.add_argument("--form", choices=["eager", "compile"], required=True)
    parser.add_argument("--dtype", choices=["f32", "tf32", "bf16"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()

    import torch
    from torch.nn import functional as F
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if options.dtype == "tf32" else "highest")
    rate, device = options.dropout, torch.device(options.device)
    config = GPT2Config.from_pretrained(
        options.model, resid_pdrop=rate, embd_pdrop=rate, attn_pdrop=rate, use_cache=False, dtype=torch.float32
    )
    plain = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").float().to(device).train()
    model = torch.compile(plain) if options.form == "compile" else plain
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    ids = torch.randint(config.vocab_size, (options.batch, options.tokens + 1), device=device)
    half = lambda: torch.autocast(device.type, torch.bfloat16) if options.dtype == "bf16" else nullcontext()

    def step() -> float:
        with half():
            logits = model(ids[:, :-1]).logits
            loss = F.cross_entropy(logits.view(-1, config.vocab_size).float(), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    seconds = []
    for _ in range(options.steps):
        begun = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begun)
    # The first half compiles, and lets the clock settle.
    median = statistics.median(seconds[options.steps // 2 :])
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    result = dict(tokens_per_second=options.batch * options.tokens / median, first_step_seconds=seconds[0])
    print(json.dumps(result | dict(device_peak_bytes=peak, version=f"PyTorch {torch.__version__}")))


if __name__ == "__main__":
    main()
