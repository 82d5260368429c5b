"""The steps of a session, the most important ones first. Each returns a message or None; its measurements are in the
session's results."""

import json
import os
import platform
import re
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from session import ROOT, Failure, OutOfTime, Session, json_lines, kill, side_by_side
from workers import Worker, cache_of, device_folder, measure, rows_cache, specification, torch_rows, tuned, warm, works

PROMPT = "The old apple tree"
# Rows of each step. Training rows run in each dtype, the others in f32 and bf16.
TRAINING = ["train gpt2 small, 8x1024", "train vit-b/16, batch 64", "train resnet-50, batch 64", "train bert-base, 32x128"]
DECODING = [f"{model}, {batch} x 128 tokens after 64" for model in ["gpt2 small", "llama 1b"] for batch in [1, 16]]
FORWARD = ["gpt2 small, 8x1024", "vit-b/16, batch 128", "resnet-50, batch 128", "bert-base, 32x512"]
ROOFLINE = ["gemm 8192x8192x8192", "attention 8x12x1024x64 causal", "gelu 64M", "softmax 8192x8192", "gemm 512x768x3072"]
# A row that compiles for longer is left to another run.
ROW_SECONDS = 75
GROVE, EAGER, COMPILED = "grove", "PyTorch", "torch.compile"


@dataclass
class Step:
    about: str
    # Fraction of the session's time.
    share: float
    run: Callable[[Session], str | None]


# ------------------------------------------------------------------------------------------------------------- machine

VERSIONS = """
import importlib.metadata as m, json, sys
found = dict(python=sys.version.split()[0])
for name in ["torch", "torchvision", "transformers", "triton", "jax", "jaxlib", "numpy"]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def machine(session: Session) -> str | None:
    """Reports GPU, driver and CUDA, and whether grove finds a device."""
    query = ["--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]
    commands = {
        "gpus": ["nvidia-smi", *query],
        "nvidia_smi": ["nvidia-smi"],
        "nvcc": ["nvcc", "--version"],
        "lscpu": ["lscpu"],
        "libraries": ["sh", "-c", "ldconfig -p | grep -E 'cuda|nvrtc|cudnn'; ls -d /usr/local/cuda*; env | grep -i -E 'cuda|LD_LIB|VIRTUAL'"],
        "versions": [session.python, "-c", VERSIONS],
        "devices": [session.grove, "devices"],
    }
    found = {"system": platform.platform(), "cores": os.cpu_count()}
    ended = {}

    def run(name: str) -> None:
        try:
            ended[name] = session.execute(name, commands[name], 60)
        except Failure:
            pass

    side_by_side([lambda name=name: run(name) for name in commands], len(commands))
    text = lambda name: ended[name].stdout if name in ended and ended[name].code == 0 else ""
    found["gpus"] = text("gpus").splitlines()
    found["packages"] = (json_lines(text("versions")) or [{}])[0]
    found["nvcc"] = (text("nvcc").strip().splitlines() or [None])[-1]
    cuda = re.search(r"CUDA Version: *([\d.]+)", text("nvidia_smi"))
    found["cuda_of_driver"] = cuda[1] if cuda else None
    cpu = re.search(r"Model name: *(.*)", text("lscpu"))
    found["cpu"] = cpu[1] if cpu else None
    found["devices"] = text("devices")
    session.results["machine"] = found
    line = next((line for line in text("devices").splitlines() if re.match(r"\s*cuda\b", line)), "")
    return re.sub(r"\s+", " ", line.strip()) or "grove devices says nothing of cuda"


# ------------------------------------------------------------------------------------------------------------- command


def first_token(session: Session, name: str, arguments: list, cache: Path, limit: float) -> dict:
    """Runs a user's command and measures the time until the first token is on the screen."""
    command = [session.grove, "generate", "--prompt", PROMPT, *arguments]
    begun = time.monotonic()
    process = session.start(command, GROVE_CACHE=str(cache))
    process.stdin.close()
    pieces, messages, first = [], [], []

    def read() -> None:
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            pieces.append(piece)
            if not first and len(b"".join(pieces).strip()) > len(PROMPT):
                first.append(time.monotonic() - begun)

    threads = [threading.Thread(target=read), threading.Thread(target=lambda: messages.append(process.stderr.read()))]
    for thread in threads:
        thread.start()
    try:
        process.wait(max(1, min(limit, session.left())))
        late = False
    except subprocess.TimeoutExpired:
        late = True
    kill(process)
    process.wait()
    for thread in threads:
        thread.join(5)
    text, messages = b"".join(pieces).decode(errors="replace"), "".join(messages)
    seconds = time.monotonic() - begun
    session.log(name, command, f"status {process.returncode} after {seconds:.2f} s\n\n{text}\n--- messages ---\n{messages}")
    if process.returncode != 0 or "panicked at" in messages:
        last = ([line for line in messages.splitlines() if line.strip()] or ["no message"])[-1]
        raise Failure(f"{name} {'did not end in its time' if late else f'ended with status {process.returncode}'}: {last[:500]}")
    return dict(text=text, first_token_seconds=first[0] if first else None, seconds=seconds)


def command(session: Session) -> str | None:
    """Runs `grove generate --backend cuda` as the example gpt2; the text must equal that of flex."""
    found = session.results.setdefault("command", {})
    tokens = ["--max-new-tokens", 8 if session.smoke else 64, "--seed", 1]
    flex = first_token(session, "flex", tokens, session.work / "cache_flex", 60)
    found["flex"] = flex
    told = []

    def run(dtype: str) -> None:
        cache = session.work / f"cache_command_{dtype}"
        options = [*tokens, "--backend", "cuda", "--dtype", dtype]
        for start in ["cold", "warm"]:
            done = first_token(session, f"{dtype}_{start}", options, cache, 120)
            done["same_characters"] = len(os.path.commonprefix([done["text"], flex["text"]]))
            found[f"{dtype} {start}"] = done
            session.save()

    run("f32")
    told.append("the text is flex's" if found["f32 warm"]["text"] == flex["text"] else "THE TEXT IS NOT FLEX'S")
    # Each job compiles kernels on one core.
    side_by_side([lambda: run("f16"), lambda: run("bf16")], 2)
    cold, warmed = found["f32 cold"], found["f32 warm"]
    told.append(f"first token after {cold['first_token_seconds']:.2f} s cold, {warmed['first_token_seconds']:.2f} s warm")
    return "; ".join(told)


# -------------------------------------------------------------------------------------------------------------- parity

KINDS = ["training", "models", "operations", "layers"]


def parity_jobs() -> list[tuple[str, list]]:
    """Returns kinds of cases and dtypes, each with its options."""
    jobs = []
    for kind in KINDS:
        for dtype in ["f32", "bf16", "f16", "tf32"]:
            precision = ["--precision", "high" if dtype == "tf32" else "highest"]
            options = ["--kind", kind, "--dtype", "f32" if dtype == "tf32" else dtype, *precision]
            jobs.append((f"{kind} {dtype}", options))
    return jobs


def parity(session: Session) -> str | None:
    """Compares every operation, layer, model and training step with flex."""
    found = session.results.setdefault("parity", {})

    def run(name: str, options: list) -> None:
        if found.get(name, {}).get("whole"):
            return
        words = {"operations": "selu,17x19x23", "layers": "softmax 1024x1024", "models": "gpt2 small", "training": "train gpt2 small, 2x128, tiny"}
        few = ["--only", words[options[1]]] if session.smoke else []
        level = ["--autotune", session.autotune] if session.autotune else []
        command = [session.grove, "parity", "--backend", "cuda", "--json", *options, *few, *level]
        cache = str(cache_of(session, f"parity {name}", name.split()[1]))
        done = session.execute(f"parity_{name}", command, session.left(), GROVE_CACHE=cache, RAYON_NUM_THREADS="2")
        lines = json_lines(done.stdout)
        cases = [line for line in lines if "tolerance" in line]
        # The last line is the summary of all cases. A panic on another thread causes errors in single cases.
        whole = any("cases" in line for line in lines)
        found[name] = {"whole": whole, "cases": cases, "seconds": done.seconds, "message": None if whole else done.message()}
        session.save()

    device_folder(session)
    tasks = [lambda name=name, options=options: run(name, options) for name, options in parity_jobs()]
    try:
        side_by_side(tasks, 2 if session.smoke else max(2, os.cpu_count() or 2))
    except OutOfTime:
        pass
    failed = [case for part in found.values() for case in part["cases"] if not passed(case)]
    partial = [name for name, part in found.items() if not part["whole"]]
    told = f"{sum(len(part['cases']) for part in found.values())} cases, {len(failed)} further away than rounding explains"
    if partial:
        raise OutOfTime(f"{told}; not whole: {', '.join(partial)}")
    return told


def passed(case: dict) -> bool:
    return case["distance"] is not None and case["distance"] <= case["tolerance"]


# -------------------------------------------------------------------------------------------------------------- programs

# Commands with the models and data that ship, and the number or list of the JSON output to compare.
PROGRAMS = [
    ("generate --prompt Emma --max-new-tokens 32 --seed 1 --jit", "generated_ids"),
    ("generate --prompt Emma --max-new-tokens 32 --seed 1 --model models/assets/llama-austen", "generated_ids"),
    ("generate --prompt Emma --max-new-tokens 32 --seed 1 --model models/assets/rnn-austen", "generated_ids"),
    ("train rnn --layers 1 --hidden 128 --steps 20", "held_out_loss"),
    ("train rnn --layers 1 --hidden 128 --steps 5 --jit", "held_out_loss"),
    ("train gpt2 --steps 10", "held_out_loss"),
    ("train llama --steps 5 --jit", "held_out_loss"),
    ("train bert --steps 10", "held_out_loss"),
    ("train images --steps 3", "held_out_loss"),
    ("finetune texts --steps 5 --jit", "held_out_loss"),
    ("finetune images --steps 10", "held_out_loss"),
]


def programs(session: Session) -> str | None:
    """Runs programs on the GPU and on flex. They take few steps, because more steps amplify rounding."""
    found = session.results.setdefault("programs", {})

    def run(line: str, field: str, backend: str) -> None:
        if found.get(line, {}).get(backend, {}).get("value") is not None:
            return
        words = [ROOT / word if word.startswith("models/") else word for word in line.split()]
        command = [session.grove, *words, "--json", "--backend", backend]
        name = f"{line} {backend}"
        cache = str(cache_of(session, name, "f32"))
        done = session.execute(name, command, session.left(), GROVE_CACHE=cache, RAYON_NUM_THREADS="2")
        lines = json_lines(done.stdout)
        if done.code == 124:
            raise OutOfTime(f"{name} did not end in its time")
        message = done.message() if done.failed() or not lines else None
        value = lines[-1].get(field) if lines and message is None else None
        found.setdefault(line, {})[backend] = dict(value=value, seconds=done.seconds, message=message)
        session.save()

    device_folder(session)
    chosen = PROGRAMS[-2:-1] if session.smoke else PROGRAMS
    tasks = [lambda line=line, field=field, b=b: run(line, field, b) for b in ["cuda", "flex"] for line, field in chosen]
    late = None
    try:
        side_by_side(tasks, 2 if session.smoke else max(2, os.cpu_count() or 2))
    except OutOfTime as failure:
        late = failure
    wrong = [f"{line}: {of['cuda']['message'] or 'not as on flex'}" for line, of in found.items() if len(of) == 2 and not alike(of)]
    if wrong:
        raise Failure("; ".join(wrong))
    if late:
        raise late
    return f"{len(found)} programs, all as on flex"


def alike(of: dict) -> bool:
    cuda, flex = of["cuda"]["value"], of["flex"]["value"]
    if isinstance(cuda, float) and isinstance(flex, float):
        return abs(cuda - flex) <= 1e-4 * abs(flex)
    return cuda is not None and cuda == flex


# ---------------------------------------------------------------------------------------------------------------- rows


def key_of(row: str, dtype: str, column: str) -> str:
    return f"{row}|{dtype}|{column}"


# Rows and dtypes of each measuring step.
PLAN = {
    "generate": (DECODING, ["bf16", "f32"]),
    "train": (TRAINING, ["f32", "bf16", "tf32"]),
    "forward": (FORWARD, ["f32", "bf16"]),
    "roofline": (ROOFLINE, ["f32", "bf16", "tf32"]),
}


def grove_column(session: Session) -> str:
    return f"{GROVE}, {session.autotune}" if session.autotune else GROVE


def keep(session: Session, row: str, dtype: str, column: str, found: dict) -> None:
    rows = session.results.setdefault("rows", {})
    rows[key_of(row, dtype, column)] = found | dict(row=row, dtype=dtype, column=column)
    session.save()


def is_there(session: Session, row: str, dtype: str, column: str) -> bool:
    found = session.results.get("rows", {}).get(key_of(row, dtype, column))
    return found is not None and not found.get("late")


def torch_column(session: Session, name: str, rows: list[str], dtypes: list[str], column: str, form: str, limit: float) -> str | None:
    known = works(session)
    jobs = []
    for dtype in dtypes:
        for row in rows:
            if not is_there(session, row, dtype, column) and row in known:
                spec = specification(session, known[row]["work"], dtype, form)
                jobs.append(dict(key=[row, dtype], spec=spec, seconds=0.05 if session.smoke else 0.3))
    if not jobs:
        return None
    if session.device == "cpu" and not session.smoke:
        return "without PyTorch, which finds no GPU"
    return torch_rows(session, name, jobs, limit, lambda key, found: keep(session, *key, column, found))


def rows(step: str) -> Callable[[Session], str | None]:
    def run(session: Session) -> str | None:
        names, dtypes = PLAN[step]
        dtypes = [dtype for dtype in dtypes if dtype in (session.dtypes or dtypes)]
        known = works(session)
        told = []
        column = grove_column(session)
        # If time is short, PyTorch runs first: it takes a tenth of the time.
        if message := torch_column(session, f"torch_{step}", names, dtypes, EAGER, "eager", session.left() / 2):
            told.append(f"PyTorch: {message}")
        for dtype in dtypes:
            todo = [row for row in names if row in known and not is_there(session, row, dtype, column)]
            cold = compile_rows(session, todo, dtype) if not session.smoke else {}
            for row in todo:
                if session.left() < 8:
                    raise OutOfTime("; ".join([*told, "not all rows were measured"]))
                spec = specification(session, known[row]["work"], dtype, "cuda")
                seconds = 0.05 if session.smoke else 1.0
                # The emulated device compiles each kernel with g++.
                limit = 5 * ROW_SECONDS if session.smoke else ROW_SECONDS
                found = measure(session, key_of(row, dtype, column), dtype, spec, min(limit, session.left()), seconds)
                if cold.get(row):
                    found["first"] = cold[row]["seconds"]
                tuned(session)
                keep(session, row, dtype, column, found)
        failed = {key: found for key, found in session.results.get("rows", {}).items() if found["row"] in names and "error" in found}
        told += [f"{key}: {found['error']}" for key, found in failed.items()]
        # The next run repeats these.
        if any(found.get("late") for found in failed.values()):
            raise OutOfTime("; ".join(told))
        return "; ".join(told)

    return run


def compile_rows(session: Session, names: list[str], dtype: str) -> dict[str, dict | None]:
    """Compiles the kernels of rows in parallel, one core each. Returns their first runs."""
    known, column, found = works(session), grove_column(session), {}
    limit = min(ROW_SECONDS, session.left() / 2)

    def run(row: str) -> None:
        spec = specification(session, known[row]["work"], dtype, "cuda")
        found[row] = warm(session, key_of(row, dtype, column), dtype, spec, limit)

    device_folder(session)
    if names:
        side_by_side([lambda row=row: run(row) for row in names], len(names))
    return found


def compiled(session: Session) -> str | None:
    """Runs PyTorch's compiled forms, which start slowly: training, forward passes, generation with a static cache."""
    told = [torch_column(session, "torch_generate", DECODING, ["f32", "bf16"], "generate", "generate", session.left())]
    for step in ["train", "forward"]:
        names, dtypes = PLAN[step]
        told.append(torch_column(session, f"compile_{step}", names, dtypes[:2], COMPILED, "compile", session.left()))
    told.append(torch_column(session, "generate_static", DECODING, ["bf16", "f32"], "generate, static cache", "generate_static", session.left()))
    return "; ".join(message for message in told if message)


# ------------------------------------------------------------------------------------------------------------ launches

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
PROFILED = [("gpt2 small, 1 x 128 tokens after 64", "f32"), ("train gpt2 small, 8x1024", "f32"), ("train gpt2 small, 8x1024", "bf16"), ("gpt2 small, 8x1024", "bf16")]


def profiled(text: str) -> dict[str, list[float]]:
    """Returns the seconds of each launch of each kernel, from CubeCL's log."""
    kernels: dict[str, list[float]] = {}
    for line in text.splitlines():
        if found := re.match(r"\| ([\d.]+)(ns|µs|ms|s) *\| (.*)", line):
            kernels.setdefault(found[3].strip(), []).append(float(found[1]) * UNITS[found[2]])
    return kernels


def launches(session: Session) -> str | None:
    """Counts launches and measures kernel times of one run of a row. CubeCL waits for each kernel to time it."""
    known, profiles = works(session), session.results.setdefault("launches", {})
    for row, dtype in PROFILED:
        key = key_of(row, dtype, grove_column(session))
        if key in profiles or row not in known:
            continue
        if session.left() < 8:
            raise OutOfTime("not all were profiled")
        log = session.work / "profile.log"
        log.unlink(missing_ok=True)
        spec = specification(session, known[row]["work"], dtype, "cuda")
        environment = dict(CUBECL_DEBUG_LOG=str(log), CUBECL_DEBUG_OPTION="profile")
        worker = Worker(session, f"profile {key}", spec, rows_cache(session, spec, key, dtype), **environment)
        try:
            worker.wait_for("second", time.monotonic() + session.left())
            size = log.stat().st_size if log.exists() else 0
            worker.ask({"run_seconds": 0, "max_runs": 1})
            worker.wait_for("times", time.monotonic() + 60)
            text = log.read_bytes()[size:].decode(errors="replace") if log.exists() else ""
        finally:
            worker.close()
        kernels = [
            dict(kernel=name[:120], launches=len(times), seconds=sum(times)) for name, times in profiled(text).items()
        ]
        kernels.sort(key=lambda kernel: -kernel["seconds"])
        tuned(session)
        profiles[key] = dict(launches=sum(k["launches"] for k in kernels), seconds=sum(k["seconds"] for k in kernels), kernels=kernels[:25])
        session.save()
    return None


# ----------------------------------------------------------------------------------------------------------------- XLA

FIND_PLUGIN = """
import glob, json, sys
found = [file for folder in sys.path for file in glob.glob(f"{folder}/jax_plugins/xla_cuda*/xla_cuda_plugin.so")]
print(json.dumps(dict(found=found)))
"""


def xla(session: Session) -> str | None:
    """Runs grove on JAX's CUDA plugin: the same text, and rows in comparison with CubeCL's."""
    done = session.execute("plugin", [session.python, "-c", FIND_PLUGIN], 30).check()
    plugins = json_lines(done.stdout)[-1]["found"]
    if not plugins:
        return "JAX's plugin for CUDA (jax-cuda13-pjrt) is not installed"
    environment = {"GROVE_PJRT_PLUGIN": plugins[0], "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    session.environment |= environment
    try:
        found = session.results.setdefault("xla", {"plugin": plugins[0]})
        tokens = ["--max-new-tokens", 8 if session.smoke else 64, "--seed", 1]
        run = first_token(session, "generate", [*tokens, "--backend", "xla:cuda"], session.work / "cache_xla", 100)
        flex = session.results.get("command", {}).get("flex", {}).get("text", "")
        found["generate"] = run | dict(same_characters=len(os.path.commonprefix([run["text"], flex])))
        known = works(session)
        for row, dtype in [(TRAINING[0], "f32"), (FORWARD[0], "bf16"), (TRAINING[0], "bf16"), (DECODING[0], "bf16")]:
            if row in known and not is_there(session, row, dtype, "grove, XLA") and session.left() > 10:
                spec = specification(session, known[row]["work"], dtype, "xla:cuda")
                found = measure(session, key_of(row, dtype, "grove, XLA"), dtype, spec, min(100, session.left()), 0.5)
                keep(session, row, dtype, "grove, XLA", found)
        return "the text is flex's" if run["text"] == flex else "THE TEXT IS NOT FLEX'S"
    finally:
        for name in environment:
            session.environment.pop(name)


STEPS = {
    "machine": Step("GPU, driver, CUDA, versions, grove's devices", 0.1, machine),
    "command": Step("the first command: flex's text on the GPU, seconds to the first token cold and warm; f32, f16, bf16", 0.2, command),
    "parity": Step("operations, gradients, layers, models, training steps against flex: f32, f16, bf16, TF32", 0.3, parity),
    "programs": Step("programs that train and generate, beside flex", 0.25, programs),
    "generate": Step("GPT-2 124M and LLaMA 1B: tokens/s at batch 1 and 16, beside PyTorch", 0.25, rows("generate")),
    "train": Step("a training step of GPT-2, ViT, ResNet-50, BERT in f32, bf16, TF32, beside PyTorch", 0.3, rows("train")),
    "forward": Step("forward passes of the same, f32 and bf16", 0.2, rows("forward")),
    "roofline": Step("products, attention, elementwise passes against the machine's limits", 0.15, rows("roofline")),
    "launches": Step("launches and kernel times of a text and of training steps", 0.15, launches),
    "xla": Step("XLA by JAX's CUDA plugin: the same text, training and forward rows", 0.2, xla),
    "compiled": Step("torch.compile, and transformers' generate", 0.6, compiled),
}
