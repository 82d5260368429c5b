"""Compares sentence embeddings of grove and transformers, on a published model and a file of sentences.

    cargo build --example bert
    python tools/check_sentences.py MODEL_DIR SENTENCES.txt --bert target/debug/examples/bert

The reference is transformers' AutoModel, with hidden states averaged over non-padding tokens and normalised to unit
length, as modules.json of all-MiniLM-L6-v2 prescribes. Prints the largest cosine distance between the two vectors of
a sentence, and both times, for batches of 32, including tokenization but not loading. Fails if the distance exceeds
1e-5.
"""

import argparse
import json
import subprocess
import time

import torch
from transformers import AutoModel, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("sentences")
    parser.add_argument("--bert", default="target/debug/examples/bert")
    parser.add_argument("--max-length", type=int, default=256)
    args = parser.parse_args()
    sentences = [line.strip() for line in open(args.sentences, encoding="utf-8") if line.strip()]

    command = [args.bert, "--task", "embed", "--model", args.model, "--json"]
    command += ["--max-length", str(args.max_length)]
    result = subprocess.run(command, input="\n".join(sentences), capture_output=True, text=True, check=True)
    ours = torch.tensor(json.loads(result.stdout)["embeddings"], dtype=torch.float64)

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModel.from_pretrained(args.model).eval()
    theirs = []
    begun = time.perf_counter()
    with torch.inference_mode():
        for i in range(0, len(sentences), 32):
            batch = tokenizer(
                sentences[i : i + 32], padding=True, truncation=True, max_length=args.max_length, return_tensors="pt"
            )
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
            theirs.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1))
    seconds = time.perf_counter() - begun
    theirs = torch.cat(theirs).double()
    distance = 1 - torch.nn.functional.cosine_similarity(ours, theirs, dim=1)
    print(f"{len(sentences)} sentences: largest cosine distance {distance.max():.1e}, largest difference of a number "
          f"{(ours - theirs).abs().max():.1e}; PyTorch took {seconds:.1f} s")  # fmt: skip
    assert distance.max() <= 1e-5


if __name__ == "__main__":
    main()
