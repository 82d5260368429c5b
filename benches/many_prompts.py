"""Continues 64 prompts of unequal lengths with grove and with transformers, for several batch sizes.

    cargo build --bin grove
    python benches/many_prompts.py --program target/debug/grove

The model has the sizes of GPT-2 small, random weights, and the tokenizer of the shipped GPT-2. All tokens are the most likely
ones, and no text ends early.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

SHIPPED = pathlib.Path(__file__).parent.parent / "models/assets/gpt2-austen"
WORDS = "the old apple tree stood by a river and nobody knew why it was there until spring came over hills with rain".split()


def make_model(directory):
    torch.manual_seed(0)
    vocab_size = json.loads((SHIPPED / "config.json").read_text())["vocab_size"]
    sizes = GPT2Config(vocab_size=vocab_size, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(sizes).save_pretrained(directory)
    shutil.copy(SHIPPED / "tokenizer.json", directory)


def make_prompts():
    random.seed(1)
    return [" ".join(random.choices(WORDS, k=random.choice([4, 8, 12, 20, 40, 60]))) for _ in range(64)]


def run_grove(program, model, prompts, batch_size, tokens):
    """Returns the seconds without loading, and the texts."""
    file, output = model / "prompts.txt", model / "texts.jsonl"
    file.write_text("\n".join(prompts))
    command = [program, "generate", "--model", model, "--file", file, "--output", output, "--ignore-eos"]
    command += ["--batch-size", str(batch_size), "--max-new-tokens", str(tokens), "--temperature", "0"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    speed = float(said.rsplit(" tokens per second", 1)[0].rsplit(" ", 1)[1])
    texts = [json.loads(line)["text"] for line in output.read_text().splitlines()]
    return len(prompts) * tokens / speed, texts


def run_transformers(model, tokenizer, prompts, batch_size, tokens):
    """Returns the seconds, and the texts."""
    start, texts = time.perf_counter(), []
    for first in range(0, len(prompts), batch_size):
        batch = tokenizer(prompts[first : first + batch_size], return_tensors="pt", padding=True)
        ids = model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        texts += tokenizer.batch_decode(ids[:, batch.input_ids.shape[1] :])
    return time.perf_counter() - start, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="path of the program grove")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each text")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn; the table has the fastest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        make_model(directory)
        prompts, count = make_prompts(), 64 * options.tokens
        model = GPT2LMHeadModel.from_pretrained(directory).eval()
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), padding_side="left")
        tokenizer.pad_token_id = 0
        print("| batch size | grove, tokens/s | transformers | grove is faster by | equal texts |")
        print("|---:|---:|---:|---:|---:|")
        for batch_size in options.batch_sizes:
            times, theirs = [], []
            for _ in range(options.rounds):
                seconds, texts = run_grove(options.program, directory, prompts, batch_size, options.tokens)
                times.append(seconds)
                seconds, their_texts = run_transformers(model, tokenizer, prompts, batch_size, options.tokens)
                theirs.append(seconds)
            equal = sum(text == their for text, their in zip(texts, their_texts))
            ours, them = count / min(times), count / min(theirs)
            print(f"| {batch_size} | {ours:.0f} | {them:.0f} | {ours / them:.2f} | {equal} of 64 |", flush=True)


if __name__ == "__main__":
    main()
