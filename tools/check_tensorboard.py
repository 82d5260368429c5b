"""Reads the event files of a run with TensorBoard's own reader and compares them with its metrics.jsonl.

    pip install tensorboard
    python tools/check_tensorboard.py RUN_DIRECTORY/tensorboard RUN_DIRECTORY/metrics.jsonl

Every value of every record must be in TensorBoard exactly once, at its step; a run that was killed and resumed must
show no step twice. Prints the results; the exit status is 1 if anything differs.
"""

import argparse
import json
import math
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def f32(number):
    """Rounds a number to f32, as TensorBoard stores it."""
    try:
        return struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def points_of_records(path):
    """Returns the list of (step, value) of each name; NaN is None, so that lists can be compared."""
    points = {}
    for line in open(path):
        record = json.loads(line)
        step = record.pop("step")
        record.pop("seconds")
        for name, value in record.items():
            value = f32(float("nan" if value is None else value))
            points.setdefault(name, []).append((step, None if math.isnan(value) else value))
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", help="directory with event files")
    parser.add_argument("metrics", help="metrics.jsonl of the same run")
    arguments = parser.parse_args()

    # 0 keeps every point.
    reader = EventAccumulator(arguments.events, size_guidance={"scalars": 0, "tensors": 0}).Reload()
    expected = points_of_records(arguments.metrics)
    found = {
        tag: [(event.step, None if math.isnan(event.value) else event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }
    for tag in reader.Tags()["tensors"]:
        plugin = reader.SummaryMetadata(tag).plugin_data.plugin_name
        text = reader.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        print(f"{tag}: {plugin}, {len(text)} characters")
    failed = False
    for name in sorted(expected.keys() | found.keys()):
        same = expected.get(name) == found.get(name)
        failed |= not same
        print(f"{name}: {len(found.get(name, []))} points{'' if same else ', DIFFERENT from metrics.jsonl'}")
    sys.exit(failed)


main()
