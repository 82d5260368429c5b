"""Packs the program `grove`, its measuring scripts and a small model: all that a GPU machine without cargo needs.

    tools/gpu_quarter.sh pack                    builds and packs the program in .gpu_quarter
    tools/gpu_quarter.sh pack --program FILE     packs an existing build
"""

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from session import ROOT, Failure

# Assets of the programs that need no other model or data.
ASSETS = ["gpt2-austen", "llama-austen", "rnn-austen", "bert-austen", "mnist-resnet", "digits", "images"]
FILES = ["tools/gpu_quarter.sh", "tools/gpu_quarter", "benches/peers", *(f"models/assets/{name}" for name in ASSETS)]
LIMIT = 45 << 20


def mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def build() -> Path:
    """Builds the program with the features of every other build of the workspace."""
    command = ["cargo", "build", "--workspace", "--bin", "grove"]
    print("running", *command, flush=True)
    with subprocess.Popen([*command, "--message-format=json-render-diagnostics"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        messages = [json.loads(line) for line in process.stdout]
    found = [Path(message["executable"]) for message in messages if message.get("executable")]
    if process.returncode != 0 or not found:
        raise Failure("cargo failed: see above")
    return found[-1]


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def pack(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    program = options.program or build()
    target = options.folder.resolve()
    if target.exists() and not (target / "manifest.json").is_file() and any(target.iterdir()):
        raise Failure(f"{target} has other files than a pack: name another --folder")
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="grove-gpu-quarter-") as name:
        stripped = Path(name) / "grove"
        try:
            subprocess.run(["strip", "--strip-all", "-o", stripped, program], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failure(f"strip (of binutils) failed on {program}: {error}") from error
        size = stripped.stat().st_size
        print(f"compressing {mebibytes(size)}, a minute or two", flush=True)
        with stripped.open("rb") as source, lzma.open(new / "grove.xz", "wb", preset=options.level) as compressed:
            shutil.copyfileobj(source, compressed, 1 << 20)
    with tarfile.open(new / "files.tar.xz", "w:xz", preset=6) as tar:
        for name in FILES:
            tar.add(ROOT / name, name, filter=lambda member: None if "__pycache__" in member.name else member)
    shutil.copy2(ROOT / "tools/gpu_quarter.sh", new / "gpu_quarter.sh")
    manifest = {"commit": commit(), "packed": time.strftime("%Y-%m-%d %H:%M"), "program_bytes": size}
    (new / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    whole = sum(file.stat().st_size for file in target.iterdir())
    print(f"{target}: {mebibytes(whole)}, of {manifest['commit']}, after {time.monotonic() - begun:.0f} s")
    if whole > LIMIT:
        raise Failure(f"that is more than the {mebibytes(LIMIT)} that are to be carried")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_quarter.sh pack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".gpu_quarter", help="folder of the pack (default: .gpu_quarter)")
    parser.add_argument("--program", type=Path, metavar="FILE", help="the program grove, built already")
    parser.add_argument("--level", type=int, default=9, choices=range(10), metavar="0-9", help="effort of compressing (9)")
    options = parser.parse_args()
    try:
        pack(options)
    except (Failure, OSError) as error:
        print(f"gpu_quarter: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
