"""An LSTM that predicts the next value of a time series."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Forecast(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, key):
        cell, head = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(1, 32, key=cell)
        self.head = eqx.nn.Linear(32, 1, key=head)

    def __call__(self, x):
        state = jnp.zeros(32), jnp.zeros(32)
        (h, _), _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), state, x)
        return self.head(h)


@eqx.filter_value_and_grad
def loss(model, x, y):
    return optax.squared_error(jax.vmap(model)(x), y).mean()


def train(series, window, steps):
    rows = jnp.arange(len(series) - window)[:, None] + jnp.arange(window + 1)
    x, y = series[rows][:, :-1, None], series[rows][:, -1:]
    model = Forecast(jax.random.key(0))
    optimizer = optax.adamw(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))
    for _ in range(steps):
        _, grads = loss(model, x, y)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
        model = eqx.apply_updates(model, updates)
    return model
