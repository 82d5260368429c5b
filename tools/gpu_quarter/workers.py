"""Rows of the benchmark, by grove's worker (one process per row) and by PyTorch (one process for many rows).

A measurement is a dictionary: first, second, median, low and high are in seconds; setup is the time before the first
run; memory is in MiB. A failed measurement has an `error`.
"""

import json
import queue
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from session import DeviceMemory, Failure, OutOfTime, Session, json_lines, kill

HERE = Path(__file__).resolve().parent
PRECISIONS = {"f32": "highest", "tf32": "high"}


def specification(session: Session, work: dict, dtype: str, form: str) -> dict:
    spec = dict(row=work, form=form, threads=8, device=session.device, device_index=0)
    spec["dtype"] = "f32" if dtype == "tf32" else dtype
    if dtype in PRECISIONS:
        spec["precision"] = PRECISIONS[dtype]
    if form == "cuda" and session.autotune:
        spec["autotune"] = session.autotune
    return spec


def works(session: Session) -> dict[str, dict]:
    """Returns the work of each row by its name."""
    command = [session.grove, "bench", "--dry-run", "--json", *(["--smoke"] if session.smoke else [])]
    done = session.execute("rows", command, 30).check()
    return {row["name"]: row for row in json.loads(done.stdout)["rows"]}


class Worker:
    """A process of `grove bench --worker`."""

    def __init__(self, session: Session, name: str, spec: dict, cache: Path, **environment: str):
        self.session, self.name = session, name
        self.command = [session.grove, "bench", "--worker", json.dumps(spec)]
        self.begun = time.monotonic()
        self.process = session.start(self.command, GROVE_CACHE=str(cache), **environment)
        self.events: queue.Queue = queue.Queue()
        self.messages: list[str] = []
        self.text: list[str] = []
        self.threads = [threading.Thread(target=read, daemon=True) for read in [self.read_events, self.read_messages]]
        for thread in self.threads:
            thread.start()

    def read_events(self) -> None:
        for line in self.process.stdout:
            self.text.append(line)
            for event in json_lines(line):
                self.events.put(event)
        self.events.put(None)

    def read_messages(self) -> None:
        for line in self.process.stderr:
            self.messages.append(line)

    def wait_for(self, name: str, until: float) -> dict:
        """Returns the next event, which must have this name."""
        while True:
            left = min(until, self.session.until) - time.monotonic()
            if left <= 0:
                raise OutOfTime(f"{self.name} had no '{name}' when its time was over")
            try:
                event = self.events.get(timeout=min(left, 0.5))
            except queue.Empty:
                # The program would wait forever for a kernel of a thread that has panicked.
                if any("panicked at" in line for line in list(self.messages)):
                    time.sleep(0.5)
                    raise Failure(f"{self.name}: {self.panic()}") from None
                continue
            if event is None:
                self.process.wait()
                self.threads[1].join(2)
                raise Failure(f"{self.name} ended with status {self.process.returncode}: {self.last()}")
            if event["event"] == "error":
                raise Failure(f"{self.name}: {event['message']}")
            if event["event"] == name:
                return event

    def panic(self) -> str:
        lines = list(self.messages)
        at = next(i for i, line in enumerate(lines) if "panicked at" in line)
        return " ".join(line.strip() for line in lines[at : at + 2])[:500]

    def last(self) -> str:
        if any("panicked at" in line for line in self.messages):
            return self.panic()
        lines = [line.strip() for line in self.messages if line.strip()]
        return lines[-1][:500] if lines else "no message"

    def ask(self, question: dict) -> None:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        try:
            self.ask({"quit": True})
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        kill(self.process)
        self.process.wait()
        text = f"after {time.monotonic() - self.begun:.1f} s\n\n{''.join(self.text)}\n--- messages ---\n{''.join(self.messages)}"
        self.session.log(self.name, self.command, text)


def device_folder(session: Session) -> str | None:
    """Returns the name of grove's folder for this machine's GPU, driver and compiler in a kernel cache."""
    if "device_folder" not in session.results:
        cache = session.work / "cache_device"
        tokens = ["generate", "--backend", "cuda", "--max-new-tokens", 1, "--prompt", "A"]
        session.execute("device_folder", [session.grove, *tokens], 60, GROVE_CACHE=str(cache))
        found = [folder.name for folder in (cache / "kernels").glob("*")]
        session.results["device_folder"] = found[0] if found else None
    return session.results["device_folder"]


def cache_of(session: Session, key: str, dtype: str) -> Path:
    """Creates a separate kernel cache, initialised with the kernels compiled ahead for the dtype, if any."""
    cache = session.work / "caches" / "".join(letter if letter.isalnum() else "_" for letter in key)
    ahead = session.work / "kernels" / ("f32" if dtype == "tf32" else dtype) / "kernels"
    if not cache.exists() and ahead.is_dir() and (name := device_folder(session)):
        for folder in ahead.iterdir():
            shutil.copytree(folder, cache / "kernels" / name, ignore=shutil.ignore_patterns("*.lock"))
    return cache


def rows_cache(session: Session, spec: dict, key: str, dtype: str) -> Path:
    """Returns the cache of a row. Only one program at a time uses it."""
    return cache_of(session, f"rows {key} {spec.get('autotune', '')}".strip(), dtype)


def tuned(session: Session) -> None:
    """Copies the measurements of autotuning to the logs."""
    for file in (session.work / "caches").glob("*/kernels/*/autotune/**/*.log"):
        target = session.work / "logs" / "autotune" / file.relative_to(session.work / "caches").parts[0] / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def warm(session: Session, key: str, dtype: str, spec: dict, limit: float) -> dict | None:
    """Runs a row twice, so that its kernels are compiled and tuned. Rows may run in parallel."""
    worker = Worker(session, f"warm {key}", spec, rows_cache(session, spec, key, dtype))
    try:
        until = time.monotonic() + limit
        first = worker.wait_for("first", until)
        worker.wait_for("second", until)
        return first
    except (OutOfTime, Failure):
        # The measurement of the row meets and reports the same error.
        return None
    finally:
        worker.close()


def measure(session: Session, key: str, dtype: str, spec: dict, limit: float, seconds: float = 1.0) -> dict:
    """Measures a row of grove."""
    worker = None
    with DeviceMemory() as memory:
        try:
            worker = Worker(session, key, spec, rows_cache(session, spec, key, dtype))
            until = time.monotonic() + limit
            first = worker.wait_for("first", until)
            started = time.monotonic() - worker.begun
            second = worker.wait_for("second", until)
            # Warm-up runs for autotuning and the GPU clock.
            worker.ask({"run_seconds": seconds / 4, "max_runs": 20})
            worker.wait_for("times", until)
            worker.ask({"run_seconds": seconds, "max_runs": 100})
            times = worker.wait_for("times", until)["seconds"]
            found = summary(times) | dict(first=first["seconds"], second=second["seconds"], setup=first["setup_seconds"])
            found |= dict(start_to_first=started, version=first["version"])
        except OutOfTime as failure:
            found = {"error": str(failure), "late": True}
        except Failure as failure:
            found = {"error": str(failure)}
        finally:
            if worker:
                worker.close()
    return found | {"memory": memory.mebibytes}


def summary(times: list[float]) -> dict:
    low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return dict(median=median, low=low, high=high, runs=len(times))


def torch_rows(session: Session, name: str, jobs: list[dict], limit: float, save, **environment: str) -> str | None:
    """Measures rows of PyTorch in one process. `save(key, measurement)` is called with each measurement as soon as it is
    available. Returns the error of the process, if any."""
    command = [session.python, HERE / "torch_rows.py"]
    begun = time.monotonic()
    process = session.start(command, **environment)
    process.stdin.write(json.dumps(jobs))
    process.stdin.close()
    messages: list[str] = []
    lines: queue.Queue = queue.Queue()

    def read_messages() -> None:
        messages.extend(process.stderr)

    def read_lines() -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threads = [threading.Thread(target=read, daemon=True) for read in [read_messages, read_lines]]
    for thread in threads:
        thread.start()
    failure = None
    try:
        while True:
            left = min(begun + limit, session.until) - time.monotonic()
            try:
                line = lines.get(timeout=max(0.1, left))
            except queue.Empty:
                failure = "the time was over"
                break
            if line is None:
                process.wait()
                threads[0].join(2)
                if process.returncode != 0:
                    failure = ([text.strip() for text in messages if text.strip()] or ["no message"])[-1]
                break
            for found in json_lines(line):
                save(found.pop("key"), found)
    finally:
        kill(process)
        process.wait()
    session.log(name, command, f"after {time.monotonic() - begun:.1f} s: {failure}\n{''.join(messages)}")
    return failure
