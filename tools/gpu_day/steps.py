"""The steps of a GPU day. Each gives a sentence, or nothing; what it found lies in the results folder."""

import json
import platform
import re
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import toolkit
import weights
from day import Day, DeviceMemory, Done, OutOfTime, Sentence, last_json, table

HERE = Path(__file__).resolve().parent
GROUPS = ["operations", "recurrent", "models", "training", "rest"]
# Seconds that a bench row may take beyond the moment from which no other is begun.
ROW = 150


@dataclass
class Step:
    about: str
    limit: int
    run: Callable[[Day], str | None]


# ------------------------------------------------------------------------------------------------------------- machine


MODULES = ["torch", "torchvision", "transformers", "triton", "jax", "jaxlib", "optax", "numpy", "safetensors"]
VERSIONS = f"""
import importlib.metadata as m, json, sys
found = dict(python=sys.version.split()[0])
for name in {MODULES!r}:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def machine(day: Day) -> str | None:
    """What the machine is; whether there is a GPU that grove computes on comes last."""
    said = {}
    commands = {
        "nvidia_smi": ["nvidia-smi"],
        "nvidia_smi_all": ["nvidia-smi", "-q"],
        "nvcc": ["nvcc", "--version"],
        "lscpu": ["lscpu"],
        "memory": ["free", "-g"],
        "disk": ["df", "-h", day.work],
        "libraries": ["ldconfig", "-p"],
    }
    for name, command in commands.items():
        done = day.execute(name, command, 30)
        said[name] = done.stdout if done.code == 0 else None
    query = ["--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]
    done = day.execute("gpus", ["nvidia-smi", *query], 30)
    found = {"gpus": done.stdout.splitlines() if done.code == 0 else [], "system": platform.platform()}
    done = day.execute("versions", [day.python, "-c", VERSIONS], 120)
    found["packages"] = last_json(done.stdout) if done.code == 0 else {}
    found["pack"] = json.loads((day.pack / "manifest.json").read_text())
    if said["nvcc"]:
        found["nvcc"] = said["nvcc"].strip().splitlines()[-1]
    cuda = re.search(r"CUDA Version: *([\d.]+)", said["nvidia_smi"] or "")
    found["cuda_of_driver"] = cuda[1] if cuda else None
    cpu = re.search(r"Model name: *(.*)", said["lscpu"] or "")
    found["cpu"] = cpu[1] if cpu else None
    # The logs keep the details of each figure.
    day.save("machine.json", found)
    found["toolkit"] = toolkit.choose(day)
    day.save("machine.json", found)
    return f"grove computes with {found['toolkit']}"


def machine_table(day: Day) -> str:
    found = day.load("machine.json", None)
    if found is None:
        return ""
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    missing = [name for name, version in found["packages"].items() if not version]
    rows = [
        ["GPU", "; ".join(found["gpus"]) or "none that nvidia-smi tells of"],
        ["CUDA of the driver", found["cuda_of_driver"]],
        ["toolkit", found.get("toolkit")],
        ["CPU", found["cpu"]],
        ["system", found["system"]],
        ["packages", ", ".join(packages) or None],
        ["not installed", ", ".join(missing) or None],
        ["grove", f"{found['pack']['commit']}, packed {found['pack']['packed']}"],
    ]
    return "## The machine\n\n" + table(["", ""], rows, left=2)


# -------------------------------------------------------------------------------------------------------------- parity


def parity(crate: str) -> Callable[[Day], str | None]:
    """Runs the tests of a crate that compute on CUDA and compare with references."""

    def run(day: Day) -> str | None:
        names = json.loads((day.pack / "manifest.json").read_text())["tests"].get(crate)
        if not names:
            raise Sentence(f"the pack has no tests/{crate}: pack it with tools/gpu_day.sh pack")
        toolkit.choose(day)
        # Fixtures are found from the crate's folder.
        folder = day.root / crate
        if not (folder / "tests/fixtures").is_dir():
            raise Sentence(f"{folder}/tests/fixtures is not there: pack with --whole, or run in the repository")
        found = day.load("parity.json", {})
        kept = found.setdefault(crate, {}) if not day.smoke else {}
        for name in names[:1] if day.smoke else names:
            program = day.program(f"tests/{crate}/{name}")
            done = day.execute(f"{crate}_{name}", [program, "::cuda", "--color", "never"], 300, cwd=folder)
            results = re.findall(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", done.stdout, re.MULTILINE)
            kept[name] = {
                "passed": [test for test, result in results if result == "ok"],
                "failed": [test for test, result in results if result == "FAILED"],
                "status": done.code,
                "seconds": round(done.seconds, 1),
                "log": done.log,
            }
            day.save("parity.json", found | {crate: kept})
        broken = [name for name, result in kept.items() if result["status"] != 0]
        passed = sum(len(result["passed"]) for result in kept.values())
        if broken:
            raise Sentence(f"{passed} tests passed; not all of {', '.join(broken)} did: parity.json and logs have more")
        return f"{passed} tests passed"

    return run


def parity_table(day: Day) -> str:
    found = day.load("parity.json", {})
    rows = [
        [
            f"{crate}/tests/{name}.rs",
            len(result["passed"]),
            len(result["failed"]),
            result["seconds"],
            ", ".join(result["failed"]) or ("" if result["status"] == 0 else f"status {result['status']}: {result['log']}"),
        ]
        for crate, tests in found.items()
        for name, result in tests.items()
    ]
    if not rows:
        return ""
    return "## Parity tests on CUDA\n\n" + table(["", "passed", "failed", "seconds", "which failed"], rows)


# --------------------------------------------------------------------------------------------------------------- bench


def has(day: Day, *modules: str) -> bool:
    code = f"import importlib.util as u, sys; sys.exit(0 if all(u.find_spec(n) for n in {modules!r}) else 3)"
    return day.execute(f"has_{modules[0]}", [day.python, "-c", code], 60).code == 0


def bench(kind: str, group: str) -> Callable[[Day], str | None]:
    """A part of the benchmark table, beside those peers that are there."""

    def run(day: Day) -> str | None:
        toolkit.choose(day)
        torch = has(day, "torch", "torchvision", "transformers")
        jax = has(day, "jax", "optax")
        missing = [name for name, there in [("PyTorch with transformers", torch), ("JAX with optax", jax)] if not there]
        peers = [name for name, there in [("torch", torch), ("jax", jax)] if there]
        output = day.out / f"bench_{kind}{'_smoke' if day.smoke else ''}"
        command = [day.program("programs/bench"), "--backend", "cuda", "--group", group, "--resume", "--output", output]
        command += ["--dtype", "bf16" if kind == "bf16" else "f32", "--seconds", 1, "--rounds", 3]
        command += ["--precision", "high"] if kind == "tf32" else ["--precision", "highest"] if kind == "f32" else []
        command += ["--peers", ",".join(peers), "--python", day.python] if peers else []
        command += ["--smoke"] if day.smoke else []
        command += ["--only", day.rows] if day.rows else []
        row = min(ROW, int(day.left() / 2))
        command += ["--timeout", max(10, row - 30), "--limit", max(1, int(day.left()) - row)]
        # Rows that it has are kept, if its time ends in the middle of one.
        done = day.execute("bench", command, day.left()).check()
        told = [f"without {' and '.join(missing)}, which {day.python} does not have"] if missing else []
        if left := [line for line in done.stderr.splitlines() if line.startswith("not measured within --limit")]:
            raise OutOfTime("; ".join([left[0].removesuffix("; --resume goes on with them"), *told]))
        if day.rows:
            raise OutOfTime("; ".join([f"only rows with {day.rows}", *told]))
        return "; ".join(told)

    return run


def bench_tables(day: Day) -> str:
    """The tables of bench, without the part that has every program."""
    text = ""
    for kind, about in KINDS.items():
        for folder, sizes in [(f"bench_{kind}", ""), (f"bench_{kind}_smoke", ", tiny sizes")]:
            report = day.out / folder / "results.md"
            if report.is_file():
                text += f"## The benchmark table, {about}{sizes}\n\n{report.read_text().split('## Every program')[0]}\n"
    return text


# ------------------------------------------------------------------------------------------------------------ generate


def peer_device(day: Day) -> str:
    """Where PyTorch computes: on the GPU, or with --smoke also on a CPU. Raises what is missing otherwise."""
    code = "import transformers, torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
    done = day.execute("torch", [day.python, "-c", code], 120)
    if done.code != 0:
        raise Sentence(f"without PyTorch and transformers, which {day.python} does not have ({done.last_line()})")
    device = done.stdout.split()[-1]
    if device == "cpu" and not day.smoke:
        raise Sentence("without PyTorch, which finds no CUDA device")
    return device


def measured(day: Day, kept: dict, name: str, command: list, limit: float, **environment: str) -> dict | None:
    """A program's JSON with the device's memory, kept under a name; a failure is kept as a sentence."""
    try:
        with DeviceMemory() as memory:
            done = day.execute(name, command, limit, **environment).check()
        kept[name] = last_json(done.stdout) | {"device_mebibytes": memory.mebibytes, "process_seconds": done.seconds}
        return kept[name]
    except OutOfTime:
        raise
    except Sentence as sentence:
        kept[name] = {"error": str(sentence)}
        return None


def failures(kept: dict) -> list[str]:
    return [result["error"] for result in kept.values() if "error" in result]


def generate(example: str, model: str, dtypes: list[str]) -> Callable[[Day], str | None]:
    """Greedy continuations by an example and by transformers, of the same random weights; the third of each counts."""

    def run(day: Day) -> str | None:
        toolkit.choose(day)
        used, prompt, new_tokens = (f"{example}_tiny", 4, 6) if day.smoke else (model, 64, 128)
        folder = day.folder("models") / used
        parameters = count_and_write(day, used, folder)
        ids = ",".join(str(1 + i * 7919 % 96) for i in range(prompt))
        found = day.load("generate.json", {})
        # Measurements of an earlier call are not repeated.
        entry = found.get(model, {})
        if entry.get("smoke") != day.smoke or failures(entry.get("runs", {})) or len(entry.get("runs", {})) == 2 * len(dtypes):
            entry = {"smoke": day.smoke, "parameters": parameters, "prompt": prompt, "new_tokens": new_tokens, "runs": {}}
        runs, told = entry["runs"], []
        found[model] = entry
        for dtype in dtypes:
            name = f"{model}.{dtype}"
            if f"{name}.grove" not in runs:
                command = [day.program(f"programs/{example}"), "--backend", "cuda", "--model", folder, "--dtype", dtype]
                command += ["--prompt-ids", ids, "--max-new-tokens", new_tokens, "--ignore-eos", "--temperature", 0]
                measured(day, runs, f"{name}.grove", [*command, "--repeat", 3, "--json"], 280)
                day.save("generate.json", found)
            if f"{name}.transformers" not in runs:
                try:
                    device = peer_device(day)
                except Sentence as sentence:
                    told = [str(sentence)]
                    continue
                command = [day.python, HERE / "torch_generate.py", folder, "--dtype", dtype, "--device", device]
                command += ["--prompt-ids", ids, "--new-tokens", new_tokens, "--repeat", 3]
                measured(day, runs, f"{name}.transformers", command, 200)
                day.save("generate.json", found)
        if failures(runs):
            raise Sentence("; ".join(failures(runs)))
        return "; ".join(told)

    return run


def count_and_write(day: Day, name: str, folder: Path) -> int:
    """Writes a model of random weights, if there is room, and gives the number of its parameters."""
    _, shapes = weights.MODELS[name]()
    size = 2 * sum(weights.count(shape) for shape in shapes.values())
    free = shutil.disk_usage(folder.parent).free
    if not (folder / "complete").exists() and size > free - (1 << 30):
        raise Sentence(f"{folder.parent} has {free >> 30} GiB left, and the weights need {size / (1 << 30):.1f}: see --work")
    done = day.execute("weights", [day.python, HERE / "weights.py", name, folder], 300).check()
    return int(done.stdout)


def generate_table(day: Day) -> str:
    rows = []
    for model, entry in day.load("generate.json", {}).items():
        for name, result in entry["runs"].items():
            _, dtype, program = name.split(".")
            other = entry["runs"].get(f"{model}.{dtype}.grove", {}).get("generated_ids")
            same = None
            if program != "grove" and other and "error" not in result:
                pairs = list(zip(other, result["generated_ids"]))
                same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            first = result.get("first_run") or {}
            rows.append(
                [
                    f"{model}{', tiny sizes' if entry['smoke'] else ''}",
                    dtype,
                    program if "error" not in result else f"{program}: {result['error'][:100]}",
                    result.get("load_seconds"),
                    first.get("first_token_seconds"),
                    result.get("first_token_seconds"),
                    result.get("tokens_per_second"),
                    result.get("device_mebibytes"),
                    same,
                ]
            )
    if not rows:
        return ""
    headings = ["", "dtype", "", "load, s", "first token, cold, s", "first token, s", "tokens/s", "memory, MiB", "as grove's"]
    about = (
        "Greedy, one sequence, random weights; a prompt of 64 tokens and 128 new ones; the third time in a process counts. "
        "Memory is the GPU's, as nvidia-smi tells, beyond what was in use before. The last column says after how many tokens "
        "the texts part.\n\n"
    )
    return "## Generation\n\n" + about + table(headings, rows, left=3)


# --------------------------------------------------------------------------------------------------------------- train


def train(dtype: str) -> Callable[[Day], str | None]:
    """GPT-2 124M on random tokens, with and without dropout, beside PyTorch."""

    def run(day: Day) -> str | None:
        toolkit.choose(day)
        model = "gpt2_tiny" if day.smoke else "gpt2_124m"
        config = weights.MODELS[model]()[0]
        batch, tokens, steps = (2, 16, 4) if day.smoke else (8, 1024, 30)
        folder = day.folder(f"train/{model}")
        (folder / "config.json").write_text(json.dumps(config))
        data = folder / "random.tokens"
        weights.write_tokens(data, (steps + 2) * batch * (tokens + 1), config["vocab_size"])
        found = day.load("train.json", {})
        entry = {"smoke": day.smoke, "batch": batch, "tokens": tokens, "runs": {}}
        runs, told = entry["runs"], []
        found[dtype] = entry
        for dropout in [0.0, 0.1]:
            name = f"{dtype}_dropout_{dropout}_grove"
            output = folder / name
            shutil.rmtree(output, ignore_errors=True)
            command = [*training(day, folder, data, dtype, dropout, batch, tokens, steps), "--output", output, "--json"]
            result = measured(day, runs, name, [*command, "--log-every", max(1, steps // 10)], 280)
            if result:
                result["tokens_per_second"] = training_rate(output)
            shutil.rmtree(output, ignore_errors=True)
            day.save("train.json", found)
            try:
                device = peer_device(day)
            except Sentence as sentence:
                told = [str(sentence)]
                continue
            for form in ["eager", "compile"]:
                command = [day.python, HERE / "torch_train.py", folder, "--form", form, "--dtype", dtype, "--device", device]
                command += ["--dropout", dropout, "--batch", batch, "--tokens", tokens, "--steps", steps]
                measured(day, runs, f"{dtype}_dropout_{dropout}_PyTorch {form}", command, 150)
                day.save("train.json", found)
        if failures(runs):
            raise Sentence("; ".join(failures(runs)))
        return "; ".join(told)

    return run


def training(
    day: Day, folder: Path, data: Path, dtype: str, dropout: float, batch: int, tokens: int, steps: int
) -> list:
    """The command of a grove run."""
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    number, precision = ("f32", "high") if dtype == "tf32" else (dtype, "highest")
    command = [day.program("programs/train_gpt2"), "--backend", "cuda", "--dtype", number, "--precision", precision]
    command += ["--config", folder / "config.json"]
    command += ["--data", data, "--vocab-size", vocab, "--val-fraction", 0, "--context", tokens, "--batch-size", batch]
    return [*command, "--dropout", dropout, "--steps", steps, "--checkpoint-every", 1_000_000]


def train_table(day: Day) -> str:
    rows = []
    for dtype, entry in day.load("train.json", {}).items():
        for name, result in entry["runs"].items():
            dropout, program = re.match(r"\w+_dropout_([\d.]+)_(.*)", name).groups()
            sizes = f"{entry['batch']}x{entry['tokens']}{', tiny sizes' if entry['smoke'] else ''}"
            error = f": {result['error'][:100]}" if "error" in result else ""
            columns = [result.get("tokens_per_second"), result.get("device_mebibytes"), result.get("process_seconds")]
            rows.append([sizes, dtype, dropout, program + error, *columns])
    if not rows:
        return ""
    about = (
        "GPT-2 124M, AdamW, clipped, random tokens; tf32 is f32 whose products may round to TF32 (--precision high), bf16 is "
        "mixed precision (weights and optimizer in f32). Tokens a second of "
        "the second half of 30 steps; the process's seconds have its start and all compiling in them.\n\n"
    )
    headings = ["", "dtype", "dropout", "", "tokens/s", "memory, MiB", "process, s"]
    return "## Training\n\n" + about + table(headings, rows, left=4)


def training_rate(output: Path) -> float:
    """Tokens a second in the second half of a run: the first compiles."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    rates = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    return statistics.median(rates[len(rates) // 2 :])


# ------------------------------------------------------------------------------------------------------------- profile


UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def profiled(path: Path) -> dict[str, list[float]]:
    """Seconds of each launch of each kernel, from CubeCL's log."""
    kernels: dict[str, list[float]] = {}
    with path.open(errors="replace") as file:
        for line in file:
            if found := re.match(r"\| ([\d.]+)(ns|µs|ms|s) *\| (.*)", line):
                kernels.setdefault(found[3].strip(), []).append(float(found[1]) * UNITS[found[2]])
    return kernels


def profile(what: str) -> Callable[[Day], str | None]:
    """Launches and kernel times of a token or a step: what a longer run has more than a shorter one. CubeCL waits for each
    kernel then, so that the time of a step comes from a run without."""

    def run(day: Day) -> str | None:
        toolkit.choose(day)
        model = "gpt2_tiny" if day.smoke else "gpt2_124m"
        less, more = (4, 6) if day.smoke else (16, 48) if what == "decode" else (6, 10)
        folder = day.folder("models") / model
        count_and_write(day, model, folder)
        if what == "decode":
            command = [day.program("programs/gpt2"), "--backend", "cuda", "--model", folder, "--prompt-ids", "1,2,3,4"]
            command += ["--ignore-eos", "--temperature", 0, "--json"]
            commands = {n: [*command, "--max-new-tokens", n] for n in [less, more]}
            plain = [*commands[more], "--repeat", 3]
        else:
            batch, tokens = (2, 16) if day.smoke else (8, 1024)
            data = folder / "random.tokens"
            weights.write_tokens(data, (more + 2) * batch * (tokens + 1), weights.MODELS[model]()[0]["vocab_size"])
            commands = {n: training(day, folder, data, "f32", 0.0, batch, tokens, n) for n in [less, more]}
            output = day.folder("profile") / "run"
            shutil.rmtree(output, ignore_errors=True)
            plain = [*commands[more], "--output", output, "--log-every", 1]
        # First without, so that what is tuned and compiled is so in the others.
        done = day.execute(f"{what}_plain", plain, 250).check()
        if what == "decode":
            seconds = 1 / last_json(done.stdout)["tokens_per_second"]
        else:
            seconds = batch * tokens / training_rate(output)
            shutil.rmtree(output)
        kernels = {}
        for n in commands:
            log = day.folder("profile") / f"{what}_{n}.log"
            log.unlink(missing_ok=True)
            environment = dict(CUBECL_DEBUG_LOG=str(log), CUBECL_DEBUG_OPTION="profile")
            day.execute(f"{what}_{n}_profiled", commands[n], 250, **environment).check()
            if not log.exists() or not (found := profiled(log)):
                raise Sentence("CubeCL wrote no times of kernels to CUBECL_DEBUG_LOG")
            kernels[n] = found
            log.unlink()
        each = []
        for name, times in kernels[more].items():
            launches = (len(times) - len(kernels[less].get(name, []))) / (more - less)
            if launches > 0:
                # The last ones of a longer run, when nothing is tuned any more.
                median = statistics.median(times[-max(1, round(launches)) :])
                each.append({"kernel": name, "launches": launches, "median_seconds": median})
        each.sort(key=lambda kernel: -kernel["launches"] * kernel["median_seconds"])
        found = day.load("profile.json", {})
        found[what] = {"smoke": day.smoke, "runs": [less, more], "seconds": seconds, "kernels": each}
        day.save("profile.json", found)
        return None

    return run


def profile_table(day: Day) -> str:
    text = ""
    for what, entry in day.load("profile.json", {}).items():
        kernels = entry["kernels"]
        launches = sum(kernel["launches"] for kernel in kernels)
        busy = sum(kernel["launches"] * kernel["median_seconds"] for kernel in kernels)
        unit = "token, GPT-2 124M" if what == "decode" else "training step, GPT-2 124M, 8x1024, f32"
        rows = [
            [kernel["kernel"][:80], kernel["launches"], kernel["launches"] * kernel["median_seconds"] * 1e6]
            for kernel in kernels[:15]
        ]
        text += (
            f"## Launches of a {unit}{' (tiny sizes)' if entry['smoke'] else ''}\n\n{launches:.0f} launches, {busy * 1e3:.3g} ms in "
            f"kernels by CubeCL's profile, of runs of {entry['runs'][0]} and {entry['runs'][1]}; without the profile it takes "
            f"{entry['seconds'] * 1e3:.3g} ms.\n\n" + table(["kernel", "launches", "µs"], rows) + "\n"
        )
    return text


# ----------------------------------------------------------------------------------------------------------------- all


KINDS = {"f32": "f32 at the highest precision", "bf16": "bf16", "tf32": "f32 with TF32 (--precision high)"}
CALL = 540

STEPS = {
    "machine": Step("GPU, driver, CUDA, versions; which CUDA toolkit grove computes with", 400, machine),
    **{
        f"parity_{crate}": Step(f"grove-{crate}'s tests against references, on CUDA", CALL, parity(crate))
        for crate in ["backend", "layers", "models"]
    },
    "generate_gpt2": Step("GPT-2 124M: tokens/s and memory, f32 and bf16, beside transformers", CALL, generate("gpt2", "gpt2_124m", ["f32", "bf16"])),
    "train_f32": Step("GPT-2 124M: training throughput in f32 with and without dropout, beside PyTorch", CALL, train("f32")),
    **{
        f"bench_{kind}_{group}": Step(f"benchmark table in {about}: {group}", CALL, bench(kind, group))
        for kind, about in [("f32", KINDS["f32"]), ("bf16", KINDS["bf16"])]
        for group in ["models", "training", "operations"]
    },
    "generate_llama_135m": Step("the sizes of SmolLM2-135M", CALL, generate("llama", "llama_135m", ["f32", "bf16"])),
    "generate_llama_1b": Step("the sizes of LLaMA-3.2-1B", CALL, generate("llama", "llama_1b", ["f32", "bf16"])),
    "generate_llama_8b": Step("the sizes of LLaMA-3.1-8B, bf16 (16 GB)", CALL, generate("llama", "llama_8b", ["bf16"])),
    "profile_decode": Step("launches and kernel times of a token", CALL, profile("decode")),
    "profile_train": Step("launches and kernel times of a training step", CALL, profile("train")),
    "train_bf16": Step("the same in bf16, mixed precision", CALL, train("bf16")),
    "train_tf32": Step("the same in f32 with TF32", CALL, train("tf32")),
    **{
        f"bench_{kind}_{group}": Step(f"benchmark table in {KINDS[kind]}: {group}", CALL, bench(kind, group))
        for kind in KINDS
        for group in (GROUPS if kind == "tf32" else ["recurrent", "rest"])
        if not (kind == "tf32" and group in ["recurrent", "rest"])
    },
}


def tables(day: Day, states: dict) -> None:
    """Writes summary.md."""
    rows = [[name, state["state"], state["seconds"], state["message"]] for name, state in states.items()]
    steps = "## Steps\n\n" + table(["step", "", "seconds", ""], rows, left=2)
    parts = [machine_table(day), steps, parity_table(day), generate_table(day), train_table(day), profile_table(day)]
    text = "\n".join(part for part in [*parts, bench_tables(day)] if part)
    (day.out / "summary.md").write_text(f"# A day on a GPU\n\n{text}")
