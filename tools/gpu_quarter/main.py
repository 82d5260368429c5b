"""Runs the steps of a session on a GPU machine, the most important ones first.

    tools/gpu_quarter.sh run --minutes 8 --out DIR           all steps, until the time is over
    tools/gpu_quarter.sh run --minutes 6 --out DIR2 --begin-with DIR      the steps that are not finished in DIR
    tools/gpu_quarter.sh run train parity --minutes 5 --out DIR           only these steps, even if they are finished
    tools/gpu_quarter.sh run --smoke --minutes 5 --out DIR   tiny sizes, as a smoke test

DIR gets results.json, summary.md and logs.tar.gz, after each step and each row. A failed step leaves its error
message and does not stop the other steps; the exit status is then 1, and 2 for wrong arguments.
"""

import argparse
import hashlib
import json
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from session import FAREWELL, ROOT, Failure, OutOfTime, Session, write
from steps import PLAN, PROFILED, STEPS
from tables import all_tables
from workers import works


def unpack(pack: Path, given: Path | None) -> tuple[Path, dict]:
    """Returns the work folder with the program, and the manifest of the pack. Each pack has its own folder."""
    manifest = pack / "manifest.json"
    if not manifest.is_file() or not (pack / "grove.xz").is_file():
        raise Failure(f"there is no pack in {pack}: make one with tools/gpu_quarter.sh pack")
    name = hashlib.sha256(manifest.read_bytes()).hexdigest()[:12]
    work = (given or Path(tempfile.gettempdir()) / "grove_gpu_quarter_work").resolve() / name
    work.mkdir(parents=True, exist_ok=True)
    program = work / "grove"
    if not program.exists():
        draft = work / "grove.new"
        try:
            with lzma.open(pack / "grove.xz") as source, draft.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except (lzma.LZMAError, EOFError) as error:
            raise Failure(f"{pack / 'grove.xz'} is damaged ({error}): pack it again") from error
        draft.chmod(0o755)
        draft.rename(program)
    kernels = pack / "kernels.tar.xz"
    if kernels.is_file() and not (work / "kernels").exists():
        with tarfile.open(kernels) as tar:
            tar.extractall(work / "kernels.new", **(dict(filter="data") if hasattr(tarfile, "data_filter") else {}))
        (work / "kernels.new").rename(work / "kernels")
    return work, json.loads(manifest.read_text())


def run_step(session: Session, name: str, limit: float) -> dict:
    step, begun = STEPS[name], time.monotonic()
    session.step = name
    until, session.until = session.until, min(session.until, begun + limit)
    print(f"==> {name}", flush=True)
    try:
        state, message = "done", step.run(session)
    except OutOfTime as failure:
        state, message = "partial", str(failure)
    except Failure as failure:
        state, message = "failed", str(failure)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        state, message = "failed", f"{type(error).__name__}: {error}"
    finally:
        session.until = until
    seconds = time.monotonic() - begun
    print(f"==> {name}: {state} after {seconds:.0f} s{f': {message}' if message else ''}", flush=True)
    return {"state": state, "seconds": round(seconds, 1), "message": message or ""}


def torch_device(session: Session) -> str:
    """Returns PyTorch's device: the GPU, or the CPU if PyTorch finds none."""
    code = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
    done = session.execute("torch", [session.python, "-c", code], 60)
    return done.stdout.split()[-1] if done.code == 0 and done.stdout.split() else "cpu"


def run(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    seconds = 60 * options.minutes
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results: dict = {"steps": {}}
    for folder in [options.begin_with, out]:
        if folder and (folder / "results.json").is_file():
            results = json.loads((folder / "results.json").read_text())
            break
    pack = Path(os.environ.get("GROVE_GPU_PACK", ROOT / ".gpu_quarter"))
    work, manifest = unpack(pack, options.work)
    session = Session(
        work=work,
        out=out,
        python=shutil.which(options.python) or options.python,
        device="cpu",
        smoke=options.smoke,
        until=begun + seconds - FAREWELL,
        results=results | {"pack": manifest, "smoke": options.smoke},
        autotune=options.autotune,
        dtypes=options.dtypes,
    )
    if options.begin_with and (logs := options.begin_with / "logs.tar.gz").is_file():
        with tarfile.open(logs) as tar:
            tar.extractall(work, **(dict(filter="data") if hasattr(tarfile, "data_filter") else {}))
    # The shipped model is found relative to ROOT.
    session.environment |= {"CARGO_MANIFEST_DIR": str(ROOT), "RUST_BACKTRACE": "0", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    session.device = torch_device(session)
    states = session.results["steps"]
    names = options.steps or [name for name in STEPS if states.get(name, {}).get("state") != "done"]
    session.results.setdefault("costs", {}).update(works(session))
    failed = False
    for name in names:
        if session.left() < 5:
            print(f"==> {name}: not begun, the time is over", flush=True)
            continue
        # The last step gets all remaining time.
        limit = session.left() if name == names[-1] else max(20, STEPS[name].share * seconds)
        states[name] = run_step(session, name, limit)
        failed |= states[name]["state"] == "failed"
        session.save()
        write(out / "summary.md", all_tables(session.results))
    print(f"{out / 'summary.md'} has the tables; {time.monotonic() - begun:.0f} s in all", flush=True)
    return 1 if failed else 0


def tables(options: argparse.Namespace) -> int:
    path = options.out / "results.json"
    if not path.is_file():
        raise Failure(f"{options.out} has no results of a session (results.json)")
    write(options.out / "summary.md", all_tables(json.loads(path.read_text())))
    print(options.out / "summary.md")
    return 0


def lacking(rows) -> int:
    """Names the rows of the steps that the benchmark lacks."""
    known = {row["name"] for row in json.load(rows)["rows"]}
    lost = [name for names, _ in PLAN.values() for name in names if name not in known]
    lost += [name for name, _ in PROFILED if name not in known]
    if lost:
        raise Failure(f"the benchmark has no row {lost[0]!r}: mend the lists in steps.py")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_quarter.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("list", help="the steps, in their order")
    listed.add_argument("--rows", type=argparse.FileType(), help="output of `bench --dry-run --json`: is each row there?")
    runs = commands.add_parser("run", help="steps, on the GPU machine")
    runs.add_argument("steps", nargs="*", metavar="STEP", help="see `list`; without any, all that are not done")
    runs.add_argument("--minutes", type=float, required=True, metavar="N", help="end after this time")
    runs.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the results")
    runs.add_argument("--begin-with", type=Path, metavar="DIR", help="the results of an earlier run, to which these are added")
    runs.add_argument("--python", default="python3", help="Python that has PyTorch and transformers (python3)")
    runs.add_argument("--autotune", metavar="LEVEL", help="effort of grove's choice among kernels, for parity and rows (balanced)")
    runs.add_argument("--dtypes", type=lambda text: text.split(","), metavar="NAMES", help="rows of these alone: f32,bf16,tf32")
    runs.add_argument("--smoke", action="store_true", help="tiny sizes")
    runs.add_argument("--work", type=Path, metavar="DIR", help="folder of the program and of caches (the system's temporary one)")
    commands.add_parser("tables", help="tables from results").add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name in getattr(options, "steps", []):
        if name not in STEPS:
            parser.error(f"there is no step {name}: `list` names them")
    if getattr(options, "minutes", 1) < 0.5:
        parser.error("--minutes is at least 0.5")
    if getattr(options, "begin_with", None) and not (options.begin_with / "results.json").is_file():
        parser.error(f"--begin-with {options.begin_with}: it has no results.json")
    return options


def main() -> int:
    options = arguments()
    try:
        match options.command:
            case "list":
                for name, step in STEPS.items():
                    print(f"{name:10} {step.about}")
                return lacking(options.rows) if options.rows else 0
            case "run":
                return run(options)
            case _:
                return tables(options)
    except (Failure, OSError) as error:
        print(f"gpu_quarter: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
