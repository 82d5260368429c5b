"""A classification head, trained on a CSV file, on a frozen GPT-2."""
import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def finetune(source, file, epochs):
    data = load_dataset("csv", data_files=file)["train"].class_encode_column("label")
    data = data.train_test_split(0.1, stratify_by_column="label", seed=0)
    names = data["train"].features["label"].names
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(names))
    model.config.pad_token_id = tokenizer.pad_token_id
    model.transformer.requires_grad_(False)

    def collate(batch):
        texts = [example["text"] for example in batch]
        texts = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        return texts, torch.tensor([example["label"] for example in batch])

    loader = DataLoader(data["train"], batch_size=16, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for texts, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(**texts).logits, labels).backward()
            optimizer.step()
    correct = 0
    with torch.no_grad():
        for texts, labels in DataLoader(data["test"], batch_size=16, collate_fn=collate):
            correct += (model(**texts).logits.argmax(1) == labels).sum().item()
    return model, correct / len(data["test"])
