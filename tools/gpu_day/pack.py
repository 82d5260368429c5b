"""Packs what a GPU machine needs that has no cargo: programs, CUDA's headers, and with --whole also scripts and fixtures.

    tools/gpu_day.sh pack                      for a machine that gets the working tree as well
    tools/gpu_day.sh pack --whole              for any other machine
    tools/gpu_day.sh pack --programs FOLDER    without building, from FOLDER/bench, FOLDER/tests/models/gpt2, ...
    tools/gpu_day.sh pack --check              whether the programs that it would build are still called so
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ["bench", "gpt2", "llama", "train_gpt2"]
TESTS = {
    "backend": ["attention", "gelu", "masked", "matmul", "precision", "rows", "windows"],
    "layers": ["parity", "precision"],
    "models": ["gpt2", "llama"],
}
PARTS = [*EXAMPLES, *(f"tests/{crate}" for crate in TESTS)]
# Archives by kind of step: a call of a lent machine carries the archives of its steps alone. Programs of one archive
# share much of their code, which is stored once.
ARCHIVES = {
    "bench": ["bench"],
    "generate": ["gpt2", "llama"],
    "train": ["train_gpt2"],
    **{f"tests_{crate}": [f"tests/{crate}"] for crate in TESTS},
}
# CubeCL's kernels include these; each wheel's folder of headers and the parts of it that they need.
WHEELS = {
    "nvidia-cuda-runtime-cu12==12.8.90": [("nvidia/cuda_runtime/include/", [""])],
    "nvidia-cuda-nvcc-cu12==12.8.93": [("nvidia/cuda_nvcc/include/", ["crt/"])],
    "nvidia-cuda-cccl-cu12==12.8.90": [("nvidia/cuda_cccl/include/", ["cuda/", "nv/"])],
}
COMPILER = "nvidia-cuda-nvrtc-cu12==12.8.93"
WHOLE = ["tools/gpu_day.sh", "tools/gpu_day", "benches/peers", *(f"{crate}/tests/fixtures" for crate in TESTS)]
# Size limit of the files that are carried to a lent machine, and a dictionary that holds all programs, so that shared
# parts are stored once.
CARRIED = 64 << 20
DICTIONARY = 512 << 20


class Sentence(Exception):
    """An end with a message for a person."""


def mebibytes(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def cargo(arguments: list[str]) -> dict[str, Path]:
    """Runs cargo, and gives the executables by the folder of their crate and their name."""
    command = ["cargo", *arguments, "--message-format=json-render-diagnostics"]
    print("running", *command[:-1], flush=True)
    found = {}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            message = json.loads(line)
            if message.get("executable"):
                crate = Path(message["manifest_path"]).parent
                name = message["target"]["name"]
                found[f"{crate.name}/{name}" if crate != ROOT else name] = Path(message["executable"])
    if process.returncode != 0:
        raise Sentence("cargo failed: see above")
    return found


def build(examples: list[str], tests: dict[str, list[str]]) -> dict[str, Path]:
    """All programs by their name in the archive. The whole workspace is selected, so that features are those of others."""
    programs = {}
    if examples:
        named = [argument for name in examples for argument in ("--example", name)]
        built = cargo(["build", "--workspace", *named])
        programs = {f"programs/{name}": built[name] for name in examples}
    if tests:
        targets = sorted({name for names in tests.values() for name in names})
        named = [argument for name in targets for argument in ("--test", name)]
        features = ",".join(f"grove-{crate}/cuda_tests" for crate in tests)
        built = cargo(["test", "--no-run", "--workspace", *named, "--features", features])
        programs |= {f"tests/{crate}/{name}": built[f"{crate}/{name}"] for crate in tests for name in tests[crate]}
    return programs


def check() -> None:
    """Refuses names of programs that have gone."""
    examples = [file.stem for file in ROOT.glob("examples/*.rs")]
    gone = [f"examples/{name}" for name in EXAMPLES if name not in examples]
    for crate, names in TESTS.items():
        folder = ROOT / crate / "tests"
        there = lambda name: (folder / f"{name}.rs").is_file() or (folder / name / "main.rs").is_file()
        gone += [f"{crate}/tests/{name}" for name in names if not there(name)]
    if gone:
        raise Sentence(f"there is no {gone[0]} any more: mend the lists of programs in {Path(__file__).name}")


def prebuilt(folder: Path, examples: list[str], tests: dict[str, list[str]]) -> dict[str, Path]:
    programs = {f"programs/{name}": folder / name for name in examples}
    programs |= {f"tests/{crate}/{name}": folder / "tests" / crate / name for crate in tests for name in tests[crate]}
    missing = [str(path) for path in programs.values() if not path.is_file()]
    if missing:
        raise Sentence(f"there is no program {missing[0]}: leave --programs out to build it, or leave it out with --only")
    return programs


def strip(programs: dict[str, Path], folder: Path) -> None:
    for name, program in programs.items():
        stripped = folder / name
        stripped.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["strip", "--strip-all", "-o", stripped, program], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Sentence(f"strip (of binutils) did not work on {program}: {error}") from error


def wheel(requirement: str) -> zipfile.ZipFile:
    """A wheel of PyPI, which stays in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grove/gpu_day"
    cache.mkdir(parents=True, exist_ok=True)
    name, version = requirement.replace("-", "_").split("==")
    if not list(cache.glob(f"{name}-{version}-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", cache]
        platform = [] if sys.platform == "linux" else ["--platform", "manylinux2014_x86_64"]
        done = subprocess.run([*command, *platform, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            raise Sentence(f"pip did not get {requirement} ({last}): with --no-headers the machine's own are used")
    return zipfile.ZipFile(next(cache.glob(f"{name}-{version}-*.whl")))


def headers(folder: Path) -> None:
    """CUDA's headers, as a toolkit has them."""
    for requirement, parts in WHEELS.items():
        with wheel(requirement) as archive:
            for member in archive.namelist():
                for prefix, wanted in parts:
                    rest = member.removeprefix(prefix)
                    if rest != member and rest.startswith(tuple(wanted)) and not rest.endswith(("/", ".py")):
                        path = folder / "cuda/include" / rest
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(archive.read(member))


def compiler(folder: Path) -> None:
    """NVRTC and its built-in headers, under the names that are looked for."""
    target = folder / "cuda/lib64"
    target.mkdir(parents=True)
    with wheel(COMPILER) as archive:
        for member in archive.namelist():
            name = Path(member).name
            if ".alt." not in name and name.startswith(("libnvrtc.so", "libnvrtc-builtins.so")):
                (target / name).write_bytes(archive.read(member))
    (target / "libnvrtc.so").symlink_to("libnvrtc.so.12")


def archive(folder: Path, names: list[str], path: Path) -> None:
    """Files and folders of a folder, small files first, so that they do not lie between programs that share code."""
    found = [file for name in names for file in [folder / name, *(folder / name).rglob("*")]]
    files = sorted((file for file in found if not file.is_dir()), key=lambda file: file.lstat().st_size)
    size = sum(file.stat().st_size for file in files)
    dictionary = min(DICTIONARY, max(1 << 20, 1 << (size - 1).bit_length()))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": dictionary}]
    with lzma.open(path, "wb", format=lzma.FORMAT_XZ, filters=filters) as stream, tarfile.open(None, "w", stream) as tar:
        for file in files:
            tar.add(file, file.relative_to(folder).as_posix())


def git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def tree_size() -> int | None:
    """Bytes of what travels with the working tree: tracked files, and others that git does not ignore."""
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if names is None:
        return None
    files = [ROOT / name for name in names.split("\0") if name]
    return sum(file.lstat().st_size for file in files if file.is_file())


def pack(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    check()
    if options.check:
        print("every program is there")
        return
    examples = [name for name in EXAMPLES if name in options.only]
    tests = {crate: names for crate, names in TESTS.items() if f"tests/{crate}" in options.only}
    programs = prebuilt(options.programs, examples, tests) if options.programs else build(examples, tests)
    target = options.folder.resolve()
    if target.exists() and not (target / "manifest.json").is_file() and any(target.iterdir()):
        raise Sentence(f"{target} holds something else than a pack: name another --folder")
    with tempfile.TemporaryDirectory(prefix="grove-gpu-day-") as name:
        folder = Path(name)
        strip(programs, folder)
        if not options.no_headers:
            headers(folder)
        if options.nvrtc:
            compiler(folder)
        sizes = {name: (folder / name).stat().st_size for name in programs}
        print(f"compressing {mebibytes(sum(sizes.values()))} of programs, some minutes", flush=True)
        new = target.with_name(target.name + ".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        if (folder / "cuda").is_dir():
            archive(folder, ["cuda"], new / "cuda.tar.xz")
        for name, parts in ARCHIVES.items():
            held = [program for program in programs if program.removeprefix("programs/").startswith(tuple(parts))]
            if held:
                archive(folder, held, new / f"{name}.tar.xz")
    commit = (git("describe", "--always", "--dirty") or "unknown").strip()
    manifest = {"commit": commit, "packed": time.strftime("%Y-%m-%d %H:%M"), "programs": sizes, "tests": tests}
    (new / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    if options.whole:
        for name in WHOLE:
            source, copy = ROOT / name, new / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy)
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    archives = {file.name: file.stat().st_size for file in sorted(target.glob("*.tar.xz"))}
    print(f"{target}: {mebibytes(sum(archives.values()))}, of {commit}, after {time.monotonic() - begun:.0f} s")
    tree = tree_size()
    # With the headers, and a little for the manifest and results that travel back.
    always = (tree or 0) + archives.get("cuda.tar.xz", 0) + (1 << 20)
    for name, bytes in archives.items():
        room = ""
        if tree is not None and not options.whole:
            fits = "fits" if always + bytes <= CARRIED else "DOES NOT FIT"
            room = f"; with the working tree {fits} into {mebibytes(CARRIED)}"
        print(f"  {name:24} {mebibytes(bytes):>10}{room}")
    if not options.whole and any(always + bytes > CARRIED for bytes in archives.values()):
        print(
            "for what does not fit, models/assets can stay behind: `git sparse-checkout set --no-cone '/*' '!/models/assets/'`\n"
            "takes it out of the working tree for the day, and `git sparse-checkout disable` brings it back"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_day.sh pack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".gpu_day", help="where to (default: .gpu_day)")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="programs that are built already")
    parser.add_argument("--whole", action="store_true", help="scripts and fixtures too, for a machine without the tree")
    parser.add_argument(
        "--only",
        metavar="NAMES",
        type=lambda text: text.split(","),
        default=PARTS,
        help=f"only these, with commas between (default: {','.join(PARTS)})",
    )
    parser.add_argument("--no-headers", action="store_true", help="leave CUDA's headers out")
    parser.add_argument("--nvrtc", action="store_true", help="CUDA's run-time compiler too (25 MiB more)")
    parser.add_argument("--check", action="store_true", help="only look whether the programs are still called so")
    options = parser.parse_args()
    for name in options.only:
        if name not in PARTS:
            parser.error(f"--only {name}: it is one or more of {', '.join(PARTS)}")
    try:
        pack(options)
    except Sentence as sentence:
        print(f"gpu_day: {sentence}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"gpu_day: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
