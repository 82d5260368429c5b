"""Makes Markdown tables from the JSON lines of `rnn.py` and of grove's program.

    python benches/rnn_table.py FILE ... [--of median_ms|min_ms|peak_mib]

A cell is the best (smallest) of all its lines, so that FILEs may hold several rounds. "peer / grove" is the fastest peer
divided by grove: above 1 grove is faster. With unequal lengths a line whose form is `padded` ignored them; its figure
from equal lengths is shown, and counts only in the last column, as what it gives beyond a row's length is not 0 and its
last state is not the row's.

"of roofline" is the least time that the machine's measured peaks allow, divided by grove's: the products' operations at
the speed of a large product, or the recurrent weights read once a step at the speed of a product with a vector,
whichever takes longer. (The vector's product may itself be slower than grove's: then the figure is above 100 %.)
"""

import argparse
import json
import math

PEERS = [("torch", "padded"), ("torch", "packed"), ("jax", "scan")]


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def lengths_of(batch: int, steps: int) -> list[int]:
    """The rule is in rnn.py too."""
    return [1 + ((i * 7919 + 13) * 104729 % steps) for i in range(batch)]


def roofline_ms(peak: dict, cell: list, which: str, unequal: bool) -> float:
    kind, hidden, batch, steps = cell
    gates = dict(lstm=4, gru=3)[kind]
    lengths = lengths_of(batch, steps) if unequal else [steps] * batch
    # Of inputs and of states; with gradients, those of the states and of both weights.
    products, passes = (5, 2) if which == "both" else (2, 1)
    operations = 2 * sum(lengths) * gates * hidden**2 * products
    bytes_read = max(lengths) * passes * gates * hidden**2 * 4
    at = max(peak["gb_per_s"].values()) if hidden < 100 else peak["gb_per_s"][str(hidden)]
    return max(operations / peak["gflops"], bytes_read / at) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--of", choices=["median_ms", "min_ms", "peak_mib"], default="median_ms")
    args = parser.parse_args()

    best, names, cells, peak = {}, {}, {}, None
    for path in args.files:
        for line in open(path):
            record = json.loads(line)
            if record["peer"] == "peak":
                known = peak or dict(gflops=0, gb_per_s={})
                rates = {k: max(v, known["gb_per_s"].get(k, 0)) for k, v in record["gb_per_s"].items()}
                gb_per_s = known["gb_per_s"] | rates
                peak = dict(gflops=max(record["gflops"], known["gflops"]), gb_per_s=gb_per_s)
                continue
            cell = tuple(record[k] for k in ("kind", "hidden", "batch", "steps"))
            key = (*cell, record["lengths"], record["pass"], record["peer"], record["form"])
            best[key] = min(record[args.of], best.get(key, math.inf))
            names.setdefault(record["peer"], record.get("framework", record["peer"]))
            cells[(*cell, record["pass"])] = None
    # A layer's rows stay together, forward before both.
    order = sorted(cells, key=lambda cell: (cell[0] != "lstm", *cell[:4], cell[4] != "forward"))

    unit = "MiB" if args.of == "peak_mib" else "ms"
    for lengths in ["equal", "random"]:
        unequal = lengths == "random"
        lines, ratios = [], {True: [], False: []}
        for *cell, which in order:

            def value(peer: str, form: str, lengths: str = lengths) -> float | None:
                return best.get((*cell, lengths, which, peer, form))

            ours = [v for k, v in best.items() if k[:7] == (*cell, lengths, which, "grove")
                    and not (unequal and k[7] == "padded")]  # fmt: skip
            peers = {key: value(*key) for key in PEERS}
            if not ours and not any(peers.values()):
                continue
            ignoring = ("torch", "padded")
            if unequal:
                peers[ignoring] = value(*ignoring, lengths="equal")

            def ratio(counted: bool) -> str:
                rivals = [v for k, v in peers.items() if v is not None and (counted or k != ignoring)]
                if not ours or not rivals:
                    return "–"
                ratios[counted].append(min(rivals) / min(ours))
                return f"{ratios[counted][-1]:.2f}"

            kind, hidden, batch, steps = cell
            columns = [f"{kind} {hidden}", str(batch), str(steps), which, *map(number, peers.values())]
            columns += [number(min(ours, default=None)), *([ratio(False)] if unequal else []), ratio(True)]
            if peak and args.of != "peak_mib":
                least = roofline_ms(peak, cell, which, unequal)
                columns.append(f"{100 * least / min(ours):.0f} %" if ours else "–")
            lines.append(f"| {' | '.join(columns)} |")
        if not lines:
            continue
        torch, jax, grove = (names.get(peer, peer) for peer in ("torch", "jax", "grove"))
        ignored = ", lengths ignored" if unequal else ""
        heads = ["layer", "batch", "steps", "pass", f"{torch} padded{ignored}, {unit}", f"{torch} packed, {unit}"]
        heads += [f"{jax}, {unit}", f"{grove}, {unit}", "peer / grove"]
        heads += ["the same, padded counted"] if unequal else []
        heads += ["of roofline"] if peak and args.of != "peak_mib" else []
        print(f"{'Unequal' if unequal else 'Equal'} lengths:\n")
        print(f"| {' | '.join(heads)} |")
        print(f"|---|---:|---:|---|{'---:|' * (len(heads) - 4)}")
        print("\n".join(lines))
        for counted, what in [(True, "all peers"), (False, "peers that heed lengths")]:
            if ratios[counted] and (unequal or counted):
                mean = math.exp(sum(map(math.log, ratios[counted])) / len(ratios[counted]))
                ahead = sum(ratio >= 1 for ratio in ratios[counted])
                print(
                    f"\nAgainst {what}: geometric mean {mean:.2f}, smallest {min(ratios[counted]):.2f}, "
                    f"grove ahead in {ahead} of {len(ratios[counted])}."
                )
        print()
    if peak:
        rates = ", ".join(f"{hidden} {rate:.0f}" for hidden, rate in sorted(peak["gb_per_s"].items(), key=lambda i: int(i[0])))
        print(f"The machine: {peak['gflops']:.0f} GFLOP/s; GB/s of products with a vector by hidden size: {rates}.")


if __name__ == "__main__":
    main()
