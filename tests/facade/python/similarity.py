"""Embeddings of sentences, and their similarity."""
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer


def similarity(source, sentences):
    model = AutoModel.from_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    texts = tokenizer(sentences, padding=True, return_tensors="pt")
    mask = texts["attention_mask"][..., None]
    states = model(**texts).last_hidden_state * mask
    a, b = states.sum(1) / mask.sum(1)
    return F.cosine_similarity(a, b, dim=0)
