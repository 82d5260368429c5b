"""Compares a GPT-2 directory that grove wrote with its source, both loaded by transformers.

    python tools/check_gpt2_export.py DIR REFERENCE_DIR

The exit status is 1 if a tensor is missing or unexpected, or if logits differ by more than 1e-4 of the largest; else
0.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import GPT2LMHeadModel

# Buffers of old checkpoints that transformers drops.
IGNORED = (".attn.bias", ".attn.masked_bias")


def load(folder: Path) -> GPT2LMHeadModel:
    model, info = GPT2LMHeadModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {
        kind: sorted(str(name) for name in names if not str(name).endswith(IGNORED))
        for kind, names in info.items()
        if kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
    }
    if any(wrong.values()):
        sys.exit(f"{folder}: {wrong}")
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("reference_dir", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of the largest logit (default 1e-4)")
    args = parser.parse_args()
    torch.set_num_threads(1)

    ours, reference = load(args.dir), load(args.reference_dir)
    config = reference.config
    for key in ["n_embd", "n_head", "n_layer", "n_positions", "n_inner", "vocab_size", "layer_norm_epsilon",
                "activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
                "bos_token_id", "eos_token_id"]:  # fmt: skip
        if getattr(ours.config, key) != getattr(config, key):
            sys.exit(f"config.json: {key} is {getattr(ours.config, key)}, was {getattr(config, key)}")

    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(0, config.vocab_size, (2, min(16, config.n_positions)), generator=generator)
    with torch.no_grad():
        a, b = ours(input_ids).logits, reference(input_ids).logits
    difference = ((a - b).abs().max() / b.abs().max()).item()
    exact = all(torch.equal(x, y) for x, y in zip(ours.state_dict().values(), reference.state_dict().values()))
    verdict = "equal" if difference <= args.tolerance else "DIFFERENT"
    print(f"{verdict}: logits differ by {difference:.2e} of the largest; weights {'' if exact else 'not '}bit for bit the same")
    # NaN compares false, so it fails too.
    sys.exit(0 if difference <= args.tolerance else 1)


if __name__ == "__main__":
    main()
