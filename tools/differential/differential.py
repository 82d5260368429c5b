"""Compares grove's programs with the reference libraries on random cases.

    python tools/differential/differential.py --programs target/debug/examples [--seed SEED] [--count COUNT] [--family NAME]...
    python tools/differential/differential.py --programs target/debug/examples --case FOLDER/case.json

A case is drawn from a seed: a family, a valid configuration over the keys of the reference class, tiny random weights, their
file format, a tokenizer, a text and options; some have a LoRA adapter. The reference libraries (transformers,
sentence-transformers, timm, torchvision, peft) and grove read the same files. Each case has one of these outcomes:

    equal    losses, tokens, texts, vectors and scores agree
    refused  grove names the key, file or option that it does not support
    wrong    anything else: different values, a crash, a hang, an error that names no key
    invalid  the reference rejects the case; it is not counted, and another one is drawn

A wrong case is reduced by dropping keys while it stays wrong. The smallest case is saved in the folder `--out`, with
`case.json`, the files of the model, and the command that repeats it. Ends with counts by family and the refused keys by frequency.
The exit status is 1 if a case is wrong.
"""

import argparse
import collections
import copy
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}

from draws import Draws
from programs import Invalid, Programs, Refused, Wrong

MODULES = {
    **dict.fromkeys(["gpt2", "gpt_neo", "llama", "mistral", "qwen2", "qwen3"], "decoders"),
    **dict.fromkeys(["bert", "distilbert", "roberta"], "encoders"),
    "decoder_classifier": "classifiers",
    "sentence": "sentences",
    **dict.fromkeys(["vit", "resnet", "dinov2", "timm", "torchvision"], "vision"),
}
# Parts of a case that cannot be dropped.
NEEDED = {"family", "weights", "sizes", "ask"}
# Draws of one case until one is valid.
ATTEMPTS = 500
# Timeout of one case in seconds, including the reference.
PATIENCE = 180


def outcome(case: dict, folder: Path, programs: Programs) -> tuple[str, str]:
    """Returns the outcome of a case and its reason. The folder is created anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module = importlib.import_module(MODULES[case["family"]])

    def expired(*_):
        raise Invalid("the reference takes too long")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(PATIENCE)
    try:
        module.check(case, folder, programs)
        return "equal", ""
    except Wrong as error:
        return "wrong", str(error)
    except Refused as error:
        return "refused", f"{error.key}: {error.sentence}"
    except Invalid as error:
        return "invalid", str(error)
    except Exception:
        return "invalid", "a fault of this program: " + traceback.format_exc()[-1500:]
    finally:
        signal.alarm(0)


def places(value, path: tuple = ()) -> list[tuple]:
    """Returns the paths of all keys that can be dropped, outer keys first."""
    if not isinstance(value, dict) or path[-1:] == ("added_tokens_decoder",) or "content" in value:
        return []
    own = [path + (key,) for key in value if path or key not in NEEDED]
    return own + [place for key, part in value.items() for place in places(part, path + (key,))]


def without(case: dict, path: tuple) -> dict:
    smaller = copy.deepcopy(case)
    part = smaller
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return smaller


def kind_of(reason: str) -> str:
    """Returns the start of a reason, which identifies the failure."""
    return " ".join(reason.split()[:2])


def shrink(case: dict, reason: str, folder: Path, programs: Programs) -> tuple[dict, str]:
    """Returns the smallest case that fails in the same way."""
    progress = True
    while progress:
        progress = False
        for path in places(case):
            try:
                smaller = without(case, path)
            except KeyError:
                continue
            if path[-1] in ("prompt", "ids", "images", "texts"):
                continue
            now, why = outcome(smaller, folder, programs)
            if now == "wrong" and kind_of(why) == kind_of(reason):
                case, reason, progress = smaller, why, True
    return case, reason


def report(case: dict, reason: str, seed: str, out: Path, programs: Programs, shrinks: bool) -> str:
    """Saves a failing case and returns the report."""
    place = out / f"{case['family']}_{seed}"
    if shrinks:
        case, reason = shrink(case, reason, place, programs)
    outcome(case, place, programs)
    (place / "case.json").write_text(json.dumps(case, indent=1, ensure_ascii=False) + "\n")
    command = f"{sys.executable} {Path(__file__).resolve()} --programs {programs.folder} --case {place / 'case.json'}"
    (place / "repeat.sh").write_text(command + "\n")
    (place / "reason.txt").write_text(reason + "\n")
    rest = {key: case[key] for key in case if key not in ("weights", "sizes")}
    return f"wrong: {reason}\n  {json.dumps(rest, ensure_ascii=False)}\n  repeat: {command}"


def draw(seed: str, families: list[str]) -> dict:
    draws = Draws(seed)
    family = draws.choice(families)
    return importlib.import_module(MODULES[family]).draw(draws, family)


def work(arguments: tuple) -> list[tuple]:
    """Runs one draw, and redraws until one is valid."""
    number, options = arguments
    import torch

    torch.set_num_threads(1)
    programs = Programs(Path(options.programs))
    reason = "no case was drawn"
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(ATTEMPTS):
            seed = f"{options.seed}-{number}" + (f"-{attempt}" if attempt else "")
            case = draw(seed, options.family or list(MODULES))
            if options.having and options.having not in case:
                continue
            what, reason = outcome(case, Path(folder) / "case", programs)
            if what == "invalid":
                if options.verbose or "fault of this program" in reason:
                    print(f"{seed} {case['family']} invalid: {reason}", file=sys.stderr, flush=True)
                continue
            said = reason
            if what == "wrong":
                said = report(case, reason, seed, Path(options.out), programs, not options.no_shrink)
            return seed, case["family"] + (" with adapter" if "adapter" in case else ""), what, said, attempt
    return f"{options.seed}-{number}", "none", "invalid", reason, ATTEMPTS


def summary(results: list[tuple]) -> dict:
    """Returns counts by family, and the refused keys by frequency."""
    counts = collections.defaultdict(collections.Counter)
    keys = collections.Counter()
    for _, family, what, said, _ in results:
        counts[family][what] += 1
        if what == "refused":
            keys[said.split(":")[0]] += 1
    return {"families": {name: dict(counts[name]) for name in sorted(counts)}, "refused": dict(keys.most_common())}


def table(found: dict) -> str:
    lines = ["| family | draws | equal | refused | wrong |", "|---|---:|---:|---:|---:|"]
    total = collections.Counter()
    for name, counts in found["families"].items():
        total.update(counts)
        lines.append(row(name, counts))
    lines.append(row("all", total))
    if found["refused"]:
        lines += ["", "| refused | cases |", "|---|---:|"] + [
            f"| `{key}` | {count} |" for key, count in found["refused"].items()
        ]
    return "\n".join(lines)


def row(name: str, counts: dict) -> str:
    numbers = [counts.get(what, 0) for what in ("equal", "refused", "wrong")]
    return f"| {name} | {sum(numbers)} | " + " | ".join(map(str, numbers)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--programs",
        required=True,
        metavar="DIR",
        help="folder of the built examples gpt2, gpt_neo, llama, bert, vit and resnet; the program grove is beside it",
    )
    parser.add_argument("--seed", default="0", help="seed of the cases (0)")
    parser.add_argument("--count", type=int, default=100, help="number of valid cases (100)")
    parser.add_argument(
        "--family",
        action="append",
        choices=list(MODULES),
        help="draw this family only; can be given several times (all)",
    )
    parser.add_argument("--having", metavar="KEY", help="draw cases with this key only, such as adapter")
    parser.add_argument("--jobs", type=int, default=1, help="processes that draw at the same time (1)")
    parser.add_argument(
        "--out", default="target/differential", metavar="DIR", help="folder of the wrong cases (target/differential)"
    )
    parser.add_argument("--results", metavar="FILE", help="write each outcome into this file, a JSON object a line")
    parser.add_argument(
        "--case", metavar="FILE", help="run the case of this file instead, and keep its files beside it"
    )
    parser.add_argument("--no-shrink", action="store_true", help="keep wrong cases as they were drawn")
    parser.add_argument("--verbose", action="store_true", help="say why cases are invalid, and each refusal")
    options = parser.parse_args()
    options.programs = str(Path(options.programs).resolve())
    options.out = str(Path(options.out).resolve())
    if options.case:
        file = Path(options.case).resolve()
        what, reason = outcome(json.loads(file.read_text()), file.parent / "again", Programs(Path(options.programs)))
        print(what, reason)
        sys.exit(what == "wrong")
    begun, results = time.time(), []
    log = open(options.results, "a") if options.results else None
    # Each process imports the reference libraries only once.
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for result in pool.imap_unordered(work, ((number, options) for number in range(options.count))):
            results.append(result)
            seed, family, what, said, _ = result
            if what in ("wrong", "invalid") or (options.verbose and what == "refused"):
                print(f"{seed} {family} {said if what == 'wrong' else what + ': ' + said}", flush=True)
            if log:
                log.write(json.dumps(result) + "\n")
                log.flush()
            if len(results) % 100 == 0:
                print(
                    f"[{len(results)} of {options.count} after {time.time() - begun:.0f} s]",
                    file=sys.stderr,
                    flush=True,
                )
    print(table(summary(results)))
    sys.exit(any(what == "wrong" for _, _, what, _, _ in results))


if __name__ == "__main__":
    main()
