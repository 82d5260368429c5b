#!/usr/bin/env python3
"""Counts a program's calls of the emulated device, from the log of `emulate --log`.

    tools/cuda_emulator/counts.py LOG              totals, and counts between the last downloads
    tools/cuda_emulator/counts.py LOG --kernels    with the launches of each kernel
    tools/cuda_emulator/counts.py LOG --json       for scripts

Downloads (reading a token or a loss) divide a program into pieces; repeated work is between the last downloads. The
final piece is often irregular, so the table shows the median, minimum and maximum of the last pieces, `--last N` (8)."""

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path

KINDS = ["launch", "upload", "download", "copy", "fill", "sync", "allocate", "module", "nccl", "refused"]


def read(path: Path) -> list[list[list[str]]]:
    """Returns the events of each piece, without times. Consecutive downloads without a launch in between belong to one
    piece."""
    pieces: list[list[list[str]]] = [[]]
    ended = False
    for line in path.read_text().splitlines():
        event = line.split()[1:]
        if ended and event[0] == "launch":
            pieces.append([])
            ended = False
        pieces[-1].append(event)
        ended |= event[0] == "download"
    return pieces


def count(events: list[list[str]]) -> dict[str, int]:
    counts = Counter(event[0] for event in events)
    result = {kind: counts[kind] for kind in KINDS}
    result["uploaded_bytes"] = sum(int(event[1]) for event in events if event[0] == "upload")
    result["nccl_bytes"] = sum(int(event[2]) for event in events if event[0] == "nccl")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--last", type=int, default=8, metavar="N")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    pieces = read(options.log)
    total = count([event for piece in pieces for event in piece])
    last = [piece for piece in pieces if any(event[0] == "download" for event in piece)][-options.last :]
    each = [count(piece) for piece in last]
    middle = {name: statistics.median_low(piece[name] for piece in each) for name in total} if each else {}
    most = {name: max(piece[name] for piece in each) for name in total} if each else {}
    if options.json:
        print(json.dumps({"pieces": len(pieces), "total": total, "last": middle, "most": most}))
        return
    print(f"{'':16}{'all':>14}{'a piece':>14}{'least':>12}{'most':>12}")
    for name in total:
        values = [piece[name] for piece in each] or [0]
        print(f"{name:16}{total[name]:14}{middle.get(name, 0):14}{min(values):12}{max(values):12}")
    print(f"{len(pieces)} pieces, of which the last {len(last)} are looked at")
    if options.kernels and last:
        print("\nlaunches of the piece in the middle of those")
        ordered = sorted(last, key=lambda piece: count(piece)["launch"])
        names = Counter(event[1] for event in ordered[len(ordered) // 2] if event[0] == "launch")
        for name, launches in names.most_common():
            print(f"{launches:8}  {name}")


if __name__ == "__main__":
    main()
