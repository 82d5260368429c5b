"""JAX counterparts of functions of arrays, those of engine/compile/tests/against_jax/arrays.rs. Arguments and results
are flat."""

import jax
import jax.numpy as jnp
import numpy as np


def flat(*parts):
    return jnp.concatenate([part.reshape(-1) for part in parts])


def of(shape, f):
    """Returns a function of one array of a shape."""
    return lambda x: flat(f(x.reshape(shape)))


def matrix(f):
    return of((2, 3), f)


def cube(f):
    return of((2, 3, 2), f)


def pieces(f):
    return lambda x: flat(*f(x.reshape(2, 3)))


SHAPES = {
    "reshape": (6, of((3, 2), lambda m: m.T)),
    "flatten": (12, of((2, 6), lambda m: m.T)),
    "transpose": (6, matrix(jnp.transpose)),
    "t": (6, matrix(jnp.transpose)),
    "swap_dims": (12, cube(lambda x: jnp.swapaxes(x, 0, 2))),
    "permute": (12, cube(lambda x: jnp.transpose(x, (2, 0, 1)))),
    "movedim": (12, cube(lambda x: jnp.moveaxis(x, 0, 2))),
    "flip": (12, cube(lambda x: jnp.flip(x, (0, 2)))),
    "squeeze": (6, matrix(jnp.transpose)),
    "squeeze_dim": (6, matrix(jnp.transpose)),
    "squeeze_dims": (6, matrix(jnp.transpose)),
    "unsqueeze": (6, matrix(lambda m: m)),
    "unsqueeze_dim": (6, matrix(lambda m: jnp.swapaxes(m[:, None], 0, 2))),
    "unsqueeze_dims": (6, matrix(lambda m: jnp.swapaxes(m[None, :, None], 1, 3))),
    "roll": (6, matrix(lambda m: jnp.roll(m, (1, 2), (0, 1)))),
    "roll_dim": (6, matrix(lambda m: jnp.roll(m, 1, 1))),
    "slice": (6, matrix(lambda m: m[0:2, 1:3])),
    "slice by steps": (12, cube(lambda x: x[:, 0:3:2, ::-1])),
    "slice_dim": (6, matrix(lambda m: m[:, 0:2])),
    "slice_fill": (6, matrix(lambda m: m.at[0:1, 1:3].set(0.5))),
    "narrow": (6, matrix(lambda m: m[:, 1:3])),
    "chunk": (6, pieces(lambda m: (m[:, 2:], m[:, :2]))),
    "split": (6, pieces(lambda m: (m[:, 2:], m[:, :2]))),
    "split_with_sizes": (6, pieces(lambda m: (m[:, 1:], m[:, :1]))),
    "iter_dim": (6, pieces(lambda m: tuple(m.T))),
    "cat": (6, matrix(lambda m: jnp.concatenate([m, m * 2], 1))),
    "stack": (6, matrix(lambda m: jnp.stack([m, m * 2], 1))),
    "repeat": (6, matrix(lambda m: jnp.tile(m, (2, 2)))),
    "repeat_dim": (6, matrix(lambda m: jnp.tile(m, (1, 3)))),
    "expand": (6, of((6, 1), lambda m: jnp.broadcast_to(m, (2, 6, 3)))),
    "unfold": (6, lambda x: flat(x[0:3], x[2:5])),
    "pad constant": (6, matrix(lambda m: jnp.pad(m, ((0, 1), (1, 2)), constant_values=0.5))),
    "pad reflect": (6, matrix(lambda m: jnp.pad(m, ((0, 1), (1, 2)), "reflect"))),
    "pad edge": (6, matrix(lambda m: jnp.pad(m, ((0, 1), (1, 2)), "edge"))),
    "tril": (6, matrix(jnp.tril)),
    "triu": (6, matrix(lambda m: jnp.triu(m, 1))),
    "select": (6, matrix(lambda m: m[:, jnp.array([2, 0, 2])])),
    "take": (6, matrix(lambda m: jnp.take(m, jnp.array([[2, 0], [1, 2]]), 1))),
    "gather": (6, matrix(lambda m: jnp.take_along_axis(m, jnp.array([[2, 0, 2, 1], [1, 1, 0, 0]]), 1))),
    "gather_nd": (6, matrix(lambda m: m[jnp.array([1, 0, 1]), jnp.array([2, 0, 2])])),
    "detach": (6, lambda x: jax.lax.stop_gradient(x) * x),
}


def update(f):
    return lambda a, b: flat(f(a.reshape(2, 3), b.reshape(2, 2)))


ROWS, COLUMNS = np.array([[0, 0], [1, 1]]), np.array([[0, 2], [1, 1]])
def combined(f):
    """Combines elements one after the other. JAX has no derivative of a product in which an index occurs twice."""
    def run(m, part):
        for i in range(2):
            for j in range(2):
                m = m.at[i, COLUMNS[i, j]].set(f(m[i, COLUMNS[i, j]], part[i, j]))
        return m
    return run


UPDATES = {
    "slice_assign": update(lambda m, part: m.at[0:2, 1:3].set(part)),
    "select_assign": update(lambda m, part: m.at[:, jnp.array([2, 2])].add(part)),
    "scatter": update(lambda m, part: m.at[ROWS, COLUMNS].add(part)),
    "scatter_nd add": lambda a, b: flat(a.reshape(2, 3).at[np.array([0, 1, 1, 0]), np.array([2, 1, 1, 0])].add(b)),
    "ops::dynamic_update_slice": update(lambda m, part: jax.lax.dynamic_update_slice(m, part, (0, 1))),
    "ops::concat": update(lambda _, part: jnp.concatenate([part, part * 2], 1)),
    "ops::scatter set": update(lambda m, part: m.at[ROWS, COLUMNS].set(part)),
    "ops::scatter mul": update(combined(jnp.multiply)),
    "ops::scatter min": update(combined(jnp.minimum)),
    "ops::scatter max": update(combined(jnp.maximum)),
    "ops::select_assign set": update(lambda m, part: m.at[:, jnp.array([2, 0])].set(part)),
    "ops::select_assign mul": update(lambda m, part: m.at[:, 2].set(m[:, 2] * part[:, 0] * part[:, 1])),
    "ops::index_copy": update(lambda m, part: m.at[:, jnp.array([2, 0])].set(part)),
    "ops::select_assign min": update(lambda m, part: m.at[:, jnp.array([2, 2])].min(part)),
    "ops::select_assign max": update(lambda m, part: m.at[:, jnp.array([2, 2])].max(part)),
    "ops::chunk": update(lambda m, _: jnp.stack([m[:, 2], m[:, 1], m[:, 0]])),
}


def norm(p):
    return matrix(lambda m: jnp.sum(jnp.abs(m) ** p, 1) ** (1 / p))


def l2(m):
    return jnp.sqrt(jnp.sum(jnp.square(m), 1, keepdims=True))


REDUCTIONS = {
    "sum": matrix(jnp.sum),
    "sum_dim": matrix(lambda m: m.sum(1)),
    "sum_dims": matrix(jnp.sum),
    "sum_dims_squeeze": matrix(lambda m: m.sum(0)),
    "mean": matrix(jnp.mean),
    "mean_dim": matrix(lambda m: m.mean(0)),
    "mean_dims": matrix(jnp.mean),
    "prod": matrix(jnp.prod),
    "prod_dim": matrix(lambda m: m.prod(1)),
    "prod_dims": matrix(jnp.prod),
    "max": matrix(jnp.max),
    "max_dim": matrix(lambda m: m.max(1)),
    "max_dims": matrix(lambda m: m.max(0).max(0)),
    "max_dim_with_indices": matrix(lambda m: m.max(1)),
    "max_abs": matrix(lambda m: jnp.abs(m).max()),
    "max_abs_dim": matrix(lambda m: jnp.abs(m).max(1)),
    "max_abs_dims": matrix(lambda m: jnp.abs(m).max(0).max(0)),
    "min": matrix(jnp.min),
    "min_dim": matrix(lambda m: m.min(1)),
    "min_dims": matrix(lambda m: m.min(0).min(0)),
    "min_dim_with_indices": matrix(lambda m: m.min(1)),
    "var": matrix(lambda m: m.var(1, ddof=1)),
    "var_bias": matrix(lambda m: m.var(1)),
    "var_mean": pieces(lambda m: (m.var(1, ddof=1), m.mean(1))),
    "var_mean_bias": pieces(lambda m: (m.var(1), m.mean(1))),
    # Burn's `cov` of rows, along columns: the products of centred columns.
    "cov": matrix(lambda m: (m - m.mean(1, keepdims=True)) @ (m - m.mean(1, keepdims=True)).T / 2),
    "median": matrix(lambda m: jnp.sort(m, 1)[:, 1]),
    "median_with_indices": matrix(lambda m: jnp.sort(m, 1)[:, 1]),
    "cumsum": matrix(lambda m: jnp.cumsum(m, 1)),
    "cumprod": matrix(lambda m: jnp.cumprod(m, 1)),
    "cummax": matrix(lambda m: jax.lax.cummax(m, 1)),
    "cummin": matrix(lambda m: jax.lax.cummin(m, 1)),
    "sort": matrix(lambda m: jnp.sort(m, 1)),
    "sort_descending": matrix(lambda m: jnp.sort(m, 1, descending=True)),
    "sort_with_indices": matrix(lambda m: jnp.sort(m, 1)),
    "sort_descending_with_indices": matrix(lambda m: jnp.sort(m, 1, descending=True)),
    "topk": matrix(lambda m: jax.lax.top_k(m, 2)[0]),
    "topk of all": matrix(lambda m: jax.lax.top_k(m, 3)[0]),
    "topk_with_indices": matrix(lambda m: jax.lax.top_k(m, 2)[0]),
    "l0_norm": matrix(lambda m: (m != 0).astype(m.dtype).sum(1)),
    "l1_norm": matrix(lambda m: jnp.abs(m).sum(1)),
    "l2_norm": matrix(l2),
    "lp_norm": norm(3.0),
    "max_abs_norm": matrix(lambda m: jnp.abs(m).max(1)),
    "min_abs_norm": matrix(lambda m: jnp.abs(m).min(1)),
    "vector_norm": norm(1.5),
    "vector_normalize": matrix(lambda m: m / jnp.maximum(l2(m), 1e-12)),
    "trace": matrix(lambda m: jnp.trace(m[:, :2])),
    "diag": matrix(jnp.diag),
    "det": matrix(lambda m: m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]),
    "lu": matrix(lambda m: jax.scipy.linalg.lu(m[:, :2])[1]),
    "meshgrid": lambda x: flat(*jnp.meshgrid(x[:3], x[3:], indexing="ij")),
    "meshgrid_stack": lambda x: flat(jnp.stack(jnp.meshgrid(x[:3], x[3:], indexing="ij"), -1)),
    "ops::sort": matrix(lambda m: jnp.sort(m, 1)),
    # The stable descending sort; `jnp.sort` reverses equal elements.
    "ops::sort descending": matrix(lambda m: jax.lax.top_k(m, 3)[0]),
    "ops::top_k": matrix(lambda m: jax.lax.top_k(m, 2)[0]),
    "ops::sum_of_squares": lambda x: jnp.sum(x * x)[None] * 2,
}


def pair(f):
    return lambda a, b: flat(f(a.reshape(2, 3), b.reshape(2, 3)))


PRODUCTS = {
    "matmul": pair(lambda m, n: m @ n.T),
    "matmul of batches": pair(lambda m, n: m[:, None] @ n[..., None]),
    "ops::matmul": pair(lambda m, n: m @ n.T),
    "dot": lambda a, b: jnp.dot(a, b)[None],
    "cross": pair(jnp.cross),
    "matvec": lambda a, b: a.reshape(2, 3) @ b[:3],
    "outer": lambda a, b: flat(jnp.outer(a, b)),
    "outer_dim": pair(lambda m, n: m[:, :, None] * n[:, None, :]),
    "cosine_similarity": pair(lambda m, n: jnp.sum(m * n, 1, keepdims=True)
                              / (jnp.maximum(l2(m), 1e-8) * jnp.maximum(l2(n), 1e-8))),
    "cross_entropy_with_logits": pair(lambda m, n: -jnp.mean(jnp.sum(jax.nn.log_softmax(m) * n, 1))),
    "ops::linear": lambda a, b: flat(a.reshape(2, 3) @ b.reshape(2, 3).T + b[:2]),
    "ops::scale": lambda a, b: a * b[0],
}


def parts(spectrum):
    return flat(spectrum.real, spectrum.imag)


def complex_of(re, im):
    """Returns half spectra `[2, 3]`. The first and the last coefficient of a real signal are real."""
    im = im.reshape(2, 3) * jnp.asarray([0, 1, 0], im.dtype)
    return re.reshape(2, 3) + 1j * im


def window(x):
    return jnp.asarray([0.5, 1.0, 0.75, 0.25], x.dtype)


def stft(x):
    """Frames of four samples, every two samples, of the signal with reflected ends."""
    x = jnp.pad(x, 2, "reflect")
    frames = jnp.stack([x[i:i + 4] for i in range(0, 13, 2)])
    spectrum = jnp.fft.rfft(frames * window(x), axis=1)
    return flat(jnp.stack([spectrum.real, spectrum.imag], -1))


def istft(x):
    x = x.reshape(5, 3, 2)
    spectrum = x[..., 0] + 1j * (x[..., 1] * jnp.asarray([0, 1, 0], x.dtype))
    frames = jnp.fft.irfft(spectrum, axis=1) * window(x)
    total, weight = jnp.zeros(12, x.dtype), jnp.zeros(12, x.dtype)
    for i, frame in enumerate(frames):
        total = total.at[2 * i:2 * i + 4].add(frame)
        weight = weight.at[2 * i:2 * i + 4].add(window(x) ** 2)
    return (total / weight)[2:-2]


# Sizes of the arguments, and the function.
SIGNALS = {
    "rfft": ([8], lambda x: parts(jnp.fft.rfft(x.reshape(2, 4), axis=1))),
    "irfft": ([6, 6], lambda re, im: flat(jnp.fft.irfft(complex_of(re, im), axis=1))),
    "cfft": ([8, 8], lambda re, im: parts(jnp.fft.fft(re.reshape(2, 4) + 1j * im.reshape(2, 4), axis=1))),
    "stft": ([12], stft),
    "istft": ([30], istft),
}
