"""The loop of a bench worker, shared by the Python peers: one process measures one row in one form.

The only argument of a peer is a specification. It imports its framework only in `prepare`, once it knows the device
and the number of threads:

    {"row": {"kind": "gemm", ...}, "form": "eager", "threads": 2, "device": "cpu", "dtype": "f32"}

It prints one JSON event per line on stdout: `first` and `second` for the first two runs, then `times` for every line
{"run_seconds": S, "max_runs": N} on stdin, and `end` on {"quit": true} or at the end of stdin. Any failure is an
event `error`, with exit status 0, so that the benchmark can tell an unsupported row from a killed process.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, TextIO

OUT_OF_MEMORY = ["out of memory", "resource_exhausted", "allocate memory", "not enough memory", "unable to allocate"]


class Unsupported(Exception):
    """The peer does not support the row or form that the message names."""


@dataclass
class Work:
    """A prepared row."""

    version: str
    # One run, which returns after the device has finished.
    run: Callable[[], object]
    # Returns the peak device memory in bytes, or None on a CPU.
    device_peak: Callable[[], int | None]


def serve(prepare: Callable[[dict], Work]) -> None:
    """Runs a worker from start to end; `prepare` imports the framework and creates weights and inputs."""
    begun = time.perf_counter()
    out = take_stdout()

    def say(event: str, **fields) -> None:
        print(json.dumps({"event": event} | fields), file=out, flush=True)

    try:
        spec = json.loads(sys.argv[1])
        work = prepare(spec)
        setup_seconds = time.perf_counter() - begun
        say("first", seconds=timed(work.run), setup_seconds=setup_seconds, version=work.version)
        say("second", seconds=timed(work.run))
        for line in sys.stdin:
            request = json.loads(line)
            if request.get("quit"):
                break
            say("times", seconds=times(work.run, request["run_seconds"], request["max_runs"]))
        say("end", peak_bytes=peak_bytes(), device_peak_bytes=work.device_peak())
    except Exception as error:
        say("error", kind=kind_of(error), message=one_line(error))


def take_stdout() -> TextIO:
    """Reserves stdout for events and redirects all other output, including that of C++, to stderr."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return events


def pin(threads: int) -> None:
    """Pins the process to its first CPUs, the only way to set XLA's number of threads."""
    if hasattr(os, "sched_setaffinity") and threads < len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def times(run: Callable[[], object], seconds: float, most: int) -> list[float]:
    """Returns the times of runs until they add up to `seconds`: at least one run, at most `most`."""
    found = [timed(run)]
    while sum(found) < seconds and len(found) < most:
        found.append(timed(run))
    return found


def peak_bytes() -> int:
    """Returns the peak resident size of the process in bytes; macOS reports bytes, Linux KiB."""
    # Avoid `ru_maxrss`: on Linux it includes the memory of the process before it became Python.
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def kind_of(error: Exception) -> str:
    if isinstance(error, Unsupported):
        return "unsupported"
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in OUT_OF_MEMORY):
        return "out_of_memory"
    return "failed"


def one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Unsupported):
        return lines[0]
    return ": ".join([type(error).__name__, *lines[:1]])
