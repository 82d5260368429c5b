"""Writes random nested programs, with JAX's values and derivatives, for engine/compile/tests/against_jax/programs.rs.

    python tools/against_jax/programs.py [--seed SEED] [--count COUNT] [--out FILE]

A program is a list of operations on vectors of four numbers, each of which appends values to the existing ones.
Operations may contain nested programs: jit, vmap, grad, jvp, scan, cond, switch, while, and functions with custom
rules. Programs whose results are sensitive to small changes of their arguments, or to f32 rounding, are skipped. The
file has one program per line.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
from jax import lax, nn

from derivatives import program, tokens

OUT = Path(__file__).resolve().parents[2] / "engine" / "compile" / "tests" / "fixtures" / "programs.jsonl"
SIZE = 4

# Seeds and numbers of programs that once had other results on a backend: an update with parts of the same array, on XLA.
KEPT = [(20261128, 2180)]

UNARY = {
    "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "sigmoid": nn.sigmoid, "silu": nn.silu, "erf": lax.erf,
    "square": lambda x: jnp.tanh(x) * jnp.tanh(x), "sqrt": lambda x: jnp.sqrt(x * x + 1), "log": lambda x: jnp.log(x * x + 0.5),
    "exp": lambda x: jnp.exp(jnp.clip(x, -2, 1)), "recip": lambda x: 1 / (x * x + 1), "abs": lambda x: jnp.abs(x + 0.13), "relu": nn.relu,
    "softmax": nn.softmax, "cumsum": jnp.cumsum, "cumprod": lambda x: jnp.cumprod(jnp.tanh(x) + 0.5),
    "flip": jnp.flip, "sum": lambda x: jnp.broadcast_to(x.mean(), x.shape), "max": lambda x: jnp.broadcast_to(x.max(), x.shape),
    "prod": lambda x: x * jnp.prod(jnp.tanh(x) + 0.8), "top": lambda x: jnp.tile(lax.top_k(x, 2)[0], 2),
    "pow": lambda x: (x * x + 0.1) ** 1.3, "cummax": lax.cummax,
}
BINARY = {
    "add": jnp.add, "sub": jnp.subtract, "mul": lambda a, b: jnp.tanh(a) * b, "div": lambda a, b: a / (b * b + 1),
    "larger": lambda a, b: jnp.where(a < b, b, a), "where": lambda a, b: jnp.where(a > 0.1, a, b), "atan2": lambda a, b: jnp.arctan2(a, b * b + 0.5),
    "dot": lambda a, b: jnp.broadcast_to(jnp.tanh(a @ b), a.shape), "outer": lambda a, b: jnp.tanh(a[:, None] * b[None]).sum(0),
}


def floats(values, like):
    return jnp.asarray(values, like.dtype)


def vectors(f, body, captured):
    """Returns a program as a function of its inputs."""
    return lambda *inputs: tuple(run(body, list(inputs) + captured, f))


def run(body, env, keys):
    """Returns the outputs of a program on its inputs, which are followed by the captured values."""
    env = list(env)
    for op in body["ops"]:
        env.extend(apply(op, env, keys))
    return [env[i] for i in body["out"]]


def inner(op, name, env, keys):
    body = op[name]
    return vectors(keys, body, [env[i] for i in body["captures"]])


def weighted(stacked, weights):
    return (stacked * floats(weights, stacked)[:, None]).sum(0)


def steps_in_python(f, carry, xs, length, reverse):
    """A scan as a Python loop. In JAX 0.10 the gradient of `lax.scan` ignores custom rules of functions in it, so its
    second derivatives differ from those of a loop and of forward mode."""
    ys = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        carry, ys[i] = f(carry, tuple(x[i] for x in xs))
    return carry, tuple(jnp.stack(y) for y in zip(*ys))


def apply(op, env, keys):
    kind = op["op"]
    args = [env[i] for i in op.get("a", [])]
    a = args[0] if args else None
    match kind:
        case "unary":
            return [UNARY[op["f"]](a)]
        case "binary":
            return [BINARY[op["f"]](*args)]
        case "const":
            return [a * floats(op["values"], a) + floats(op["more"], a)]
        case "matvec":
            return [floats(op["values"], a).reshape(SIZE, SIZE) @ jnp.tanh(a)]
        case "select":
            return [a[jnp.array(op["places"])]]
        case "table":
            rows = floats(op["values"], a).reshape(-1, SIZE)
            place = jnp.clip(jnp.floor(jnp.abs(a).sum() * 2).astype(int), 0, len(rows) - 1)
            return [rows[place] * a]
        case "argmax":
            return [floats(op["values"], a).reshape(-1, SIZE)[jnp.argmax(a)] + a]
        case "update":
            # Avoid `a.at[1:3].set(..)`: XLA's CPU compiler in JAX 0.10 updates in place even if both arrays are the
            # same.
            return [jnp.concatenate([a[:1], args[1][:2], a[3:]])]
        case "draw":
            key = keys
            for step in op["key"]:
                key = jax.random.split(key)[step] if step < 2 else jax.random.fold_in(key, step)
            draw = jax.random.normal if op["f"] == "normal" else jax.random.uniform
            return [draw(key, (SIZE,), jnp.float32).astype(a.dtype) * a]
        case "cond":
            branches = [inner(op, name, env, keys) for name in ("true", "false")]
            return lax.cond(a.sum() > op["above"], *branches, *args[1:])
        case "switch":
            index = jnp.floor(a.sum()).astype(jnp.int32)
            return lax.switch(index, [inner(op, name, env, keys) for name in ("0", "1", "2")], *args[1:])
        case "scan":
            body = inner(op, "body", env, keys)
            count = op["carries"]
            xs = tuple(jnp.stack([env[i] for i in places]) for places in op["xs"])

            def step(carry, x):
                outputs = body(*carry, *x)
                return outputs[:count], outputs[count:]
            loop = steps_in_python if "custom_jvp" in json.dumps(op) else lax.scan
            carry, ys = loop(step, tuple(args), xs, length=op["length"], reverse=op["reverse"])
            return list(carry) + [weighted(y, op["weights"]) for y in ys]
        case "while":
            body = inner(op, "body", env, keys)
            goes_on = lambda state: (state[0] < op["steps"]) & (state[1].sum() < op["below"])
            step = lambda state: (state[0] + 1, *body(*state[1:]))
            return list(lax.while_loop(goes_on, step, (jnp.int32(0), *args))[1:])
        case "grad":
            body = inner(op, "body", env, keys)
            loss = lambda *inputs: sum((y * floats(op["weights"], y)).sum() for y in body(*inputs))
            return list(jax.grad(loss, tuple(range(len(args))))(*args))
        case "jvp":
            body = inner(op, "body", env, keys)
            values, tangents = jax.jvp(body, tuple(args), tuple(env[i] for i in op["t"]))
            return list(values) + list(tangents)
        case "vmap":
            body = inner(op, "body", env, keys)
            mapped = [jnp.stack([env[i] for i in places]) for places in op["xs"]]
            axes = (0,) * len(mapped) + (None,) * len(args)
            return [weighted(y, op["weights"]) for y in jax.vmap(body, axes)(*mapped, *args)]
        case "jit":
            return list(jax.jit(inner(op, "body", env, keys))(*args))
        case "custom_jvp":
            f, slope = (inner(op, name, env, keys) for name in ("body", "slope"))
            custom = jax.custom_jvp(lambda x: f(x)[0])
            custom.defjvp(lambda x, t: (custom(*x), t[0] * slope(*x)[0]))
            return [custom(a)]
        case "custom_vjp":
            f, slope = (inner(op, name, env, keys) for name in ("body", "slope"))
            custom = jax.custom_vjp(lambda x: f(x)[0])
            custom.defvjp(lambda x: (custom(x), x), lambda x, g: (g * slope(x)[0],))
            return [custom(a)]


class Generator:
    """Generates programs that are differentiable in forward mode, in reverse mode or in both."""

    def __init__(self, draw, forward, reverse):
        self.draw, self.forward, self.reverse = draw, forward, reverse

    def pick(self, items):
        return items[int(self.draw.integers(len(items)))]

    def several(self, env, low, high):
        return [int(i) for i in self.draw.integers(env, size=int(self.draw.integers(low, high + 1)))]

    def values(self, count):
        return [float(x) for x in np.round(self.draw.normal(size=count), 2)]

    def body(self, inputs, around, depth, outputs, forward, reverse, bounded=False):
        """Generates a nested program, which may capture values of the enclosing programs."""
        captures = self.several(around, 0, 2) if around else []
        env = inputs + len(captures)
        ops = []
        for _ in range(int(self.draw.integers(1, 4))):
            env = self.add(ops, env, depth, forward, reverse)
        out = []
        for _ in range(outputs):
            out.append(self.last(env))
            if bounded:
                ops.append({"op": "unary", "f": "tanh", "a": [out[-1]]})
                out[-1] = env
                env += 1
        return {"captures": captures, "ops": ops, "out": out}

    def last(self, env):
        """Returns one of the values, preferably a late one."""
        return max(int(i) for i in self.draw.integers(env, size=2))

    def simple(self):
        """Generates a program of one value without nested programs."""
        return {"captures": [], "ops": [{"op": "unary", "f": self.pick(["sin", "tanh", "sigmoid", "recip"]), "a": [0]},
                                        {"op": "const", "a": [1], "values": self.values(SIZE), "more": self.values(SIZE)}], "out": [2]}

    def add(self, ops, env, depth, forward, reverse):
        """Adds an operation and returns the number of values."""
        simple = ["unary", "unary", "unary", "binary", "binary", "const", "matvec", "select", "table", "argmax", "update", "draw"]
        nested = ["cond", "switch", "scan", "grad", "jvp", "vmap", "jit", "custom_jvp"]
        nested += ["while"] if not self.reverse and not reverse else []
        nested += ["custom_vjp"] if not self.forward and not forward else []
        kind = self.pick(nested) if depth > 0 and self.draw.random() < 0.45 else self.pick(simple)
        one = lambda: self.last(env)
        inside = lambda inputs, outputs, bounded=False, forward=forward, reverse=reverse: self.body(
            inputs, env, depth - 1, outputs, forward, reverse, bounded)
        op, added = {"op": kind, "a": [one()]}, 1
        match kind:
            case "unary":
                op["f"] = self.pick(list(UNARY))
            case "binary":
                op |= {"f": self.pick(list(BINARY)), "a": [one(), int(self.draw.integers(env))]}
            case "const":
                op |= {"values": self.values(SIZE), "more": self.values(SIZE)}
            case "matvec":
                op["values"] = self.values(SIZE * SIZE)
            case "select":
                op["places"] = [int(i) for i in self.draw.integers(SIZE, size=SIZE)]
            case "table" | "argmax":
                op["values"] = self.values(SIZE * SIZE)
            case "update":
                op["a"].append(int(self.draw.integers(env)))
            case "draw":
                op |= {"f": self.pick(["normal", "uniform"]), "key": [int(i) for i in self.draw.integers(5, size=2)]}
            case "cond" | "switch":
                operands = self.several(env, 1, 2)
                added = int(self.draw.integers(1, 3))
                op["a"] += operands
                if kind == "cond":
                    op["above"] = self.values(1)[0]
                for name in (["true", "false"] if kind == "cond" else ["0", "1", "2"]):
                    op[name] = inside(len(operands), added)
            case "scan":
                carries, length = self.several(env, 1, 2), int(self.draw.integers(2, 4))
                xs = [[int(i) for i in self.draw.integers(env, size=length)] for _ in range(int(self.draw.integers(1, 3)))]
                ys = int(self.draw.integers(0, 2))
                added = len(carries) + ys
                op |= {"a": carries, "carries": len(carries), "xs": xs, "length": length, "reverse": bool(self.draw.integers(2)),
                       "weights": self.values(length),
                       "body": inside(len(carries) + len(xs), added, bounded=True)}
            case "while":
                op["a"] = self.several(env, 1, 2)
                added = len(op["a"])
                op |= {"steps": int(self.draw.integers(0, 4)), "below": self.values(1)[0] + 1, "body": inside(added, added, bounded=True)}
            case "grad":
                op["a"] = self.several(env, 1, 2)
                added = len(op["a"])
                op |= {"weights": self.values(SIZE), "body": inside(added, 1, reverse=True)}
            case "jvp":
                op["a"] = self.several(env, 1, 2)
                added = 2
                op |= {"t": [int(i) for i in self.draw.integers(env, size=len(op["a"]))], "body": inside(len(op["a"]), 1, forward=True)}
            case "vmap":
                op["a"] = self.several(env, 0, 1)
                count = int(self.draw.integers(2, 4))
                xs = [[int(i) for i in self.draw.integers(env, size=count)] for _ in range(int(self.draw.integers(1, 3)))]
                added = int(self.draw.integers(1, 3))
                op |= {"xs": xs, "weights": self.values(count), "body": inside(len(xs) + len(op["a"]), added)}
            case "jit":
                op["a"] = self.several(env, 1, 2)
                op["body"] = inside(len(op["a"]), 1)
            case "custom_jvp" | "custom_vjp":
                op |= {"body": self.simple(), "slope": self.simple()}
        ops.append(op)
        return env + added

    def top(self):
        env, ops = 2, []
        while env < 7 or not any("body" in op or "true" in op or "0" in op for op in ops):
            env = self.add(ops, env, 3, False, False)
        return {"captures": [], "ops": ops, "out": [env - 1, self.last(env)]}


def made(seed, number):
    """Returns a program with its results; `None` if the results are not informative."""
    draw = np.random.default_rng([seed, number])
    forward, reverse = [(True, True), (True, False), (False, True), (True, True)][number % 4]
    body = Generator(draw, forward, reverse).top()
    key = int(draw.integers(1000))
    f = lambda *x: jnp.concatenate(run(body, list(x), jax.random.key(key)))
    pair = lambda: tuple(jnp.asarray(np.round(draw.normal(size=SIZE), 2)) for _ in range(2))
    x, t, w = pair(), pair(), jnp.asarray(np.round(draw.normal(size=2 * SIZE), 2))
    results = quantities(f, forward, reverse)
    try:
        found = results(x, t, w)
    except Exception as error:
        # A custom reverse-mode rule inside a function that JAX differentiates in forward mode, or with captured
        # values.
        if "custom_vjp" in str(error):
            return None
        raise
    changed = [results(tuple(a * (1 + change) + change for a in x), t, w) for change in (1e-6, -1e-6)]
    narrow = lambda arrays: tuple(jnp.float32(a) for a in arrays)
    for near in [*changed, results(narrow(x), narrow(t), jnp.float32(w))]:
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(near)):
            scale = jnp.abs(a).max()
            if not (jnp.isfinite(a).all() and jnp.abs(a - b).max() <= 1e-4 * jnp.maximum(scale, 0.05) and scale < 1e4):
                return None
    value, tangent, gradient, product = found
    texts = lambda arrays: [tokens(np.float32(a)) for a in arrays]
    return {
        "function": f"program {seed} {number}", "arguments": "ordinary", "dtype": "float32", "forward": forward, "reverse": reverse,
        "x": texts(x), "t": texts(t), "w": tokens(np.float32(w)), "value": tokens(np.float32(value)),
        "tangent": tokens(np.float32(tangent)), "gradient": texts(gradient), "hvp": texts(product), "key": key, "program": body,
    }


def quantities(f, forward, reverse):
    """As `program`, for the derivatives that a function has."""
    def run(x, t, w):
        gradient = lambda *x: jax.vjp(f, *x)[1](w)
        value = f(*x)
        tangent = jax.jvp(f, x, t)[1] if forward else value * 0
        none = tuple(a * 0 for a in x)
        gradients, product = jax.jvp(gradient, x, t) if reverse else (none, none)
        return value, tangent, gradients, product
    return jax.jit(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="seed of the programs (default 0)")
    parser.add_argument("--count", type=int, default=48, help="number of programs (default 48)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"file (default {OUT})")
    options = parser.parse_args()
    count, number = 0, 0
    with options.out.open("w") as file:
        for seed, kept in KEPT if options.out == OUT else []:
            file.write(json.dumps(made(seed, kept)) + "\n")
        while count < options.count:
            case = made(options.seed, number)
            number += 1
            if case is not None:
                file.write(json.dumps(case) + "\n")
                file.flush()
                count += 1
            # The caches of all programs take gigabytes. Small operations of several programs are compiled once.
            if number % 25 == 0:
                jax.clear_caches()
    print(f"{count} programs of {number}: {options.out}")


if __name__ == "__main__":
    main()
