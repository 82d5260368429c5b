"""Compares grove's and transformers' losses of a GPT-2 that grove trained.

    python tools/check_finetuned.py DIR TEXT [--program target/debug/examples/train_gpt2]

DIR is the model (`--output`'s `model`), TEXT a text file. transformers loads model and tokenizer from the directory
alone, as a user would. Its loss of the text, in windows of the model's context and with the end token after the text,
must be within 1e-4 of the example's with --evaluate; otherwise the exit status is 1.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def loss_of(directory: Path, text: str) -> tuple[float, int]:
    """Returns the mean loss over the tokens after the first, and their number."""
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    wrong = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
    if wrong:
        sys.exit(f"{directory}: {wrong}")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer(text, verbose=False).input_ids
    if tokenizer.decode(ids) != text:
        sys.exit(f"{directory}: the tokenizer does not give the text back")
    if tokenizer.eos_token_id is not None:
        ids.append(tokenizer.eos_token_id)
    context, total = model.config.n_positions, 0.0
    with torch.inference_mode():
        for start in range(0, len(ids) - 1, context):
            window = torch.tensor([ids[start : start + context + 1]])
            logits = model.eval()(window[:, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum").item()
    return total / (len(ids) - 1), len(ids) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("text", type=Path)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--program", default=f"{target}/debug/examples/train_gpt2", help="default: %(default)s")
    args = parser.parse_args()

    command = [args.program, "--evaluate", "--model", str(args.dir), "--data", str(args.text), "--json"]
    ours = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    # Without newline translation: Python would turn \r\n into \n.
    loss, tokens = loss_of(args.dir, args.text.read_bytes().decode())
    apart = abs(ours["loss"] - loss)
    same = apart <= 1e-4 and ours["tokens"] == tokens
    print(
        f"{'equal' if same else 'DIFFERENT'}: grove {ours['loss']:.6f} of {ours['tokens']} tokens, "
        f"transformers {loss:.6f} of {tokens}; apart by {apart:.1e}"
    )
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
