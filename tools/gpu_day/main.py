"""Runs the steps of a GPU day, and makes tables of what they found.

    tools/gpu_day.sh list
    tools/gpu_day.sh run --out FOLDER                      all steps that are not done, one after another
    tools/gpu_day.sh run bench_f32_models --out FOLDER     this one, again if it is done; rows of a table stay
    tools/gpu_day.sh run --smoke --out FOLDER              tiny sizes, to see whether everything runs
    tools/gpu_day.sh tables --out FOLDER

A step that fails leaves its logs in FOLDER/logs, and the others run all the same. The exit status is 1 then, and 2 for
wrong arguments. summary.md has all tables, summary.json says how each step went.
"""

import argparse
import hashlib
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import steps
from day import Day, OutOfTime, Sentence

ROOT = Path(__file__).resolve().parents[2]
# Of a call's time, what its end needs.
FAREWELL = 10


def pack_folder() -> Path:
    """Where the pack is: all of this folder, or a part of the working tree."""
    return ROOT if (ROOT / "manifest.json").is_file() else ROOT / ".gpu_day"


def archive_of(step: str) -> str:
    """The archive of the pack that has a step's programs; the first step runs with any."""
    kind, _, rest = step.partition("_")
    match kind:
        case "parity":
            return f"tests_{rest}"
        case "profile":
            return "generate" if rest == "decode" else rest
        case "machine":
            return "any"
    return kind


def unpack(pack: Path, given: Path | None) -> Path:
    """The work folder, with the programs of those archives of the pack that are here; another pack has another one."""
    archives = sorted(pack.glob("*.tar.xz"))
    if not archives or not (pack / "manifest.json").is_file():
        raise Sentence(f"there is no pack in {pack}: make one with tools/gpu_day.sh pack")
    name = hashlib.sha256((pack / "manifest.json").read_bytes()).hexdigest()[:12]
    work = (given or Path(tempfile.gettempdir()) / "grove_gpu_day").resolve() / name
    (work / "unpacked").mkdir(parents=True, exist_ok=True)
    for archive in archives:
        done = work / f"{archive.name}.unpacked"
        if done.exists():
            continue
        begun = time.monotonic()
        try:
            with lzma.open(archive) as stream, tarfile.open(None, "r|", stream) as tar:
                tar.extractall(work / "unpacked", **(dict(filter="tar") if hasattr(tarfile, "tar_filter") else {}))
        except (lzma.LZMAError, EOFError, tarfile.TarError) as error:
            raise Sentence(f"{archive} is damaged ({error}): pack it anew") from error
        except OSError as error:
            raise Sentence(f"{archive} cannot be unpacked to {work} ({error.strerror}): name another --work") from error
        done.touch()
        print(f"unpacked {archive.name} in {time.monotonic() - begun:.0f} s to {work}", flush=True)
    return work


def store(out: Path, path: Path) -> None:
    """All results in one file, written as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with tarfile.open(draft, "w:gz") as tar:
        tar.add(out, ".")
    draft.replace(path)


def restore(path: Path, out: Path) -> None:
    if any(out.iterdir()):
        return
    try:
        with tarfile.open(path) as tar:
            tar.extractall(out, **(dict(filter="data") if hasattr(tarfile, "data_filter") else {}))
    except tarfile.TarError as error:
        raise Sentence(f"{path} holds no results ({error}): leave --begin-with out") from error


def run_step(day: Day, name: str) -> dict:
    """A step's state, and the sentence that goes with it."""
    step, begun = steps.STEPS[name], time.monotonic()
    day.step = name
    until, day.until = day.until, min(day.until, begun + step.limit)
    print(f"==> {name}", flush=True)
    try:
        state, message = "done", step.run(day)
    except OutOfTime as sentence:
        state, message = "partial", str(sentence)
    except Sentence as sentence:
        state, message = "failed", str(sentence)
    except (OSError, ValueError, KeyError) as error:
        state, message = "failed", f"{type(error).__name__}: {error}"
    finally:
        day.until = until
    seconds = time.monotonic() - begun
    print(f"==> {name}: {state} after {seconds:.0f} s{f': {message}' if message else ''}", flush=True)
    return {"state": state, "seconds": round(seconds, 1), "message": message or "", "smoke": day.smoke}


def run(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.begin_with:
        restore(options.begin_with, out)
    pack = pack_folder()
    work = unpack(pack, options.work)
    day = Day(
        root=ROOT,
        pack=pack,
        work=work,
        out=out,
        python=shutil.which(options.python) or options.python,
        smoke=options.smoke,
        until=begun + options.limit - FAREWELL,
        rows=options.rows,
    )
    # Kernels that were compiled for other programs are not used; files of the repository are looked for in ROOT.
    day.environment |= {"GROVE_CACHE": str(work / "cache"), "CARGO_MANIFEST_DIR": str(ROOT), "RUST_BACKTRACE": "0"}
    states = day.load("summary.json", {})
    done = {name for name, state in states.items() if state["state"] == "done" and state["smoke"] == options.smoke}
    names = options.steps or [name for name in steps.STEPS if name not in done]
    failed = False
    for name in names:
        if day.left() < 15:
            print(f"==> {name}: not begun, since the time of this call is over", flush=True)
            continue
        states[name] = run_step(day, name)
        failed |= states[name]["state"] == "failed"
        day.save("summary.json", states)
        steps.tables(day, states)
        if options.archive:
            store(out, options.archive)
    print(f"{out / 'summary.md'} has the tables; {time.monotonic() - begun:.0f} s in all", flush=True)
    return 1 if failed else 0


def tables(options: argparse.Namespace) -> int:
    out = options.out.resolve()
    if not (out / "summary.json").is_file():
        raise Sentence(f"{out} holds no results of a GPU day (no summary.json)")
    day = Day(ROOT, ROOT, ROOT, out, "python3", False, float("inf"))
    steps.tables(day, day.load("summary.json", {}))
    print(out / "summary.md")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_day.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the steps, and the archive of the pack that each needs")
    runs = commands.add_parser("run", help="steps, on the GPU machine")
    runs.add_argument("steps", nargs="*", metavar="STEP", help="see `list`; without any, all that are not done")
    runs.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the results")
    runs.add_argument("--python", default="python3", help="Python that has PyTorch, transformers and JAX (python3)")
    runs.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="end after this time")
    runs.add_argument("--archive", type=Path, metavar="FILE", help="write all results to this .tar.gz after each step")
    runs.add_argument("--begin-with", type=Path, metavar="FILE", help="such a file, for an empty --out")
    runs.add_argument("--rows", metavar="WORDS", help="of the benchmark table only rows with one of these words, as bench --only")
    runs.add_argument("--smoke", action="store_true", help="tiny sizes")
    runs.add_argument("--work", type=Path, metavar="FOLDER", help="folder for what is not kept (the system's for such)")
    commands.add_parser("tables", help="tables from results").add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name in getattr(options, "steps", []):
        if name not in steps.STEPS:
            parser.error(f"there is no step {name}: `list` names them")
    if getattr(options, "limit", 60) < 30:
        parser.error("--limit is at least 30 seconds")
    return options


def main() -> int:
    options = arguments()
    try:
        match options.command:
            case "list":
                for name, step in steps.STEPS.items():
                    print(f"{name:22} {archive_of(name):14} {step.limit:4} s at most   {step.about}")
                return 0
            case "run":
                return run(options)
            case _:
                return tables(options)
    except (Sentence, OSError) as error:
        print(f"gpu_day: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.exit(main())
