"""Finds a CUDA toolkit with which grove's kernels compile: CubeCL needs CUDA's headers and NVRTC when it runs."""

import json
from pathlib import Path

from day import Day, Done, Sentence


# Without the last two, products do without tensor cores, and nothing says so.
HEADERS = ["cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cuda/barrier"]


def is_complete(home: Path) -> bool:
    """Whether a toolkit has all headers, those of CCCL where CUDA 13 has them or where CUDA 12 does."""
    return all(any((home / folder / name).exists() for folder in ["include", "include/cccl"]) for name in HEADERS)


def link_all(source: Path, target: Path) -> None:
    """Links to everything in a folder, and in those of its folders that are in the target already."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = target / file.name
        if link.is_symlink() and link.is_dir() and file.is_dir():
            other = link.resolve()
            link.unlink()
            link_all(other, link)
        if link.is_dir() and file.is_dir():
            link_all(file, link)
        elif not link.exists():
            link.symlink_to(file)


def compilers(libraries: list[Path]) -> list[Path]:
    """Folders of NVRTC, by its versions from the newest."""
    found = [file for folder in libraries for file in folder.glob("libnvrtc.so*")]
    return list(dict.fromkeys(file.parent for file in sorted(found, key=lambda file: file.name, reverse=True)))


def candidates(day: Day) -> list[tuple[str, dict[str, str]]]:
    """Environments to try, each with a name: as it is, toolkits of the system, Python's wheels, and what the pack has."""
    environment = day.environment
    old = environment.get("LD_LIBRARY_PATH", "")
    found: list[tuple[str, dict[str, str]]] = [("the environment as it is", {})]

    def add(name: str, home: Path, *libraries: Path) -> None:
        path = ":".join([*(str(folder) for folder in libraries), *([old] if old else [])])
        found.append((name, {"CUDA_PATH": str(home), "LD_LIBRARY_PATH": path}))

    named = [Path(environment[name]) for name in ["CUDA_PATH", "CUDA_HOME"] if environment.get(name)]
    systems = [*named, Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True), Path("/opt/cuda")]
    system_libraries = []
    for home in dict.fromkeys(home.resolve() for home in systems):
        libraries = compilers([home / "lib64", home / "lib", home / "targets/x86_64-linux/lib"])
        system_libraries += libraries
        if libraries and is_complete(home):
            add(f"the toolkit in {home}", home, *libraries)

    # PyTorch's wheels have NVRTC under its versioned name only, which CubeCL does not look for.
    wheels = []
    for packages in python_packages(day):
        home = day.work / "toolkits" / "wheels"
        includes = sorted(packages.glob("*/include"))
        for number, library in enumerate(compilers([*packages.glob("cu1*/lib"), *packages.glob("cuda_nvrtc/lib")])):
            links = home / f"lib{number}"
            link_all(library, links)
            versions = sorted(links.glob("libnvrtc.so.*"), reverse=True)
            if versions and not (links / "libnvrtc.so").exists():
                (links / "libnvrtc.so").symlink_to(versions[0].resolve())
            wheels.append(links)
        for include in includes:
            link_all(include, home / "include")
        if wheels and is_complete(home):
            add("Python's wheels", home, *wheels)

    carried = day.work / "unpacked/cuda"
    if (carried / "include").is_dir():
        own = [carried / "lib64"] if (carried / "lib64").is_dir() else []
        for library in [*own, *system_libraries, *wheels]:
            add(f"the pack's headers with the compiler in {library}", carried, library)
        found.append(("the pack's headers", {"CUDA_PATH": str(carried)}))
    return found


def python_packages(day: Day) -> list[Path]:
    """The folder `nvidia` of a Python's packages."""
    code = "import json, site, sys; print(json.dumps([*sys.path, *site.getsitepackages()]))"
    done = day.execute("packages", [day.python, "-c", code], 60)
    if done.code != 0:
        return []
    folders = [Path(name) / "nvidia" for name in json.loads(done.stdout.splitlines()[-1]) if name]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def attempt(day: Day, name: str, environment: dict[str, str]) -> Done:
    """Computes something with one of the programs that are here, in f32 and bf16."""
    for dtype in ["f32", "bf16"]:
        for kind, command in trials(day, dtype):
            done = day.execute(f"toolkit_{name}_{kind}_{dtype}", command, 120, **environment)
            if done.failed():
                return done
    return done


def trials(day: Day, dtype: str) -> list[tuple[str, list]]:
    """Short computations: an operation and a product with it as bench's harness asks for them, or a test."""
    programs = day.work / "unpacked"
    if (bench := programs / "programs/bench").is_file():
        rows = [dict(kind="softmax", rows=64, columns=256), dict(kind="gemm", m=128, k=256, n=256)]
        spec = dict(form="cuda", threads=1, device="cuda", device_index=0, dtype=dtype)
        return [(row["kind"], [bench, "--worker", json.dumps(spec | dict(row=row))]) for row in rows]
    if (gpt2 := programs / "programs/gpt2").is_file():
        options = ["--backend", "cuda", "--dtype", dtype, "--max-new-tokens", 2, "--json"]
        return [("gpt2", [gpt2, *options, "--prompt", "A tree grows in the middle of the garden"])]
    if (train := programs / "programs/train_gpt2").is_file():
        sizes = ["--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--vocab-size", 280, "--context", 16, "--batch-size", 2]
        data = ["--data", day.root / "models/assets/gpt2-austen/held_out.txt", "--val-fraction", 0, "--steps", 1]
        return [("train_gpt2", [train, "--backend", "cuda", "--dtype", dtype, *data, *sizes, "--json"])]
    tests = sorted(path for path in (programs / "tests").glob("*/*") if path.is_file())
    if not tests:
        raise Sentence("the pack that is here has no programs: carry one of its archives besides cuda.tar.xz")
    return [("test", [tests[0], "::cuda", "--color", "never"])]


def choose(day: Day) -> str:
    """Puts the first environment that works into the day's, and says which it is. Raises where grove finds no GPU."""
    kept = day.work / "toolkits" / "chosen.json"
    if kept.exists():
        name, environment = json.loads(kept.read_text())
        day.environment |= environment
        return name
    failures = []
    for number, (name, environment) in enumerate(candidates(day)):
        # The cache of another toolkit must not help it.
        cache = str(day.work / "toolkits" / f"cache{number}")
        done = attempt(day, str(number), environment | {"GROVE_CACHE": cache})
        if not done.failed():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps([name, environment]))
            day.environment |= environment
            day.save("toolkit.json", {"chosen": name, "environment": environment, "failed": failures})
            return name
        failures.append({"name": name, "message": done.last_line()})
        if any(sign in done.stderr for sign in ["no NVIDIA driver", "finds no GPU", "does not start"]):
            raise Sentence(done.last_line().removeprefix("error: "))
    day.save("toolkit.json", {"chosen": None, "failed": failures})
    told = "; ".join(f"{failure['name']}: {failure['message']}" for failure in failures)
    raise Sentence(f"grove computes with none of the CUDA toolkits here ({told}); toolkit.json and logs have more")
