"""Saving and loading a custom model."""
import equinox as eqx
import jax
from mnist import Mlp


def save(model, file):
    eqx.tree_serialise_leaves(file, model)


def load(pixels, file):
    skeleton = eqx.filter_eval_shape(Mlp, pixels, jax.random.key(0))
    return eqx.tree_deserialise_leaves(file, skeleton)
