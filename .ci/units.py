#!/usr/bin/env python3
"""Checks that no crate takes half as long again to compile as it did.

units.py FOLDER TARGET   compares the units of a build, which .ci/rustc wrote to FOLDER, with units.txt, prints the ten heaviest and
                         the size of the folder TARGET, and fails with the names of those that grew
units.py ... --write     writes units.txt

Times are seconds of CPU, divided by those of dependencies that the same build compiles, so that a slow machine does not matter.
"""

import argparse
import pathlib
import re
import subprocess
import sys

KNOWN = pathlib.Path(__file__).with_suffix(".txt")
# Dependencies that are large, of which only a new version changes.
MEASURE = ["candle-core lib candle_core", "tokenizers lib tokenizers", "image lib image"]
GROWTH = 1.5
# Smaller units, and smaller differences, are noise: shares of the measure.
SMALL = 0.04


def seconds(time):
    minutes, seconds = re.fullmatch(r"(\d+)m([\d.]+)s", time).groups()
    return 60 * int(minutes) + float(seconds)


def read(folder):
    """Seconds of CPU of each unit. Of a unit that was compiled twice, with other features, the longer time."""
    units = {}
    for file in pathlib.Path(folder).iterdir():
        name, _, children = file.read_text().splitlines()
        units[name] = max(units.get(name, 0), sum(map(seconds, children.split())))
    return units


def gigabytes(folder):
    return int(subprocess.run(["du", "-s", "-B1", folder], check=True, capture_output=True, text=True).stdout.split()[0]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("target")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    units, size = read(arguments.folder), gigabytes(arguments.target)

    missing = [name for name in MEASURE if name not in units]
    if missing:
        print(f"{len(units)} units were compiled; {missing[0]} was there, so that there is nothing to compare with")
        return
    measure = sum(units[name] for name in MEASURE)
    shares = {name: time / measure for name, time in units.items()}
    heaviest = sorted(shares, key=shares.get, reverse=True)
    print(f"{len(units)} units, {sum(units.values()):.0f} s of CPU; {arguments.target} takes {size:.1f} GB")
    if arguments.write:
        lines = [f"{shares[name]:.2f} {name}\n" for name in heaviest if shares[name] >= SMALL and name not in MEASURE]
        KNOWN.write_text(
            "# Seconds of CPU that units take to compile, as shares of those of\n"
            f"# {', '.join(MEASURE)}: units.py --write\n"
            f"{size:.1f} GB\n" + "".join(lines)
        )
        return

    lines = [line.split(maxsplit=1) for line in KNOWN.read_text().splitlines() if not line.startswith("#")]
    known = {name: float(share) for share, name in lines}
    for name in heaviest[:10]:
        before = f"{known[name] * measure:5.0f} s known" if name in known else "not known"
        print(f"{units[name]:5.0f} s  {before}  {name}")
    grown = [
        f"{name} takes {units[name]:.0f} s of CPU to compile, not {max(known.get(name, 0), SMALL) * measure:.0f} s"
        for name in heaviest
        if name not in MEASURE and shares[name] > GROWTH * max(known.get(name, 0), SMALL) + SMALL
    ]
    # In a folder that was there, old units may lie as well.
    if known.keys() - units.keys() == {"GB"} and size > GROWTH * known["GB"]:
        grown.append(f"{arguments.target} takes {size:.1f} GB, not {known['GB']:.1f} GB")
    if grown:
        print("\n".join(grown))
        sys.exit(f"These grew by more than half. Where that has a reason: .ci/units.py {arguments.folder} {arguments.target} --write")


if __name__ == "__main__":
    main()
