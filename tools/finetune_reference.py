"""The PyTorch reference of examples/finetune_bert: the same fine-tuning with transformers (and peft), in a plain loop.

    python tools/finetune_reference.py --model MODEL_DIR --data train.csv --held-out held_out.csv

It has the same defaults: 3 epochs of batches of 32 bucketed by length, at most 128 tokens, AdamW with a learning rate
of 5e-5 (1e-3 for adapters), linear warm-up over a twentieth of the steps, then linear decay, weight decay of 0.01 on
matrices, clipping at 1. After each epoch the held-out texts are evaluated; the model with the lowest held-out loss
counts. Prints one JSON object: accuracy and loss, seconds per epoch (including evaluation), peak resident memory.
"""

import argparse
import csv
import json
import random
import resource
import time

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

POOL = 50


def read(file):
    with open(file, newline="", encoding="utf-8") as lines:
        return [(row["text"], row["label"]) for row in csv.DictReader(lines)]


def batches(examples, size, order):
    """Yields batches of similar length, from pools of shuffled texts, in random order."""
    shuffled = examples[:]
    order.shuffle(shuffled)
    pools = [shuffled[i : i + POOL * size] for i in range(0, len(shuffled), POOL * size)]
    made = []
    for pool in pools:
        pool.sort(key=lambda example: len(example[0]))
        made += [pool[i : i + size] for i in range(0, len(pool), size)]
    order.shuffle(made)
    return made


def padded(batch, padding):
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([ids + [padding] * (longest - len(ids)) for ids, _ in batch])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in batch])
    return dict(input_ids=ids, attention_mask=mask, labels=torch.tensor([label for _, label in batch]))


@torch.inference_mode()
def evaluate(model, examples, size, padding):
    model.eval()
    loss = right = 0
    examples = sorted(examples, key=lambda example: len(example[0]))
    for i in range(0, len(examples), size):
        batch = padded(examples[i : i + size], padding)
        out = model(**batch)
        loss += out.loss.item() * len(batch["labels"])
        right += (out.logits.argmax(-1) == batch["labels"]).sum().item()
    return loss / len(examples), right / len(examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--freeze", default="", help="prefixes of the encoder's parameters: embeddings,encoder.layer.0.")
    parser.add_argument("--lora-rank", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)
    rate = args.learning_rate or (1e-3 if args.lora_rank else 5e-5)

    training, held_out = read(args.data), read(args.held_out)
    labels = sorted({label for _, label in training})
    tokenizer = AutoTokenizer.from_pretrained(args.model)

    def encoded(texts):
        ids = tokenizer([text for text, _ in texts], truncation=True, max_length=args.max_length)["input_ids"]
        return [(ids, labels.index(label)) for ids, (_, label) in zip(ids, texts)]

    training, held_out = encoded(training), encoded(held_out)
    model = AutoModelForSequenceClassification.from_pretrained(args.model, num_labels=len(labels))
    if args.lora_rank:
        import peft

        config = peft.LoraConfig(
            task_type="SEQ_CLS", r=args.lora_rank, lora_alpha=2 * args.lora_rank, lora_dropout=0.0,
            target_modules=["query", "value"], modules_to_save=["classifier", "pooler"],
        )  # fmt: skip
        model = peft.get_peft_model(model, config)
    for prefix in filter(None, args.freeze.split(",")):
        frozen = [p for name, p in model.base_model.named_parameters() if name.startswith(prefix)]
        assert frozen, f"nothing is called {prefix}"
        for parameter in frozen:
            parameter.requires_grad = False
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        dict(params=[p for p in trained if p.ndim > 1], weight_decay=0.01),
        dict(params=[p for p in trained if p.ndim == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate)
    steps = args.epochs * -(-len(training) // args.batch_size)
    warmup = steps // 20

    def factor(step):
        return step / warmup if step < warmup else (steps - step) / (steps - warmup)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    order = random.Random(args.seed)
    best, seconds = (float("inf"), 0.0), []
    for _ in range(args.epochs):
        begun = time.perf_counter()
        model.train()
        for batch in batches(training, args.batch_size, order):
            loss = model(**padded(batch, tokenizer.pad_token_id)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        best = min(best, evaluate(model, held_out, args.batch_size, tokenizer.pad_token_id))
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    trainable = sum(p.numel() for p in trained)
    print(json.dumps(dict(framework=f"PyTorch {torch.__version__}", accuracy=best[1], loss=best[0], trained=trainable,
                          epoch_seconds=sum(seconds) / len(seconds), peak_rss_mib=peak)))  # fmt: skip


if __name__ == "__main__":
    main()
