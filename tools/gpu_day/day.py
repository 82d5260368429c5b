"""What all steps share: where things lie, running a program with a limit, and the results folder."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# A log is cut in its middle to this many bytes, since results travel.
LOG_BYTES = 256 << 10


class Sentence(Exception):
    """A step cannot go on; the message is for a person."""


class OutOfTime(Sentence):
    """The time of a call is over: the rest of the step is for the next one."""


@dataclass
class Done:
    """A program's end."""

    name: str
    code: int
    seconds: float
    stdout: str
    stderr: str
    log: str

    def last_line(self) -> str:
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        # Of a panic the line after its heading says what it was; of Python and of grove the last line does.
        for line, following in zip(lines, [*lines[1:], ""]):
            if line.startswith("error: "):
                return line[:300]
            if "panicked at" in line:
                return following[:300]
        if not lines and self.code < 0:
            return signal.strsignal(-self.code) or f"signal {-self.code}"
        return lines[-1][:300] if lines else "no message"

    def failed(self) -> bool:
        # A thread of CubeCL that panics leaves the program running, with results of kernels that never ran.
        return self.code != 0 or re.search("^error: |panicked at", self.stderr, re.MULTILINE) is not None

    def check(self) -> "Done":
        """Itself, if the program was successful."""
        if self.failed():
            ended = "was ended after its time" if self.code == 124 else f"ended with status {self.code}"
            raise Sentence(f"{self.name} {ended} after {self.seconds:.0f} s ({self.last_line()}); see {self.log}")
        return self


@dataclass
class Day:
    """Everything that a step may ask for."""

    root: Path
    pack: Path
    work: Path
    out: Path
    python: str
    smoke: bool
    until: float
    rows: str | None = None
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    step: str = ""

    def left(self) -> float:
        return self.until - time.monotonic()

    def program(self, name: str) -> Path:
        path = self.work / "unpacked" / name
        if not path.is_file():
            raise Sentence(f"the pack that is here has no {name}: pack or carry the archive that has it (tools/gpu_day.sh list)")
        return path

    def folder(self, name: str) -> Path:
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def execute(self, name: str, command: list, limit: float, cwd: Path | None = None, **environment: str) -> Done:
        """Runs a program in the work folder with a log in the results. It is ended with all its children after `limit`
        seconds, or when the call's time is over; its status is 124 then. One that is not there has status 127."""
        limit = min(limit, self.left())
        if limit < 5:
            raise OutOfTime("the time is over")
        log = self.out / "logs" / f"{self.step}.{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [str(part) for part in command]
        begun = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd or self.work,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            code, stdout, stderr = 127, "", f"{command[0]}: {error.strerror}"
        else:
            try:
                stdout, stderr = process.communicate(timeout=limit)
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                code = 124
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        done = Done(name, code, time.monotonic() - begun, stdout, stderr, str(log.relative_to(self.out)))
        text = f"$ {' '.join(command)}\nstatus {code} after {done.seconds:.1f} s\n\n{stdout}\n--- messages ---\n{stderr}"
        log.write_text(shortened(text))
        if code == 124 and self.left() < 5:
            raise OutOfTime(f"the time was over in the middle of {name}, after {done.seconds:.0f} s; see {done.log}")
        return done

    def save(self, name: str, value: object) -> None:
        """Writes a JSON file of the results as a whole, or not at all."""
        path = self.out / name
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(value, indent=1) + "\n")
        draft.replace(path)

    def load(self, name: str, default: object) -> object:
        path = self.out / name
        return json.loads(path.read_text()) if path.exists() else default


def shortened(text: str) -> str:
    if len(text) <= LOG_BYTES:
        return text
    half = LOG_BYTES // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def last_json(text: str) -> dict:
    """The object in the last line of a program's output."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        raise Sentence("its output ends without a JSON object") from error


class DeviceMemory:
    """The most memory of the first GPU that was in use, by all programs, beyond what was at the beginning; `nvidia-smi`
    is asked five times a second. `mebibytes` is None where it does not tell."""

    def __enter__(self) -> "DeviceMemory":
        query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0", "--loop-ms=200"]
        self.values: list[int] = []
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            self.process = None
            return self
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        # The first value must come from before the program.
        time.sleep(1)
        return self

    def read(self) -> None:
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.values.append(int(line))

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join(timeout=5)

    @property
    def mebibytes(self) -> int | None:
        return max(self.values) - self.values[0] if self.values else None


def table(headings: list[str], rows: list[list], left: int = 1) -> str:
    """A Markdown table, whose first columns are texts and the others numbers. None is a dash."""

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
