"""JAX counterparts of neural-network operations, those of engine/compile/tests/against_jax/modules.rs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, nn

from arrays import flat


def rows(f):
    return lambda x, *rest: flat(f(x.reshape(2, 4), *rest))


def quiet_softmax(m):
    largest = lax.stop_gradient(m.max(1, keepdims=True))
    exp = jnp.exp(m - largest)
    return exp / (exp.sum(1, keepdims=True) + jnp.exp(-largest))


def causal_softmax(m):
    visible = np.tril(np.ones((2, 4), bool), 2)
    return nn.softmax(jnp.where(visible, m * jnp.asarray(0.7, m.dtype), -jnp.inf), 1)


def layer_norm(m, weight, bias):
    centred = m - m.mean(1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, 1, keepdims=True) + 1e-5) * weight + bias


def rms_norm(m, weight):
    return m * lax.rsqrt(jnp.mean(m * m, 1, keepdims=True) + 1e-5) * weight


# Shapes of the arguments, and the function.
ROWS = {
    "softmax": ([8], rows(lambda m: nn.softmax(m, 1))),
    "softmin": ([8], rows(lambda m: nn.softmax(-m, 1))),
    "log_softmax": ([8], rows(lambda m: nn.log_softmax(m, 1))),
    "quiet_softmax": ([8], rows(quiet_softmax)),
    "glu": ([8], rows(lambda m: nn.glu(m, 1))),
    "layers::softmax": ([8], rows(lambda m: nn.softmax(m, 1))),
    "ops::masked_softmax": ([8], rows(causal_softmax)),
    "ops::nll": ([8], rows(lambda m: -nn.log_softmax(m, 1)[jnp.arange(2), jnp.array([2, 0])])),
    "prelu": ([8, 4], rows(lambda m, alpha: jnp.where(m < 0, alpha * m, m))),
    "ops::row_norm layer": ([8, 4, 4], rows(layer_norm)),
    "ops::row_norm rms": ([8, 4], rows(rms_norm)),
}

SPATIAL = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCHWD", "OIHWD", "NCHWD")}


def conv(x, weight, stride, padding):
    return lax.conv_general_dilated(x, weight, stride, [(p, p) for p in padding], dimension_numbers=SPATIAL[len(stride)])


def conv_transpose(x, weight, stride, padding):
    """Transposed convolution with a weight [in, out, ...]."""
    size = weight.shape[2:]
    weight = jnp.flip(jnp.swapaxes(weight, 0, 1), tuple(range(2, weight.ndim)))
    padding = [(k - 1 - p, k - 1 - p) for k, p in zip(size, padding)]
    return lax.conv_general_dilated(
        x, weight, (1,) * len(stride), padding, lhs_dilation=stride, dimension_numbers=SPATIAL[len(stride)])


def with_bias(f, image, weight, stride, padding):
    def run(x, w, bias):
        y = f(x.reshape(image), w.reshape(weight), stride, padding)
        return flat(y + bias.reshape((-1,) + (1,) * len(stride)))
    return run


def windows(x, kernel, stride, padding, fill):
    """Returns the values of each window, [b, c, h, w, kh * kw]; `fill` outside the image."""
    x = jnp.pad(x, ((0, 0), (0, 0)) + tuple((p, p) for p in padding), constant_values=fill)
    count = [(size - k) // s + 1 for size, k, s in zip(x.shape[2:], kernel, stride)]
    parts = [
        x[:, :, i:i + (count[0] - 1) * stride[0] + 1:stride[0], j:j + (count[1] - 1) * stride[1] + 1:stride[1]]
        for i in range(kernel[0]) for j in range(kernel[1])
    ]
    return jnp.stack(parts, -1)


def max_pool(x, kernel, stride, padding):
    window = windows(x, kernel, stride, padding, -jnp.inf)
    return window.max(-1)


def avg_pool(x, kernel, stride, padding, counts_padding):
    total = windows(x, kernel, stride, padding, 0.0).sum(-1)
    count = windows(jnp.ones_like(x), kernel, stride, padding, 1.0 if counts_padding else 0.0).sum(-1)
    return total / count


def adaptive(x, sizes):
    for axis, size in zip((2, 3), sizes):
        length = x.shape[axis]
        starts = [i * length // size for i in range(size)]
        ends = [-(-(i + 1) * length // size) for i in range(size)]
        parts = [lax.slice_in_dim(x, a, b, axis=axis).mean(axis) for a, b in zip(starts, ends)]
        x = jnp.stack(parts, axis)
    return x


def image(f):
    return lambda x, *rest: flat(f(x.reshape(1, 2, 4, 3), *rest))


def line(f):
    return lambda x: flat(f(x.reshape(1, 2, 12, 1)))


def bilinear_at(x, rows, columns):
    """Samples pixels [c, h, w] bilinearly at real positions; zeros outside the image."""
    def pixel(i, j):
        inside = (i >= 0) & (i < x.shape[1]) & (j >= 0) & (j < x.shape[2])
        i = jnp.clip(i, 0, x.shape[1] - 1).astype(int)
        j = jnp.clip(j, 0, x.shape[2] - 1).astype(int)
        return jnp.where(inside, x[:, i, j], 0)
    i, j = jnp.floor(lax.stop_gradient(rows)), jnp.floor(lax.stop_gradient(columns))
    di, dj = rows - i, columns - j
    return (pixel(i, j) * (1 - di) * (1 - dj) + pixel(i, j + 1) * (1 - di) * dj
            + pixel(i + 1, j) * di * (1 - dj) + pixel(i + 1, j + 1) * di * dj)


def grid_sample(x, grid):
    x, grid = x.reshape(2, 4, 3), grid.reshape(2, 2, 2)
    columns = ((grid[..., 0] + 1) * 3 - 1) / 2
    rows = ((grid[..., 1] + 1) * 4 - 1) / 2
    return flat(bilinear_at(x, rows, columns))


def deform_conv(x, offset, weight):
    x, offset, weight = x.reshape(2, 4, 3), offset.reshape(8, 3, 2), weight.reshape(1, 2, 2, 2)
    y = 0
    for k, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        rows = jnp.arange(3)[:, None] + i + offset[2 * k]
        columns = jnp.arange(2)[None, :] + j + offset[2 * k + 1]
        y = y + jnp.einsum("oc,chw->ohw", weight[:, :, i, j], bilinear_at(x, rows, columns))
    return flat(y)


def affine_grid(x):
    t = x[:6].reshape(2, 3)
    rows, columns = jnp.linspace(-1, 1, 3), jnp.linspace(-1, 1, 2)
    base = jnp.stack([jnp.broadcast_to(columns[None], (3, 2)), jnp.broadcast_to(rows[:, None], (3, 2)), jnp.ones((3, 2))], -1)
    return flat(base.astype(x.dtype) @ t.T)


def batch_norm(x, weight, bias):
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.mean((x - mean) ** 2, (0, 2, 3), keepdims=True)
    column = lambda v: v.reshape(1, 2, 1, 1)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * column(weight) + column(bias)


def conv_fused(x, w, scale, shift):
    column = lambda v: v.reshape(1, 2, 1, 1)
    return nn.relu(conv(x, w.reshape(2, 2, 3, 2), (2, 1), (1, 1)) * column(scale) + column(shift))


def unfold(x):
    parts = windows(x, (2, 2), (1, 1), (0, 0), 0.0)  # [1, 2, 3, 2, 4]
    return jnp.moveaxis(parts, -1, 2).reshape(1, 8, 6)


def resize(method):
    return image(lambda x: jax.image.resize(x, (1, 2, 8, 6), method))


def resize_by(weight, taps, skips):
    """Interpolates with a weight function of the distance, over a range of neighbours. Neighbours outside the image are
    skipped and the other weights scaled, or they repeat the edge."""
    def along(x, axis, size):
        n = x.shape[axis]
        places = (np.arange(size) + 0.5) * n / size - 0.5
        neighbours = np.floor(places)[:, None].astype(int) + np.array(taps)
        weights = weight(places[:, None] - neighbours)
        used = (neighbours >= 0) & (neighbours < n) if skips else np.ones_like(neighbours, bool)
        weights = weights / np.where(used, weights, 0).sum(1, keepdims=True) if skips else weights
        x = jnp.moveaxis(x, axis, -1)[..., np.clip(neighbours, 0, n - 1)]
        return jnp.moveaxis(jnp.where(used, x * jnp.asarray(weights, x.dtype), 0).sum(-1), -1, axis)
    return image(lambda x: along(along(x, 3, 6), 2, 8))


def cubic(t, a=-0.75):
    """Weights of bicubic interpolation, with PyTorch's constant."""
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    return np.where(t < 1, near, np.where(t < 2, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a, 0))


def lanczos(t):
    return np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0)


IMAGES = {
    "conv1d": ([24, 12, 2], with_bias(conv, (1, 2, 12), (2, 2, 3), (2,), (1,))),
    "conv2d": ([24, 24, 2], with_bias(conv, (1, 2, 4, 3), (2, 2, 3, 2), (2, 1), (1, 1))),
    "conv3d": ([24, 8, 1], with_bias(conv, (1, 2, 3, 2, 2), (1, 2, 2, 2, 1), (1, 1, 1), (1, 0, 0))),
    "conv_transpose1d": ([24, 12, 2], with_bias(conv_transpose, (1, 2, 12), (2, 2, 3), (2,), (1,))),
    "conv_transpose2d": ([24, 24, 2], with_bias(conv_transpose, (1, 2, 4, 3), (2, 2, 3, 2), (2, 1), (1, 0))),
    "conv_transpose3d": ([24, 8, 1], with_bias(conv_transpose, (1, 2, 3, 2, 2), (2, 1, 2, 2, 1), (1, 1, 1), (0, 0, 0))),
    "deform_conv2d": ([24, 48, 8], deform_conv),
    "avg_pool1d": ([24], line(lambda x: avg_pool(x, (3, 1), (2, 1), (1, 0), False))),
    "avg_pool2d": ([24], image(lambda x: avg_pool(x, (2, 2), (1, 1), (1, 0), True))),
    "max_pool1d": ([24], line(lambda x: max_pool(x, (3, 1), (2, 1), (1, 0)))),
    "max_pool1d_with_indices": ([24], line(lambda x: max_pool(x, (3, 1), (2, 1), (1, 0)))),
    "max_pool2d": ([24], image(lambda x: max_pool(x, (2, 2), (2, 1), (1, 0)))),
    "max_pool2d_with_indices": ([24], image(lambda x: max_pool(x, (2, 2), (2, 1), (1, 0)))),
    "adaptive_avg_pool1d": ([24], line(lambda x: adaptive(x, (4, 1)))),
    "adaptive_avg_pool2d": ([24], image(lambda x: adaptive(x, (2, 3)))),
    "interpolate nearest": ([24], resize("nearest")),
    "interpolate bilinear": ([24], resize("bilinear")),
    "interpolate bicubic": ([24], resize_by(cubic, range(-1, 3), skips=False)),
    "interpolate lanczos3": ([24], resize_by(lanczos, range(-2, 4), skips=True)),
    "unfold4d": ([24], image(unfold)),
    "grid_sample_2d": ([24, 8], grid_sample),
    "affine_grid_2d": ([24], affine_grid),
    "ops::conv2d": ([24, 24], image(lambda x, w: conv(x, w.reshape(2, 2, 3, 2), (2, 1), (1, 1)))),
    "ops::conv2d_fused": ([24, 24, 2, 2], image(conv_fused)),
    "ops::batch_norm": ([24, 2, 2], image(batch_norm)),
    "ops::max_pool2d": ([24], image(lambda x: max_pool(x, (2, 2), (2, 1), (1, 0)))),
}


def attention(scale, mask=None):
    """Attention over visible keys; a fully masked query returns zeros."""
    def run(q, k, v, bias=None):
        q, k, v = (x.reshape(1, 2, 3, 2) for x in (q, k, v))
        scores = q @ jnp.swapaxes(k, 2, 3) * jnp.asarray(scale, q.dtype)
        if bias is not None:
            scores = scores + bias.reshape(1, 1, 3, 3)
        if mask is None:
            return flat(nn.softmax(scores) @ v)
        some = mask.any(-1, keepdims=True)
        weights = nn.softmax(jnp.where(some, jnp.where(mask, scores, -jnp.inf), 0))
        return flat(jnp.where(some, weights, 0) @ v)
    return run


CAUSAL = np.tril(np.ones((3, 3), bool))
VISIBLE = ~np.array([[False, True, False], [False, False, True], [True, True, True]])


def ctc(x):
    return optax.ctc_loss(x.reshape(1, 4, 3), jnp.zeros((1, 4), x.dtype), jnp.array([[1, 2]]), jnp.zeros((1, 2), x.dtype)).astype(x.dtype)


def rope(x, cos, sin):
    x = x.reshape(1, 3, 2, 2)
    a, b = x[..., :1], x[..., 1:]
    cos, sin = cos.reshape(1, 3, 1, 1), sin.reshape(1, 3, 1, 1)
    return flat(jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1))


def recurrent(gates, cell):
    """Two sequences, of two steps and of one step."""
    def run(x, w_ih, w_hh, bias, *states):
        x, w_ih, w_hh = x.reshape(3, 2), w_ih.reshape(gates * 2, 2), w_hh.reshape(gates * 2, 2)
        states = [state.reshape(2, 2) for state in states]
        outputs = []
        for part, n in ((x[:2], 2), (x[2:], 1)):
            new = cell(part, w_ih, w_hh, bias, [state[:n] for state in states])
            outputs.append(new[0])
            states = [jnp.concatenate([new, old[n:]]) for new, old in zip(new, states)]
        return flat(*outputs, *states)
    return run


def lstm(x, w_ih, w_hh, bias, states):
    h, c = states
    i, f, g, o = jnp.split(x @ w_ih.T + h @ w_hh.T + bias, 4, 1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return [nn.sigmoid(o) * jnp.tanh(c), c]


def gru(x, w_ih, w_hh, bias, states):
    (h,) = states
    x_r, x_z, x_n = jnp.split(x @ w_ih.T + bias[:6], 3, 1)
    h_r, h_z, h_n = jnp.split(h @ w_hh.T, 3, 1)
    z = nn.sigmoid(x_z + h_z)
    new = jnp.tanh(x_n + nn.sigmoid(x_r + h_r) * (h_n + bias[6:]))
    return [new + z * (h - new)]


def rnn(f):
    return lambda x, w_ih, w_hh, bias, states: [f(x @ w_ih.T + states[0] @ w_hh.T + bias)]


SEQUENCES = {
    "attention": ([12, 12, 12], attention(2 ** -0.5)),
    "attention_fallback": ([12, 12, 12], attention(2 ** -0.5)),
    "attention causal": ([12, 12, 12], attention(2 ** -0.5, CAUSAL)),
    "linear": ([12, 8, 2], lambda x, w, b: flat(x.reshape(3, 4) @ w.reshape(4, 2) + b)),
    "embedding": ([12], lambda x: flat(x.reshape(4, 3)[jnp.array([2, 0, 2])])),
    "ctc_loss": ([12], ctc),
    "ops::attention": ([12, 12, 12], attention(0.7)),
    "ops::attention causal": ([12, 12, 12], attention(0.7, CAUSAL)),
    "ops::attention mask": ([12, 12, 12], attention(0.7, VISIBLE)),
    "ops::attention bias": ([12, 12, 12, 9], attention(0.7)),
    "ops::apply_rope": ([12, 3, 3], rope),
    "ops::embedding": ([12], lambda x: flat(x.reshape(4, 3)[jnp.array([2, 0, 2])])),
    "ops::lstm": ([6, 16, 16, 8, 4, 4], recurrent(4, lstm)),
    "ops::gru": ([6, 12, 12, 8, 4], recurrent(3, gru)),
    "ops::rnn": ([6, 4, 4, 2, 4], recurrent(1, rnn(jnp.tanh))),
    "ops::rnn relu": ([6, 4, 4, 2, 4], recurrent(1, rnn(nn.relu))),
}
