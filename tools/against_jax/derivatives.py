"""Writes engine/compile/tests/fixtures/against_jax.json: JAX's values and derivatives for the functions of
engine/compile/tests/against_jax, at ordinary and special arguments.

    python tools/against_jax/derivatives.py

For each function f with flat arguments x, a direction t and weights w of the results: f(x), the derivative of f in
the direction t, the gradient of sum(w f(x)), and the derivative of that gradient in the direction t.
"""

import json
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp

from arrays import PRODUCTS, REDUCTIONS, SHAPES, SIGNALS, UPDATES
from elementwise import BINARY, UNARY
from modules import IMAGES, ROWS, SEQUENCES

OUT = Path(__file__).resolve().parents[2] / "engine" / "compile" / "tests" / "fixtures" / "against_jax.json"

INF, NAN = np.inf, np.nan
POINTS = [-2.5, -1.7, -1.0, -0.5, -0.3, 0.2, 0.3, 0.5, 0.7, 1.0, 1.3, 1.5, 2.0, 3.0, 3.7, 0.0, -0.0, 1e-6, -1e-6, 1e-20, -1e-20,
          1e-37, -1e-37, 9.0, -9.0, 20.0, -20.0, 88.5, -88.5, 89.0, -89.0, 104.0, -104.0, 1e30, -1e30, 3e38, INF, -INF, NAN]
PAIRS = [-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 89.0, 1e30, INF, -INF, NAN]


def tokens(x):
    """Formats numbers as strings, because JSON has no non-finite numbers."""
    def one(value):
        text = repr(float(value)) if x.dtype == np.float64 else str(np.float32(value))
        return text.removesuffix(".0")
    x = np.asarray(x).reshape(-1)
    return " ".join(one(value) for value in x)


def program(f):
    """Returns one compiled function of arguments, direction and weights that computes all results to compare."""
    def run(x, t, w):
        gradient = lambda *x: jax.vjp(lambda *x: f(*x).reshape(-1), *x)[1](w)
        value, tangent = jax.jvp(lambda *x: f(*x).reshape(-1), x, t)
        gradients, product = jax.jvp(gradient, x, t)
        return value, tangent, gradients, product
    return jax.jit(run)


def case(function, arguments, f, run, x, t, w):
    x, t = (tuple(jnp.asarray(a) for a in list) for list in (x, t))
    value, tangent, gradient, product = run(x, t, jnp.asarray(w))
    return {
        "function": function, "arguments": arguments, "dtype": str(x[0].dtype),
        "x": [tokens(a) for a in x], "t": [tokens(a) for a in t], "w": tokens(w),
        "value": tokens(value), "tangent": tokens(tangent),
        "gradient": [tokens(a) for a in gradient], "hvp": [tokens(a) for a in product],
    }


def elementwise():
    for dtype in (np.float32, np.float64):
        for name, f in UNARY.items():
            x = np.array(POINTS, dtype)
            ones = np.ones_like(x)
            yield case(name, "points", f, program(f), [x], [ones], ones)
        for name, f in BINARY.items():
            a, b = (x.reshape(-1) for x in np.meshgrid(np.array(PAIRS, dtype), np.array(PAIRS, dtype), indexing="ij"))
            ones = np.ones_like(a)
            yield case(name, "points", f, program(f), [a, b], [ones, ones * dtype(0.5)], ones)


def drawn(draw, size):
    return np.round(draw.normal(size=size), 2)


def special(draw, kind, size):
    """Returns an argument with special values."""
    x = drawn(draw, size)
    place = int(draw.integers(size))
    match kind:
        case "ordinary":
            pass
        case "tied":
            x = draw.integers(1, 3, size=size).astype(float)
        case "zeros":
            x[:] = 0
        case "a zero":
            x[place] = 0
        case "tiny":
            x = x * 1e-30
        case "large":
            x = draw.choice([89.0, -104.0, 20.0, 1.0, -1.0], size=size)
        case "huge":
            x = draw.choice([1e30, -1e30, 3.0], size=size)
        case "inf":
            x[place] = INF
        case "-inf":
            x[place] = -INF
        case "NaN":
            x[place] = NAN
        case "all":
            x = draw.permutation(np.resize([1.5, 0.0, -0.0, 1e-30, 1e30, INF, -INF, NAN], size))
    return x


def cases_of(functions, kinds, dtype=np.float32, special_arguments=1):
    for name, (sizes, f) in functions.items():
        run = program(f)
        draw = np.random.default_rng(sum(name.encode()))
        for kind in kinds:
            for position in range(min(special_arguments if kind != "ordinary" else 1, len(sizes))):
                x = [special(draw, kind, size) if i == position else drawn(draw, size) for i, size in enumerate(sizes)]
                x = [a.astype(dtype) for a in x]
                t = [np.round(draw.uniform(0.5, 2, size), 1).astype(dtype) for size in sizes]
                count = jax.eval_shape(f, *(jnp.asarray(a) for a in x)).size
                w = np.round(draw.uniform(0.5, 2, count), 1).astype(dtype)
                yield case(name, kind if position == 0 else f"{kind}, argument {position + 1}", f, run, x, t, w)


def cases():
    one = lambda functions, size: {name: ([size], f) for name, f in functions.items()}
    two = lambda functions, sizes: {name: (sizes, f) for name, f in functions.items()}
    kinds = ["ordinary", "tied", "zeros", "a zero", "tiny", "large", "huge", "inf", "-inf", "NaN"]
    yield from elementwise()
    yield from cases_of({name: ([size], f) for name, (size, f) in SHAPES.items()}, ["ordinary", "all"])
    yield from cases_of(two(UPDATES, [6, 4]), ["ordinary", "all"], special_arguments=2)
    reductions, products = one(REDUCTIONS, 6), two(PRODUCTS, [6, 6])
    yield from cases_of(reductions, kinds)
    yield from cases_of(products, kinds, special_arguments=2)
    yield from cases_of({name: value for name, value in reductions.items() if name != "lu"}, ["ordinary"], np.float64)
    yield from cases_of(products, ["ordinary"], np.float64)
    yield from cases_of(SIGNALS, ["ordinary", "zeros"])
    yield from cases_of(ROWS, kinds)
    yield from cases_of(IMAGES, ["ordinary", "tied", "zeros", "inf", "NaN"])
    yield from cases_of(SEQUENCES, ["ordinary", "tied", "zeros", "large", "inf", "-inf", "NaN"])


def main():
    lines = [json.dumps(case) for case in cases()]
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases, {OUT.stat().st_size} bytes: {OUT}")


if __name__ == "__main__":
    main()
