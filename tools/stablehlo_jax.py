#!/usr/bin/env python3
"""Compiles and runs grove's StableHLO with JAX's compiler, and compares the results with those of flex.

The tests of grove-xla write programs, arguments and results to the folder GROVE_STABLEHLO_OUT:

    GROVE_STABLEHLO_OUT=/tmp/programs cargo nextest run --workspace -E 'package(grove-xla)'
    tools/stablehlo_jax.py /tmp/programs
"""

import json
import pathlib
import sys

import jax
import ml_dtypes
import numpy as np
from jax.extend import backend as backends

TYPES = {"pred": np.bool_, "bf16": ml_dtypes.bfloat16} | {
    name: np.dtype(np_name)
    for name, np_name in [
        ("f16", "float16"), ("f32", "float32"), ("f64", "float64"), ("i8", "int8"), ("i16", "int16"),
        ("i32", "int32"), ("i64", "int64"), ("u8", "uint8"), ("u16", "uint16"), ("u32", "uint32"), ("u64", "uint64"),
    ]
}


def arrays(folder, name, specs):
    data = (folder / name).read_bytes()
    at = 0
    for kind, dims in specs:
        dtype = np.dtype(TYPES[kind])
        size = dtype.itemsize * int(np.prod(dims, dtype=np.int64))
        yield np.frombuffer(data[at : at + size], dtype).reshape(dims)
        at += size
    assert at == len(data), f"{name}: {len(data)} bytes, and {at} of them are arrays"


def run(text, arguments):
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client as xc
    from jax._src.lib.mlir import ir

    client = backends.get_backend("cpu")
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        devices = xc.DeviceList(tuple(client.devices()[:1]))
        program = client.compile_and_load(mlir.module_to_bytecode(module), devices, xc.CompileOptions())
    given = [client.buffer_from_pyval(np.ascontiguousarray(x)) if hasattr(client, "buffer_from_pyval")
             else jax.device_put(x) for x in arguments]
    return [np.asarray(x[0]) for x in program.execute_sharded(given).disassemble_into_single_device_arrays()]


def main():
    jax.config.update("jax_enable_x64", True)
    folder = pathlib.Path(sys.argv[1])
    cases = sorted(folder.glob("*.json"))
    if not cases:
        sys.exit(f"{folder}: there are no programs in it")
    failed = 0
    for case in cases:
        spec = json.loads(case.read_text())
        text = (folder / f"{case.stem}.mlir").read_text()
        found = run(text, list(arrays(folder, f"{case.stem}.in", spec["arguments"])))
        expected = list(arrays(folder, f"{case.stem}.out", spec["results"]))
        worst = 0.0
        # Random keys follow the compared results.
        for a, b in zip(found[: len(expected)], expected, strict=True):
            a, b = (np.asarray(x).astype(np.float64) for x in (a, b))
            assert a.shape == b.shape, f"{case.stem}: {a.shape} for {b.shape}"
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            finite = np.abs(b[np.isfinite(b)])
            largest = max(finite.max(initial=0.0), 1e-3)
            apart = np.abs(np.where(same, 0.0, a - b)).max(initial=0.0) / largest
            worst = max(worst, apart)
        ok = worst <= spec["tolerance"]
        failed += not ok
        if not ok or "-v" in sys.argv:
            print(f"{case.stem}: apart by {worst:.1e}, allowed {spec['tolerance']:.1e}")
    print(f"{len(cases) - failed} of {len(cases)} programs agree, by JAX {jax.__version__}")
    sys.exit(bool(failed))


main()
