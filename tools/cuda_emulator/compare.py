#!/usr/bin/env python3
"""Runs an example on the CPU and on the emulated CUDA device, and compares the JSON output.

    tools/cuda_emulator/compare.py gpt2 --prompt "A tree" --max-new-tokens 8
    tools/cuda_emulator/compare.py --tolerance 1e-2 bert --dtype f16

Numbers may differ by `--tolerance` (1e-3) relative to the larger one, or by 1e-6; strings and integers must be equal.
Fields with times are ignored. Options before the example are passed to `emulate` too: `--backwards`. The exit status
is 1 if anything differs."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

EMULATE = Path(__file__).parent / "emulate"
OF_TIME = ("seconds", "_ms", "_ratio", "per_second", "first_run")


def run(command: list[str]) -> object:
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {ended.returncode}")
    return json.loads(ended.stdout)


def differences(cpu: object, cuda: object, tolerance: float, path: str = "") -> list[str]:
    """Yields all differences, each with its path."""
    if isinstance(cpu, dict) and isinstance(cuda, dict) and cpu.keys() == cuda.keys():
        named = [name for name in cpu if not name.endswith(OF_TIME)]
        return [d for name in named for d in differences(cpu[name], cuda[name], tolerance, f"{path}.{name}")]
    if isinstance(cpu, list) and isinstance(cuda, list) and len(cpu) == len(cuda):
        return [d for i in range(len(cpu)) for d in differences(cpu[i], cuda[i], tolerance, f"{path}[{i}]")]
    if isinstance(cpu, float) and isinstance(cuda, float):
        same = abs(cpu - cuda) <= max(1e-6, tolerance * max(abs(cpu), abs(cuda)))
    else:
        same = cpu == cuda
    return [] if same else [f"{path or 'the result'}: {cpu} on the CPU, {cuda} on CUDA"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--backwards", action="store_true")
    parser.add_argument("example")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    example = ["cargo", "run", "--quiet", "--example", options.example, "--", *options.arguments, "--json"]
    emulate = [str(EMULATE), *(["--backwards"] if options.backwards else [])]
    found = differences(run(example), run([*emulate, *example, "--backend", "cuda"]), options.tolerance)
    if found:
        sys.exit("\n".join([f"{options.example} differs:", *found]))
    print(f"{options.example}: the same on the emulated CUDA device as on the CPU")


if __name__ == "__main__":
    main()
