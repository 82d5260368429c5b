"""LSTM and GRU of one layer and one direction with PyTorch and JAX: the peers of grove's program, run by `rnn.sh`.

    python benches/rnn.py --peer torch|jax --rows KIND,HIDDEN,BATCH,STEPS ... [--seconds 1.0] [--threads 2] [--json OUT]

A row, as "lstm,256,32,50", is measured with equal and with unequal lengths, forward alone and forward and backward
(`both`: gradients of sum(y * dy) for the weights, not for the input); a fifth and a sixth field, "equal" or "random" and
"forward" or "both", leave the others out. The input is random, of size HIDDEN, padded, time first as both peers like it
best. Unequal lengths are 1 + ((i * 7919 + 13) * 104729 % STEPS) for row i. Parameters are uniform in +-1/sqrt(HIDDEN).

Prints a JSON line for each measurement as it goes, to OUT too:
{"peer", "framework", "kind", "hidden", "batch", "steps", "lengths": "equal|random", "form", "pass": "forward|both",
"min_ms", "median_ms", "runs", "peak_mib"}, from JAX also "compile_ms", which is not in the others. Forms:

- `padded`: PyTorch's layer on the padded tensor. It ignores lengths, so that it is measured with equal ones only.
- `packed`: pack_padded_sequence with enforce_sorted=False, the layer, pad_packed_sequence.
- `scan`: jax.lax.scan in jit, the products of all inputs before it in one; with unequal lengths, masks.

`--peer peak` measures what the machine gives, for the roofline: {"peer": "peak", "gflops": of a product of 2048 x 2048
matrices, "gb_per_s": {HIDDEN: of a product of a [4 HIDDEN, HIDDEN] matrix and a vector, again and again, so that it may
stay in the caches}}, with PyTorch.

`--seconds` is the time that a measurement may take after a first run that does not count; where one run takes longer,
the first counts, and only a second is made. `peak_mib` is the largest resident size of the process during a
measurement; what the runtime holds, and what earlier rows left in the allocator, is in it.
"""

import argparse
import json
import os
import statistics
import time

def lengths_of(batch: int, steps: int) -> list[int]:
    """The rule is in grove's program too."""
    return [1 + ((i * 7919 + 13) * 104729 % steps) for i in range(batch)]


def reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_mib() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def measure(run, seconds: float) -> dict:
    def timed() -> float:
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun

    reset_peak()
    times = [timed()]
    if times[0] > seconds:
        times.append(timed())
    else:
        times = []
        while sum(times) < seconds or len(times) < 3:
            times.append(timed())
    return dict(
        min_ms=1e3 * min(times), median_ms=1e3 * statistics.median(times), runs=len(times), peak_mib=peak_mib()
    )


class Torch:
    forms = {"equal": ["padded", "packed"], "random": ["packed"]}

    def __init__(self, threads: int):
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.torch = torch
        self.framework = f"PyTorch {torch.__version__.split('+')[0]}"

    def prepare(self, kind: str, hidden: int, lengths: list[int], steps: int, equal: bool, form: str, both: bool):
        torch = self.torch
        rnn = torch.nn.utils.rnn
        layer = dict(lstm=torch.nn.LSTM, gru=torch.nn.GRU)[kind](hidden, hidden)
        x = torch.randn(steps, len(lengths), hidden)
        dy = torch.randn(steps, len(lengths), hidden)
        lengths = torch.tensor(lengths)

        def forward():
            if form == "padded":
                return layer(x)[0]
            packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return rnn.pad_packed_sequence(layer(packed)[0], total_length=steps)[0]

        def forward_alone():
            with torch.inference_mode():
                forward()

        def forward_and_backward():
            layer.zero_grad()
            (forward() * dy).sum().backward()

        return forward_and_backward if both else forward_alone, {}


class Jax:
    forms = {"equal": ["scan"], "random": ["scan"]}

    def __init__(self, threads: int):
        import jax

        self.jax = jax
        self.framework = f"JAX {jax.__version__}"

    def prepare(self, kind: str, hidden: int, lengths: list[int], steps: int, equal: bool, form: str, both: bool):
        jax, np = self.jax, self.jax.numpy
        batch, gates = len(lengths), dict(lstm=4, gru=3)[kind]
        keys = iter(jax.random.split(jax.random.key(0), 6))
        bound = hidden**-0.5

        def parameter(*shape: int):
            return jax.random.uniform(next(keys), shape, np.float32, -bound, bound)

        parameters = dict(
            w_ih=parameter(hidden, gates * hidden),
            w_hh=parameter(hidden, gates * hidden),
            b_ih=parameter(gates * hidden),
            b_hh=parameter(gates * hidden),
        )
        x = jax.random.normal(next(keys), (steps, batch, hidden), np.float32)
        dy = jax.random.normal(next(keys), (steps, batch, hidden), np.float32)
        # What was fastest of 1, 2, 4 and 10 on two cores; more makes backward slower, and compiling a matter of minutes.
        unroll = 4 if both and batch == 1 and hidden >= 256 else 1
        # None leaves the masks out of what is compiled.
        lengths = None if equal else np.array(lengths)

        def cell(p, state, projected):
            if kind == "lstm":
                h, c = state
                i, f, g, o = np.split(projected + h @ p["w_hh"], 4, axis=-1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * np.tanh(g)
                return jax.nn.sigmoid(o) * np.tanh(c), c
            (h,) = state
            product = h @ p["w_hh"] + p["b_hh"]
            r, z = np.split(jax.nn.sigmoid(projected[:, : 2 * hidden] + product[:, : 2 * hidden]), 2, axis=-1)
            n = np.tanh(projected[:, 2 * hidden :] + r * product[:, 2 * hidden :])
            return (n + z * (h - n),)

        def forward(p, x, lengths):
            bias = p["b_ih"] + p["b_hh"] if kind == "lstm" else p["b_ih"]
            projected = x @ p["w_ih"] + bias
            start = (np.zeros((batch, hidden), np.float32),) * (2 if kind == "lstm" else 1)

            def step(state, inputs):
                projected, valid = inputs
                new = cell(p, state, projected)
                if valid is None:
                    return new, new[0]
                valid = valid[:, None]
                return tuple(np.where(valid, a, b) for a, b in zip(new, state)), np.where(valid, new[0], 0)

            valid = None if lengths is None else np.arange(steps)[:, None] < lengths
            state, y = jax.lax.scan(step, start, (projected, valid), unroll=unroll)
            return y, state

        def loss(p, x, lengths, dy):
            return (forward(p, x, lengths)[0] * dy).sum()

        arguments = (parameters, x, lengths) + ((dy,) if both else ())
        begun = time.perf_counter()
        compiled = jax.jit(jax.value_and_grad(loss) if both else forward).lower(*arguments).compile()
        compile_ms = 1e3 * (time.perf_counter() - begun)
        return lambda: jax.block_until_ready(compiled(*arguments)), dict(compile_ms=compile_ms)


def peaks(hiddens: list[int], threads: int) -> dict:
    import torch

    torch.set_num_threads(threads)

    def best(run) -> float:
        times = []
        while len(times) < 20 or sum(times) < 1:
            begun = time.perf_counter()
            run()
            times.append(time.perf_counter() - begun)
        return min(times)

    square = torch.randn(2048, 2048)
    out = torch.empty(2048, 2048)
    gflops = 2 * 2048**3 / best(lambda: torch.mm(square, square, out=out)) / 1e9
    gb_per_s = {}
    for hidden in hiddens:
        weight, state, product = torch.randn(4 * hidden, hidden), torch.randn(hidden), torch.empty(4 * hidden)
        gb_per_s[hidden] = 16 * hidden**2 / best(lambda: torch.mv(weight, state, out=product)) / 1e9
    return dict(peer="peak", gflops=gflops, gb_per_s=gb_per_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["torch", "jax", "peak"], required=True)
    parser.add_argument("--rows", nargs="+", required=True, metavar="KIND,HIDDEN,BATCH,STEPS")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    # XLA has no option for its threads, it counts the cores that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    out = open(args.json, "w") if args.json else None
    if args.peer == "peak":
        line = json.dumps(peaks(sorted({int(row.split(",")[1]) for row in args.rows}), args.threads))
        print(line)
        if out is not None:
            print(line, file=out)
        return
    peer = dict(torch=Torch, jax=Jax)[args.peer](args.threads)

    for row in args.rows:
        kind, hidden, batch, steps, *only = row.split(",")
        hidden, batch, steps = int(hidden), int(batch), int(steps)
        for lengths, forms in peer.forms.items():
            for form in forms:
                for which in ["forward", "both"]:
                    if not set(only) <= {lengths, which}:
                        continue
                    equal = lengths == "equal"
                    rows = [steps] * batch if equal else lengths_of(batch, steps)
                    run, more = peer.prepare(kind, hidden, rows, steps, equal, form, which == "both")
                    settings = dict(
                        peer=args.peer,
                        framework=peer.framework,
                        kind=kind,
                        hidden=hidden,
                        batch=batch,
                        steps=steps,
                        lengths=lengths,
                        form=form,
                    )
                    line = json.dumps(settings | {"pass": which} | measure(run, args.seconds) | more)
                    print(line, flush=True)
                    if out is not None:
                        print(line, file=out, flush=True)


if __name__ == "__main__":
    main()
