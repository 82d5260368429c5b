"""Writes random nested programs, with JAX's values and derivatives, for engine/compile/tests/against_jax/programs.rs.

    python tools/against_jax/programs.py [--seed SEED] [--count COUNT] [--out FILE]

A program is a list of operations on vectors of four numbers, each of which appends values or random keys to the
existing ones. Operations may contain nested programs: jit, vmap, grad, jvp, scan, fori_loop, cond, switch, while,
checkpoint, and functions with custom rules. A nested program may use all keys of the programs around it, and one more
that its operation gives it. Programs whose results are sensitive to small changes of their arguments, or to f32
rounding, are skipped. The file has one program per line.
"""

import argparse
import json
import os
from collections import Counter
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
from jax import lax, nn

from derivatives import tokens

OUT = Path(__file__).resolve().parents[2] / "engine" / "compile" / "tests" / "fixtures" / "programs.jsonl"
SIZE = 4

# Programs that once had other results on a backend: an update with parts of the same array, on XLA. They stay in the
# fixture, and are not generated again.
KEPT = ["program 20261128 2180"]


def running_maximum(x):
    """`lax.cummax`, with the derivatives of grove: the last of equal elements has all of the gradient."""
    later = lambda a, b: jnp.where(x[b] >= x[a], b, a)
    return x[lax.associative_scan(later, jnp.arange(x.size))]


UNARY = {
    "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "sigmoid": nn.sigmoid, "silu": nn.silu, "erf": lax.erf,
    "square": lambda x: jnp.tanh(x) * jnp.tanh(x), "sqrt": lambda x: jnp.sqrt(x * x + 1), "log": lambda x: jnp.log(x * x + 0.5),
    "exp": lambda x: jnp.exp(jnp.clip(x, -2, 1)), "recip": lambda x: 1 / (x * x + 1), "abs": lambda x: jnp.abs(x + 0.13), "relu": nn.relu,
    "softmax": nn.softmax, "cumsum": jnp.cumsum, "cumprod": lambda x: jnp.cumprod(jnp.tanh(x) + 0.5),
    "flip": jnp.flip, "sum": lambda x: jnp.broadcast_to(x.mean(), x.shape), "max": lambda x: jnp.broadcast_to(x.max(), x.shape),
    "prod": lambda x: x * jnp.prod(jnp.tanh(x) + 0.8), "top": lambda x: jnp.tile(lax.top_k(x, 2)[0], 2),
    "pow": lambda x: (x * x + 0.1) ** 1.3, "cummax": running_maximum,
    # `top_k` of all elements is the stable descending sort; JAX's own reverses equal elements.
    "sort": jnp.sort, "sort_descending": lambda x: lax.top_k(x, SIZE)[0],
    "top_k": lambda x: jnp.concatenate([lax.top_k(x, 3)[0], x[:1]]), "argsort": lambda x: x * jnp.argsort(x),
}
BINARY = {
    "add": jnp.add, "sub": jnp.subtract, "mul": lambda a, b: jnp.tanh(a) * b, "div": lambda a, b: a / (b * b + 1),
    "larger": lambda a, b: jnp.where(a < b, b, a), "where": lambda a, b: jnp.where(a > 0.1, a, b), "atan2": lambda a, b: jnp.arctan2(a, b * b + 0.5),
    "dot": lambda a, b: jnp.broadcast_to(jnp.tanh(a @ b), a.shape), "outer": lambda a, b: jnp.tanh(a[:, None] * b[None]).sum(0),
}

# Associative functions of trees of rows [n, 4], which are made from two lists of rows.
ASSOCIATIVE = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "affine": (lambda a, b: (jnp.tanh(a), b), lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1])),
    "matmul": (lambda a, b: (jnp.tanh(a) + 0.1 * jnp.tanh(b)).reshape(-1, 2, 2), lambda a, b: a @ b),
}


DRAWS = {
    "normal": lambda key: jax.random.normal(key, (SIZE,), jnp.float32),
    "uniform": lambda key: jax.random.uniform(key, (SIZE,), jnp.float32),
    "bernoulli": lambda key: jax.random.bernoulli(key, jnp.float32(0.4), (SIZE,)),
    # The remainder of a prime depends on every bit.
    "bits": lambda key: (jax.random.bits(key, (SIZE,), jnp.uint32) % 251) / 251,
}


def floats(values, like):
    return jnp.asarray(values, like.dtype)


def run(body, env, keys):
    """Returns the outputs of a program on its inputs, which are followed by the captured values, and its random keys."""
    env, keys = list(env), list(keys)
    for op in body["ops"]:
        values, new = apply(op, env, keys)
        env.extend(values)
        keys.extend(new)
    return [env[i] for i in body["out"]]


def inner(op, name, env, keys):
    """Returns a nested program as a function of its inputs and of its own key, if its operation gives it one."""
    body = op[name]
    captured = [env[i] for i in body["captures"]]
    return lambda *inputs, own=None: tuple(run(body, [*inputs, *captured], [*keys, *listed(own)]))


def listed(key):
    return [] if key is None else [key]


def successor(own, number=1):
    """Returns the key that an operation returns for the key that it was given."""
    return None if own is None else jax.random.fold_in(own, number)


def weighted(stacked, weights):
    return (stacked * floats(weights, stacked)[:, None]).sum(0)


def steps_in_python(f, carry, xs, length, reverse):
    """A scan as a Python loop. In JAX 0.10 the gradient of `lax.scan` ignores custom rules of functions in it, so its
    second derivatives differ from those of a loop and of forward mode."""
    ys = [None] * length
    for i in reversed(range(length)) if reverse else range(length):
        carry, ys[i] = f(carry, jax.tree.map(lambda x: x[i], xs))
    return carry, tuple(jnp.stack(y) for y in zip(*ys))


def has_custom_rules(op):
    return "custom_jvp" in json.dumps(op)


def small_integer(a):
    """Returns an integer from 0 to 7 that depends on a vector."""
    return jnp.clip(jnp.floor(jnp.abs(a).sum() * 2).astype(int), 0, 7)


def apply(op, env, keys):
    """Returns the values and the keys that an operation appends."""
    kind = op["op"]
    args = [env[i] for i in op.get("a", [])]
    a = args[0] if args else None
    own = keys[op["from"]] if "from" in op else None
    match kind:
        case "split":
            return [], list(jax.random.split(own, op["count"]))
        case "fold_in":
            return [], [jax.random.fold_in(own, small_integer(a))]
        case "cond" | "switch":
            names = ("true", "false") if kind == "cond" else ("0", "1", "2")

            def branch(number, f):
                return lambda own, *x: (f(*x, own=own), successor(own, number))
            branches = [branch(i, inner(op, name, env, keys)) for i, name in enumerate(names)]
            if kind == "cond":
                values, key = lax.cond(a.sum() > op["above"], *branches, own, *args[1:])
            else:
                values, key = lax.switch(jnp.floor(a.sum()).astype(jnp.int32), branches, own, *args[1:])
            return list(values), listed(key)
        case "scan":
            body = inner(op, "body", env, keys)
            count, mode = op["carries"], op.get("keys")
            xs = tuple(jnp.stack([env[i] for i in places]) for places in op["xs"])
            of_steps = jax.random.split(own, op["length"]) if mode == "xs" else None

            def step(carry, x):
                (carry, key), (x, of_step) = carry, x
                if key is not None:
                    key, of_step = jax.random.split(key)
                outputs = body(*carry, *x, own=of_step)
                return (outputs[:count], key), outputs[count:]
            loop = steps_in_python if has_custom_rules(op) else lax.scan
            carry = (tuple(args), own if mode == "carry" else None)
            (carry, key), ys = loop(step, carry, (xs, of_steps), length=op["length"], reverse=op["reverse"])
            return list(carry) + [weighted(y, op["weights"]) for y in ys], listed(key)
        case "fori":
            body = inner(op, "body", env, keys)

            def step(i, carry):
                key = None if own is None else jax.random.fold_in(own, i)
                return body(*carry, jnp.full(SIZE, i, carry[0].dtype), own=key)
            if has_custom_rules(op):
                carry = tuple(args)
                for i in range(op["first"], op["end"]):
                    carry = step(i, carry)
                return list(carry), []
            return list(lax.fori_loop(op["first"], op["end"], step, tuple(args))), []
        case "while":
            body = inner(op, "body", env, keys)
            mode = op.get("keys")
            goes_on = lambda state: (state[0] < op["steps"]) & (state[1][0].sum() < op["below"])

            def step(state):
                count, carry, key = state
                of_step = jax.random.fold_in(own, count) if mode == "count" else None
                if key is not None:
                    key, of_step = jax.random.split(key)
                return count + 1, body(*carry, own=of_step), key
            start = (jnp.int32(0), tuple(args), own if mode == "carry" else None)
            _, values, key = lax.while_loop(goes_on, step, start)
            return list(values), listed(key)
        case "vmap":
            body = inner(op, "body", env, keys)
            mapped = [jnp.stack([env[i] for i in places]) for places in op["xs"]]
            own = None if own is None else jax.random.split(own, len(op["weights"]))
            f = lambda own, *x: (body(*x, own=own), successor(own))
            axes = (None if own is None else 0,) + (0,) * len(mapped) + (None,) * len(args)
            ys, new = jax.vmap(f, axes)(own, *mapped, *args)
            return [weighted(y, op["weights"]) for y in ys], [] if new is None else list(new)
        case "jit" | "checkpoint":
            body = inner(op, "body", env, keys)
            f = lambda own, *x: (body(*x, own=own), successor(own))
            if kind == "jit":
                f = jax.jit(f)
            elif not has_custom_rules(op):
                f = jax.checkpoint(f)
            values, key = f(own, *args)
            return list(values), listed(key)
        case _:
            return values_of(op, env, keys), []


def values_of(op, env, keys):
    """Returns the values that an operation without keys of its own appends."""
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
        case "at":
            places = np.array(op["places"])
            updates = args[1][:len(places)]
            match op["f"]:
                case "set":
                    return [a.at[places].set(updates)]
                case "add":
                    return [a.at[places].add(updates)]
                case "multiply":
                    return [a.at[places].multiply(jnp.tanh(updates), unique_indices=True)]
        case "draw":
            key = keys[op.get("from", 0)]
            for step in op["key"]:
                key = jax.random.split(key)[step] if step < 2 else jax.random.fold_in(key, step)
            return [DRAWS[op["f"]](key).astype(a.dtype) * a]
        case "associative":
            prepare, f = ASSOCIATIVE[op["f"]]
            rows = prepare(*(jnp.stack([env[i] for i in places]) for places in op["xs"]))
            prefixes = jax.tree.leaves(lax.associative_scan(f, rows, reverse=op["reverse"]))
            return [sum(weighted(x.reshape(-1, SIZE), op["weights"]) for x in prefixes)]
        case "grad":
            body = inner(op, "body", env, keys)
            loss = lambda *inputs: sum((y * floats(op["weights"], y)).sum() for y in body(*inputs))
            return list(jax.grad(loss, tuple(range(len(args))))(*args))
        case "jvp":
            body = inner(op, "body", env, keys)
            values, tangents = jax.jvp(body, tuple(args), tuple(env[i] for i in op["t"]))
            return list(values) + list(tangents)
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

    def body(self, inputs, around, keys, depth, outputs, forward, reverse, bounded=False, own=False):
        """Generates a nested program, which may capture values of the enclosing programs, and may draw from their keys
        and from its own, the last one."""
        captures = self.several(around, 0, 2) if around else []
        env = inputs + len(captures)
        ops = []
        if own:
            ops.append(self.drawing(self.last(env), keys))
            env, keys = env + 1, keys + 1
        for _ in range(int(self.draw.integers(1, 4))):
            env, keys = self.add(ops, env, keys, depth, forward, reverse)
        out = []
        for _ in range(outputs):
            out.append(self.last(env))
            if bounded:
                ops.append({"op": "unary", "f": "tanh", "a": [out[-1]]})
                out[-1] = env
                env += 1
        return {"captures": captures, "ops": ops, "out": out}

    def drawing(self, value, key):
        steps = [int(i) for i in self.draw.integers(5, size=int(self.draw.integers(0, 3)))]
        return {"op": "draw", "f": self.pick(list(DRAWS)), "a": [value], "from": key, "key": steps}

    def last(self, env):
        """Returns one of the values, preferably a late one."""
        return max(int(i) for i in self.draw.integers(env, size=2))

    def simple(self):
        """Generates a program of one value without nested programs."""
        return {"captures": [], "ops": [{"op": "unary", "f": self.pick(["sin", "tanh", "sigmoid", "recip"]), "a": [0]},
                                        {"op": "const", "a": [1], "values": self.values(SIZE), "more": self.values(SIZE)}], "out": [2]}

    def add(self, ops, env, keys, depth, forward, reverse):
        """Adds an operation and returns the number of values and of keys."""
        simple = ["unary", "unary", "unary", "unary", "binary", "binary", "const", "matvec", "select", "table", "argmax", "update",
                  "at", "draw", "draw", "split", "fold_in"]
        nested = ["cond", "switch", "scan", "scan", "fori", "grad", "jvp", "vmap", "jit", "checkpoint", "associative", "custom_jvp"]
        nested += ["while"] if not self.reverse and not reverse else []
        nested += ["custom_vjp"] if not self.forward and not forward else []
        kind = self.pick(nested) if depth > 0 and self.draw.random() < 0.45 else self.pick(simple)
        one = lambda: self.last(env)
        any_of = lambda count: [int(i) for i in self.draw.integers(env, size=count)]
        op, added, new = {"op": kind, "a": [one()]}, 1, 0
        # The ways in which an operation can give its program a key.
        ways = {"scan": [None, "carry", "xs"], "while": [None, "carry", "count"]}.get(kind, [None, "given"])
        way = self.pick(ways) if kind in ("cond", "switch", "scan", "fori", "while", "vmap", "jit", "checkpoint") else None
        if way is not None:
            op |= {"from": self.last(keys)} | ({"keys": way} if way != "given" else {})
        inside = lambda inputs, outputs, bounded=False, forward=forward, reverse=reverse: self.body(
            inputs, env, keys, depth - 1, outputs, forward, reverse, bounded, way is not None)
        match kind:
            case "unary":
                op["f"] = self.pick(list(UNARY))
            case "binary":
                op |= {"f": self.pick(list(BINARY)), "a": [one(), *any_of(1)]}
            case "const":
                op |= {"values": self.values(SIZE), "more": self.values(SIZE)}
            case "matvec":
                op["values"] = self.values(SIZE * SIZE)
            case "select":
                op["places"] = [int(i) for i in self.draw.integers(SIZE, size=SIZE)]
            case "table" | "argmax":
                op["values"] = self.values(SIZE * SIZE)
            case "update":
                op["a"] += any_of(1)
            case "at":
                # JAX does not say which of several updates of a place remains, and has no derivative of their product.
                op |= {"f": self.pick(["set", "add", "multiply"]), "a": [one(), *any_of(1)]}
                count = int(self.draw.integers(1, SIZE))
                places = self.draw.choice(SIZE, count, replace=op["f"] == "add")
                op["places"] = [int(i) for i in places]
            case "draw":
                op = self.drawing(one(), self.last(keys))
            case "split":
                new, added = int(self.draw.integers(2, 4)), 0
                op = {"op": kind, "from": self.last(keys), "count": new}
            case "fold_in":
                new, added = 1, 0
                op["from"] = self.last(keys)
            case "cond" | "switch":
                operands = self.several(env, 1, 2)
                added, new = int(self.draw.integers(1, 3)), int(way is not None)
                op["a"] += operands
                if kind == "cond":
                    op["above"] = self.values(1)[0]
                for name in (["true", "false"] if kind == "cond" else ["0", "1", "2"]):
                    op[name] = inside(len(operands), added)
            case "scan":
                carries, length = self.several(env, 1, 2), int(self.draw.integers(2, 4))
                xs = [any_of(length) for _ in range(int(self.draw.integers(1, 3)))]
                ys = int(self.draw.integers(0, 2))
                added, new = len(carries) + ys, int(way == "carry")
                op |= {"a": carries, "carries": len(carries), "xs": xs, "length": length, "reverse": bool(self.draw.integers(2)),
                       "weights": self.values(length),
                       "body": inside(len(carries) + len(xs), added, bounded=True)}
            case "fori":
                op["a"] = self.several(env, 1, 2)
                added, first = len(op["a"]), int(self.draw.integers(0, 3))
                op |= {"first": first, "end": first + int(self.draw.integers(0, 4)), "body": inside(added + 1, added, bounded=True)}
            case "while":
                op["a"] = self.several(env, 1, 2)
                added, new = len(op["a"]), int(way == "carry")
                op |= {"steps": int(self.draw.integers(0, 4)), "below": self.values(1)[0] + 1, "body": inside(added, added, bounded=True)}
            case "associative":
                count = int(self.draw.integers(1, 8))
                op = {"op": kind, "f": self.pick(list(ASSOCIATIVE)), "xs": [any_of(count), any_of(count)],
                      "reverse": bool(self.draw.integers(2)), "weights": self.values(count)}
            case "grad":
                op["a"] = self.several(env, 1, 2)
                added = len(op["a"])
                op |= {"weights": self.values(SIZE), "body": inside(added, 1, reverse=True)}
            case "jvp":
                op["a"] = self.several(env, 1, 2)
                added = 2
                op |= {"t": any_of(len(op["a"])), "body": inside(len(op["a"]), 1, forward=True)}
            case "vmap":
                op["a"] = self.several(env, 0, 1)
                count = int(self.draw.integers(2, 4))
                xs = [any_of(count) for _ in range(int(self.draw.integers(1, 3)))]
                added, new = int(self.draw.integers(1, 3)), count if way is not None else 0
                op |= {"xs": xs, "weights": self.values(count), "body": inside(len(xs) + len(op["a"]), added)}
            case "jit" | "checkpoint":
                op["a"] = self.several(env, 1, 2)
                new = int(way is not None)
                op["body"] = inside(len(op["a"]), 1)
            case "custom_jvp" | "custom_vjp":
                op |= {"body": self.simple(), "slope": self.simple()}
        ops.append(op)
        return env + added, keys + new

    def top(self):
        env, keys, ops = 2, 1, []
        while env < 7 or not any("body" in op or "true" in op or "0" in op for op in ops):
            env, keys = self.add(ops, env, keys, 3, False, False)
        return {"captures": [], "ops": ops, "out": [env - 1, self.last(env)]}


def generated(seed, number):
    """Returns a program without its results."""
    draw = np.random.default_rng([seed, number])
    forward, reverse = [(True, True), (True, False), (False, True), (True, True)][number % 4]
    body = Generator(draw, forward, reverse).top()
    key = int(draw.integers(1000))
    texts = lambda: [tokens(np.float32(np.round(draw.normal(size=SIZE), 2))) for _ in range(2)]
    x, t, w = texts(), texts(), tokens(np.float32(np.round(draw.normal(size=2 * SIZE), 2)))
    return {
        "function": f"program {seed} {number}", "arguments": "ordinary", "dtype": "float32", "forward": forward, "reverse": reverse,
        "x": x, "t": t, "w": w, "key": key, "program": body,
    }


def evaluated(case):
    """Returns a program with its results; `None` if the results are not informative."""
    body, key, forward, reverse = (case[name] for name in ("program", "key", "forward", "reverse"))
    f = lambda *x: jnp.concatenate(run(body, list(x), [jax.random.key(key)]))
    array = lambda text: jnp.asarray([float(token) for token in text.split()])
    x, t = (tuple(array(text) for text in case[name]) for name in ("x", "t"))
    w = array(case["w"])
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
    of_results = {
        "value": tokens(np.float32(value)), "tangent": tokens(np.float32(tangent)), "gradient": texts(gradient), "hvp": texts(product),
    }
    arguments = {name: value for name, value in case.items() if name not in of_results and name not in ("key", "program")}
    return arguments | of_results | {"key": key, "program": body}


def kinds(body):
    """Yields the operations of a program, with the functions and the ways of giving keys that they have."""
    for op in body["ops"]:
        given = op.get("keys", "given") if "from" in op and op["op"] not in ("draw", "split", "fold_in") else None
        name = op["op"] if op["op"] in ("unary", "binary", "draw", "at", "associative") else None
        yield op["op"], given and f"{op['op']} with {given} key", name and f"{name} {op['f']}"
        for value in op.values():
            if isinstance(value, dict):
                yield from kinds(value)


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
    fixed = options.out == OUT
    lines = [json.loads(line) for line in OUT.read_text().splitlines()] if fixed else []
    lines = [line for line in lines if line["function"] in KEPT]
    assert len(lines) == (len(KEPT) if fixed else 0), f"{OUT} does not have the programs {KEPT}: restore it"
    kept = [evaluated(line) for line in lines]
    assert None not in kept, f"the results of a program of {KEPT} are no longer informative"
    count, number, used = 0, 0, Counter()
    with options.out.open("w") as file:
        file.writelines(json.dumps(case) + "\n" for case in kept)
        while count < options.count:
            case = evaluated(generated(options.seed, number))
            number += 1
            if case is not None:
                file.write(json.dumps(case) + "\n")
                file.flush()
                used.update(kind for kinds_of_op in kinds(case["program"]) for kind in kinds_of_op if kind)
                count += 1
            # The caches of all programs take gigabytes. Small operations of several programs are compiled once.
            if number % 25 == 0:
                jax.clear_caches()
    print(f"{count} programs of {number}: {options.out}")
    print(", ".join(f"{kind} {times}" for kind, times in sorted(used.items())))


if __name__ == "__main__":
    main()
