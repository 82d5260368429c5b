"""A multilayer perceptron on MNIST's digits."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from torchvision import datasets


class Mlp(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, pixels, key):
        up, down = jax.random.split(key)
        self.up = eqx.nn.Linear(pixels, 128, key=up)
        self.down = eqx.nn.Linear(128, 10, key=down)

    def __call__(self, x):
        return self.down(jax.nn.relu(self.up(x)))


def read(root, train):
    digits = datasets.MNIST(root, train=train)
    return jnp.asarray(digits.data.flatten(1)) / 255, jnp.asarray(digits.targets)


@eqx.filter_value_and_grad
def loss(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), y).mean()


def train(root, epochs):
    key = jax.random.key(0)
    x, y = read(root, train=True)
    model = Mlp(x.shape[1], key)
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(eqx.filter(model, eqx.is_array))
    for epoch in range(epochs):
        order = jax.random.permutation(jax.random.fold_in(key, epoch), len(x))
        for batch in jnp.array_split(order, -(-len(x) // 64)):
            _, grads = loss(model, x[batch], y[batch])
            updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
            model = eqx.apply_updates(model, updates)
    return model


def evaluate(model, root):
    x, y = read(root, train=False)
    return (jax.vmap(model)(x).argmax(1) == y).mean()
