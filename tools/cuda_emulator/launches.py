#!/usr/bin/env python3
"""Counts GPU calls of warm programs on the emulated CUDA device: launches, uploads and waits per token and per training
step.

    tools/cuda_emulator/launches.py               a Markdown table
    tools/cuda_emulator/launches.py --check       exit status 1 if there are more launches than the goal, or if tokens after
                                                  the first few compile a kernel, as when autotuning runs during generation

Kernels are launched but not executed, so full sizes take no time. Autotuning has no times to compare, so the choice
of kernels may differ from a GPU's, but not their number. Needs the examples gpt2, llama and train_gpt2."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import weights

HERE = Path(__file__).parent
CAPABILITY = "9.0"
TOKENS = ["--ignore-eos", "--max-new-tokens", "24"]


def training(features: int, context: int, batch: int) -> list[str]:
    """Returns the options of train_gpt2 for a model of 12 layers without evaluation."""
    sizes = ["--n-layer", "12", "--n-embd", str(features), "--n-head", "12", "--context", str(context)]
    return ["--val-fraction", "0", *sizes, "--batch-size", str(batch)]


def counts(folder: Path, example: str, arguments: list[str], last: int) -> dict[str, int]:
    log = folder / "log"
    emulate = [str(HERE / "emulate"), "--capability", CAPABILITY, "--kernels", "count", "--log", str(log)]
    command = ["cargo", "run", "--quiet", "--example", example, "--", "--backend", "cuda", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GROVE_CACHE": str(folder / "cache")}
    ended = subprocess.run([*emulate, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
    # A run checks its parameters when it ends; emulated values are not meaningful.
    if ended.returncode != 0 and "the norm of the parameters is" not in ended.stderr:
        sys.exit(f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stderr[-2000:]}")
    # Skip the first few tokens, or the first two steps.
    counted = [sys.executable, str(HERE / "counts.py"), str(log), "--json", "--last", str(last)]
    found = json.loads(subprocess.run(counted, check=True, stdout=subprocess.PIPE).stdout)
    return found["last"] | {"compiled": found["most"]["module"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights.write_model("gpt2_124m", folder)
        rows = {
            "GPT-2 124M, a token": (150, "gpt2", ["--model", name, "--prompt-ids", "1,2,3,4", *TOKENS], 20),
            "llama-austen (6 layers), a token": (110, "llama", ["--prompt", "A tree", *TOKENS], 20),
            "train step, 12 layers x 768": (1200, "train_gpt2", [*training(768, 128, 4), "--steps", "5", "--log-every", "1"], 3),
        }
        print("| | launches | goal | compiled | uploads | uploaded bytes | waits |\n|---|---|---|---|---|---|---|")
        missed, compiled = [], []
        for row, (goal, example, arguments, last) in rows.items():
            count = counts(folder, example, arguments, last)
            kinds = [count[kind] for kind in ["compiled", "upload", "uploaded_bytes", "sync"]]
            print(f"| {row} | {count['launch']} | {goal} | {' | '.join(map(str, kinds))} |")
            if count["launch"] > goal:
                missed.append(row)
            # A training run checks its parameters at the end.
            if count["compiled"] and "token" in row:
                compiled.append(row)
    if options.check and missed:
        sys.exit(f"more launches than the goal: {', '.join(missed)}")
    if options.check and compiled:
        sys.exit(f"kernels are compiled where all should be known: {', '.join(compiled)}")


if __name__ == "__main__":
    main()
