"""A session on a GPU machine: its folders, its time, the programs that it runs, and its results."""

import json
import os
import re
import signal
import subprocess
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Maximum length of a log in characters; longer logs lose their middle.
LOG_CHARACTERS = 64 << 10
# Time reserved for writing the results, in seconds.
FAREWELL = 5


class Failure(Exception):
    """The step cannot continue; the message is for the user."""


class OutOfTime(Failure):
    """The time of the step or of the session is over."""


@dataclass
class Done:
    """A program that has ended."""

    name: str
    code: int
    seconds: float
    stdout: str
    stderr: str

    def message(self) -> str:
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        # The message of a panic follows its heading; errors of Python and grove are on the last line.
        for line, following in zip(lines, [*lines[1:], ""]):
            if line.startswith("error: "):
                return line[:500]
            if "panicked at" in line:
                return f"{line} {following}"[:500]
        if not lines and self.code < 0:
            return signal.strsignal(-self.code) or f"signal {-self.code}"
        return lines[-1][:500] if lines else "no message"

    def failed(self) -> bool:
        # If a CubeCL thread panics, the program continues with results of kernels that never ran.
        return self.code != 0 or re.search("^error: |panicked at", self.stderr, re.MULTILINE) is not None

    def check(self) -> "Done":
        """Returns itself if the program was successful, else raises Failure."""
        if self.failed():
            ended = "was stopped after its time" if self.code == 124 else f"ended with status {self.code}"
            raise Failure(f"{self.name} {ended} after {self.seconds:.0f} s: {self.message()}")
        return self


@dataclass
class Session:
    """Services for steps: folders, time limits, programs and results."""

    work: Path
    out: Path
    python: str
    device: str
    smoke: bool
    until: float
    results: dict
    # Autotuning level; grove's default if None.
    autotune: str | None = None
    # Rows to measure; all rows of a step if None.
    dtypes: list[str] | None = None
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    step: str = ""
    # Guards the files of `out`.
    saving: threading.Lock = field(default_factory=threading.Lock)

    @property
    def grove(self) -> Path:
        return self.work / "grove"

    def left(self) -> float:
        """Returns the remaining time of the step in seconds."""
        return self.until - time.monotonic()

    def folder(self, name: str) -> Path:
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def start(self, command: list, **environment: str) -> subprocess.Popen:
        """Starts a program in its own process group."""
        if self.left() < 1:
            raise OutOfTime("the time is over")
        try:
            return subprocess.Popen(
                [str(part) for part in command],
                cwd=self.work,
                env=self.environment | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}") from error

    def execute(self, name: str, command: list, limit: float, **environment: str) -> Done:
        """Runs a program and writes a log. After `limit` seconds, or when the time of the step is over, stops it with
        its children; the status is then 124."""
        begun = time.monotonic()
        process = self.start(command, **environment)
        try:
            stdout, stderr = process.communicate("", timeout=max(1, min(limit, self.left())))
            code = process.returncode
        except subprocess.TimeoutExpired:
            kill(process)
            stdout, stderr = process.communicate()
            code = 124
        except BaseException:
            kill(process)
            raise
        done = Done(name, code, time.monotonic() - begun, stdout, stderr)
        self.log(name, command, f"status {code} after {done.seconds:.1f} s\n\n{stdout}\n--- messages ---\n{stderr}")
        return done

    def log(self, name: str, command: list, text: str) -> None:
        path = self.folder("logs") / f"{self.step}.{re.sub('[^A-Za-z0-9_.-]+', '_', name)}.log"
        text = f"$ {' '.join(str(part) for part in command)}\n{text}"
        if len(text) > LOG_CHARACTERS:
            half = LOG_CHARACTERS // 2
            text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
        with self.saving:
            path.write_text(text)

    def save(self) -> None:
        """Writes the results so far, each file atomically. Thread-safe."""
        with self.saving:
            write(self.out / "results.json", self.text() + "\n")
            logs = self.work / "logs"
            if logs.is_dir():
                draft = self.out / "logs.tar.gz.new"
                with tarfile.open(draft, "w:gz") as tar:
                    tar.add(logs, "logs")
                draft.replace(self.out / "logs.tar.gz")

    def text(self) -> str:
        while True:
            try:
                return json.dumps(self.results, indent=1)
            except RuntimeError:
                # Another thread has added results meanwhile.
                continue


def write(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)


def kill(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def side_by_side(tasks: list, workers: int) -> list:
    """Runs functions on threads, and returns their results in order. The first exception is raised after all have ended."""
    with ThreadPoolExecutor(workers) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


def json_lines(text: str) -> list[dict]:
    """Parses one object per line. The last line may be incomplete."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


class DeviceMemory:
    """Measures the peak memory use of the first GPU, by all programs, above its initial use. `nvidia-smi` reports it
    five times a second. `mebibytes` is None without `nvidia-smi`."""

    def __enter__(self) -> "DeviceMemory":
        query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0", "--loop-ms=200"]
        self.values: list[int] = []
        self.there = threading.Event()
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            self.process = None
            return self
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        # The first value is the memory use before the program.
        self.there.wait(2)
        return self

    def read(self) -> None:
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.values.append(int(line))
                self.there.set()

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join(timeout=5)

    @property
    def mebibytes(self) -> int | None:
        return max(self.values) - self.values[0] if self.values else None


def table(headings: list[str], rows: list[list], left: int = 1) -> str:
    """Formats a Markdown table whose first columns are text and the others numbers. None is a dash."""

    def cell(value: object) -> str:
        match value:
            case None:
                return "–"
            case float():
                return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
            case _:
                return str(value).replace("|", "/").replace("\n", " ")

    lines = [headings, ["---"] * left + ["---:"] * (len(headings) - left), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines) + "\n"


def time_text(seconds: float | None) -> str | None:
    """Formats a time for people."""
    if seconds is None:
        return None
    for unit, size in [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)]:
        if seconds >= size or unit == "µs":
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return None
