"""Compiles the kernels of a session ahead of time, on the emulated device with NVIDIA's run-time compiler: a session of
minutes should measure, not compile. The pack includes the kernels as kernels.tar.xz.

    tools/gpu_quarter.sh compile --nvrtc LIB/libnvrtc.so.13 --cuda FOLDER

LIB and FOLDER belong to a CUDA toolkit, or to the PyPI packages nvidia-cuda-nvrtc, nvidia-cuda-runtime,
nvidia-cuda-crt and nvidia-cuda-cccl (site-packages/nvidia/cu13), of the version on the GPU machine. The compute
capability is 9.0 unless --capability is given. A kernel takes 0.3 to 3 seconds, and all of them some hours; --limit
stops earlier.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from session import ROOT, Failure, side_by_side
from steps import PLAN, PROGRAMS, parity_jobs

EMULATE = ROOT / "tools/cuda_emulator/emulate"


def jobs(program: Path, dtype: str, only: list[str]) -> list[tuple[str, list]]:
    """Returns the names and commands of a dtype: the rows of the steps, and parity."""
    listed = subprocess.run([program, "bench", "--dry-run", "--json"], capture_output=True, text=True, check=True).stdout
    works = {row["name"]: row["work"] for row in json.loads(listed)["rows"]}
    precision = dict(precision="highest") if dtype == "f32" else {}
    found = []
    for step, (names, of_step) in PLAN.items():
        if dtype in of_step and step in only:
            for name in names:
                spec = dict(row=works[name], form="cuda", threads=1, device="cuda", device_index=0, dtype=dtype)
                found.append((name, ["bench", "--worker", json.dumps(spec | precision)]))
    if "programs" in only and dtype == "f32":
        found += [(line, [*line.split(), "--json", "--backend", "cuda"]) for line, _ in PROGRAMS]
    if "parity" in only:
        found += [(name, ["parity", "--backend", "cuda", *options]) for name, options in parity_jobs() if name.split()[1] == dtype]
    return found


def compile(options: argparse.Namespace) -> None:
    until = time.monotonic() + 60 * options.limit
    folder = options.folder.resolve()
    environment = os.environ | {
        "CUDA_PATH": str(options.cuda),
        "CARGO_MANIFEST_DIR": str(ROOT),
        # Candidates of autotuning are compiled too.
        "CUBECL_AUTOTUNE_LEVEL": "balanced",
    }
    caches = folder.with_name(folder.name + "_kernels")

    def compile_all(dtype: str) -> None:
        for name, command in jobs(options.program, dtype, options.only):
            left = until - time.monotonic()
            if left < 5:
                print(f"{dtype}: the time is over, before {name}", flush=True)
                return
            begun = time.monotonic()
            emulate = [EMULATE, "--kernels", options.nvrtc, "--capability", options.capability, options.program, *command]
            try:
                # Kernels are not executed, so results are meaningless.
                subprocess.run(
                    [str(part) for part in emulate],
                    cwd=ROOT,
                    input='{"quit": true}\n',
                    env=environment | {"GROVE_CACHE": str(caches / dtype)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    timeout=left,
                )
            except subprocess.TimeoutExpired:
                pass
            print(f"{dtype}, {name}: {time.monotonic() - begun:.0f} s", flush=True)

    # Each dtype has its own cache, written by one program at a time.
    side_by_side([lambda dtype=dtype: compile_all(dtype) for dtype in options.dtypes], os.cpu_count() or 1)
    with tarfile.open(folder / "kernels.tar.xz", "w:xz", preset=6) as tar:
        for dtype in options.dtypes:
            for file in (caches / dtype).glob("kernels/*/cuda/**/*"):
                if file.is_file() and file.suffix != ".lock":
                    tar.add(file, file.relative_to(caches))
    print(f"{folder / 'kernels.tar.xz'}: {(folder / 'kernels.tar.xz').stat().st_size / (1 << 20):.1f} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_quarter.sh compile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nvrtc", type=Path, required=True, metavar="FILE", help="NVIDIA's libnvrtc.so.13 or .12")
    parser.add_argument("--cuda", type=Path, required=True, metavar="FOLDER", help="folder with CUDA's headers in include")
    parser.add_argument("--program", type=Path, required=True, metavar="FILE", help="the program grove that was packed")
    parser.add_argument("--folder", type=Path, default=ROOT / ".gpu_quarter", help="folder of the pack (default: .gpu_quarter)")
    parser.add_argument("--capability", default="9.0", help="compute capability of the GPU (9.0)")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["f32", "bf16"], help="f32,bf16")
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[*PLAN, "programs", "parity"],
        metavar="STEPS",
        help=f"of these steps ({','.join([*PLAN, 'programs', 'parity'])})",
    )
    parser.add_argument("--limit", type=float, default=60, metavar="MINUTES", help="end after this time (60)")
    options = parser.parse_args()
    try:
        if not (options.folder / "manifest.json").is_file():
            raise Failure(f"there is no pack in {options.folder}: make one first")
        compile(options)
    except (Failure, OSError, subprocess.CalledProcessError) as error:
        print(f"gpu_quarter: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
