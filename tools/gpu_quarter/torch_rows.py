"""Measures rows of the benchmark with PyTorch in one process, because importing takes longer than most rows.

Standard input is a JSON list of jobs, each with a key, the specification of benches/peers/torch_peer.py, and the
seconds to measure. Each job prints one JSON line with its key.
"""

import gc
import json
import statistics
import sys
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "benches/peers"
sys.path.insert(0, str(PEERS))

import protocol  # noqa: E402
import torch  # noqa: E402
import torch_peer  # noqa: E402

try:
    from transformers.utils import logging

    logging.set_verbosity_error()
except ImportError:
    pass


def measured(spec: dict, seconds: float) -> dict:
    cuda = spec["device"] == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    work = torch_peer.prepare(spec)
    setup = time.perf_counter() - begun
    first, second = protocol.timed(work.run), protocol.timed(work.run)
    protocol.times(work.run, seconds / 4, 20)
    times = protocol.times(work.run, seconds, 100)
    low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    found = dict(first=first, second=second, setup=setup, median=median, low=low, high=high, runs=len(times))
    # Memory reserved by PyTorch and the context, which nvidia-smi reports for grove too.
    memory = torch.cuda.max_memory_reserved() >> 20 if cuda else None
    return found | dict(memory=memory, version=work.version)


def main() -> None:
    out = protocol.take_stdout()
    for job in json.load(sys.stdin):
        try:
            found = measured(job["spec"], job["seconds"])
        except Exception as error:
            found = dict(error=protocol.one_line(error))
        print(json.dumps(found | dict(key=job["key"])), file=out, flush=True)
        torch._dynamo.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
