"""Computes transformers' logits and greedy continuation of a LLaMA in a GGUF file, such as SmolLM2-135M-Instruct.

    python tools/check_smollm2.py model.gguf [--prompt TEXT | --ids 1,4093,...] [--out logits.safetensors]

The weights are gguf-py's dequantization, in float32. A prompt becomes one user message of the file's chat template,
with a generation prompt, tokenized by the file's tokenizer (as transformers reads it); --ids needs neither. The file
of --out has input_ids [1, t], logits [1, t, vocab] of every position, and greedy_ids [at most --steps], which end
with an end token if one is reached.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gguf_llama
import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from transformers import AutoTokenizer, GenerationConfig

PROMPT = "What is the capital of France? Answer in one sentence."


def tokenizer_of(file: Path):
    """Returns the tokenizer as transformers reads it from the file, with the file's chat template; None if transformers
    cannot."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except Exception as error:
        print(f"transformers reads no tokenizer: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    tokenizer.chat_template = gguf_llama.Metadata(GGUFReader(file))("tokenizer.chat_template")
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--prompt", default=PROMPT, help="what the user says (default: %(default)s)")
    parser.add_argument("--ids", help="token ids with commas between, in place of a prompt")
    parser.add_argument("--steps", type=int, default=32, help="greedy tokens (default 32)")
    parser.add_argument("--out", type=Path, help="where logits and ids go")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    tokenizer = tokenizer_of(args.file)
    if args.ids:
        ids = [int(i) for i in args.ids.split(",")]
    elif tokenizer is None:
        sys.exit("without a tokenizer the prompt must be given as --ids")
    else:
        messages = [dict(role="user", content=args.prompt)]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        print(json.dumps(text, ensure_ascii=False))
    print(f"ids: {','.join(map(str, ids))}")

    start = time.perf_counter()
    model = gguf_llama.load(args.file)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, read in {time.perf_counter() - start:.1f} s")
    input_ids = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids).logits
        generated = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=GenerationConfig(
                max_new_tokens=args.steps,
                do_sample=False,
                eos_token_id=model.config.eos_token_id,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            ),
        )
    greedy = generated.sequences[0, len(ids) :]
    best = torch.stack(generated.logits)[:, 0].topk(2).values
    print(f"greedy: {','.join(map(str, greedy.tolist()))}")
    print(f"smallest lead of the best over the second: {(best[:, 0] - best[:, 1]).min():.4f}")
    if tokenizer is not None:
        print(json.dumps(tokenizer.decode(greedy), ensure_ascii=False))
    if args.out:
        tensors = {"input_ids": input_ids, "logits": logits.contiguous(), "greedy_ids": greedy.clone()}
        save_file(tensors, args.out)


if __name__ == "__main__":
    main()
