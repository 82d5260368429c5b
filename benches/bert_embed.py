"""Sentence embeddings with transformers: `bert_embed.py MODEL_DIR SENTENCES.txt`, see benches/bert.sh.

Batches of 32 texts, longest first. Hidden states are averaged over non-padding tokens and normalised to unit length.
"""

import json
import sys
import time

import torch
from transformers import AutoModel, AutoTokenizer

BATCH, MAX_LENGTH = 32, 256


@torch.inference_mode()
def main(path, file, threads) -> None:
    torch.set_num_threads(int(threads))
    sentences = [line.strip("\n") for line in open(file, encoding="utf-8") if line.strip()]
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path).eval()

    begun = time.perf_counter()
    ids = tokenizer(sentences, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
    embeddings = [None] * len(ids)
    for at in range(0, len(order), BATCH):
        rows = order[at : at + BATCH]
        longest = len(ids[rows[0]])
        batch = torch.tensor([ids[i] + [0] * (longest - len(ids[i])) for i in rows])
        mask = torch.tensor([[1] * len(ids[i]) + [0] * (longest - len(ids[i])) for i in rows])
        states = model(input_ids=batch, attention_mask=mask).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        for i, vector in zip(rows, torch.nn.functional.normalize(means, dim=1)):
            embeddings[i] = vector.tolist()
    seconds = time.perf_counter() - begun
    print(json.dumps(dict(seconds=seconds, embeddings=embeddings)))


main(*sys.argv[1:])
