#!/usr/bin/env python3
"""Counts the launches of warm programs on a wgpu device, per token and per training step, from CubeCL's log of executed
kernels.

    tools/wgpu_launches.py               a Markdown table
    tools/wgpu_launches.py --kernels     with the launches of each kernel

A row is the difference of two runs with different numbers of tokens or steps, divided by the difference of these
numbers. Any Vulkan device works, including Mesa's software device. Because that has no buffers of more than 128 MiB,
the models are narrow, which does not change the launches per layer, and autotuning is minimal. Needs a build with the
feature wgpu, which is made if missing."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "cuda_emulator"))
import launches  # noqa: E402
import weights  # noqa: E402


def executed(folder: Path, example: str, arguments: list[str]) -> Counter[str]:
    """Returns the number of launches of each kernel in a run."""
    log = folder / "kernels.log"
    log.unlink(missing_ok=True)
    # CubeCL reads its configuration from the working directory.
    (folder / "cubecl.toml").write_text(f'[profiling]\nlogger = {{ level = "minimal", file = "{log}" }}\n')
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")).resolve()
    command = [str(target / "debug/examples" / example), "--backend", "wgpu", "--autotune", "minimal", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "GROVE_CACHE": str(folder / "cache")}
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, cwd=folder)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stderr[-2000:]}")
    return Counter(line for line in log.read_text().splitlines() if line.startswith("Executing "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    examples = [word for example in ["gpt2", "llama", "train_gpt2"] for word in ["--example", example]]
    subprocess.run(["cargo", "build", "--quiet", "--features", "wgpu", *examples], check=True, cwd=HERE.parent)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights.write_model("gpt2_narrow", folder)
        decoding = ["--ignore-eos", "--max-new-tokens"]
        training = [*launches.training(96, 32, 2), "--log-every", "1", "--steps"]
        rows = {
            "GPT-2, 12 layers of 384, a token": ("gpt2", ["--model", name, "--prompt-ids", "1,2,3,4", *decoding], 8, 16),
            "llama-austen (6 layers), a token": ("llama", ["--prompt", "A tree", *decoding], 8, 16),
            "train step, 12 layers of 96": ("train_gpt2", training, 3, 6),
        }
        print("| | launches |\n|---|---|")
        for row, (example, arguments, less, more) in rows.items():
            # The first run also launches candidates of autotuning; later runs use the cached choice.
            _, few, many = (executed(folder, example, [*arguments, str(n)]) for n in (less, less, more))
            many.subtract(few)
            print(f"| {row} | {many.total() / (more - less):g} |", flush=True)
            if options.kernels:
                for kernel, count in many.most_common():
                    if count:
                        print(f"{count / (more - less):10g}  {kernel}")


if __name__ == "__main__":
    main()
