"""A custom optimizer: Lion."""
import jax
import jax.numpy as jnp
import optax


def scale_by_lion(b1, b2):
    def init(params):
        return jax.tree.map(jnp.zeros_like, params)

    def update(updates, momentum, params=None):
        signs = jax.tree.map(lambda g, m: jnp.sign(b1 * m + (1 - b1) * g), updates, momentum)
        momentum = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, updates, momentum)
        return signs, momentum

    return optax.GradientTransformation(init, update)
