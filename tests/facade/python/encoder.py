"""The encoder of a trained classifier."""
from transformers import AutoModel


def encoder(classifier):
    return AutoModel.from_pretrained(classifier)
