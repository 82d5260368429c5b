"""A bench worker with JAX, whose models are pure functions; `protocol.py` describes the protocol.

    python benches/peers/jax_peer.py '{"row": {...}, "form": "jit", "threads": 2, "device": "cpu", "dtype": "f32"}'

The only form is `jit`. float32 products are computed in float32, on GPUs too, as is PyTorch's default. If the
specification has the `precision` `high`, they may round to TF32. A model trained in bf16 has its weights, gradients
and optimizer state in bf16.
"""

import os

from protocol import Unsupported, Work, pin, serve


def check(row: dict, spec: dict, known: list[str]) -> None:
    """Raises Unsupported for rows and options that this peer does not have."""
    if row["kind"] not in known:
        raise Unsupported(f"no rows of kind {row['kind']}")
    if spec["form"] != "jit":
        raise Unsupported(f"JAX has no form {spec['form']}")


def prepare(spec: dict) -> Work:
    # Select the platform explicitly: it must not depend on the presence of a GPU, and a CPU must not replace a
    # requested GPU.
    os.environ["JAX_PLATFORMS"] = spec["device"]
    # Other programs share the GPU and wait for their turn.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if spec["device"] == "cpu":
        pin(spec["threads"])
    import jax

    # PyTorch's default. JAX's default would round the operands of matrix products on newer GPUs.
    precision = dict(highest="float32", high="tensorfloat32")[spec.get("precision", "highest")]
    jax.config.update("jax_default_matmul_precision", precision)

    row = spec["row"]
    kind = row["kind"]
    try:
        device = jax.devices(spec["device"])[spec.get("device_index", 0)]
        jax.config.update("jax_default_device", device)
    except (RuntimeError, AssertionError, IndexError) as error:  # JAX raises AssertionError if no platform is left.
        raise Unsupported(f"JAX finds no {spec['device']} device") from error

    import jax_models
    import jax_ops
    import jax_runs

    check(row, spec, [*jax_ops.OPS, *jax_ops.STEPS, *jax_models.MODELS, *jax_runs.TASKS])
    randn = jax_ops.Randoms(jax.numpy.dtype(dict(f32="float32", bf16="bfloat16")[spec["dtype"]]))

    if kind in jax_ops.OPS:
        function, arguments = jax_ops.OPS[kind](row, randn)
        run = jax_ops.inference(function, arguments)
    elif kind in jax_ops.STEPS:
        run = jax_ops.STEPS[kind](row, randn)
    elif kind in jax_models.MODELS:
        run = jax_runs.model_run(row, randn)
    else:
        run = jax_runs.TASKS[kind](row, randn)

    def device_peak() -> int | None:
        return (device.memory_stats() or {}).get("peak_bytes_in_use")

    return Work(version=f"JAX {jax.__version__}", run=run, device_peak=device_peak)


if __name__ == "__main__":
    serve(prepare)
