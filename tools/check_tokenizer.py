"""Checks that transformers reads the tokenizer that grove saved with a fine-tuned model like that of the source.

    python tools/check_tokenizer.py SOURCE SAVED

SOURCE is the directory that was fine-tuned, SAVED the model directory of the run. Compares the class, the special
tokens, the chat template, the tokens of some texts and their decoding, and the end tokens of generation. If SOURCE
has no such files (a GGUF file, or none), give `-`: the properties of SAVED are then only printed.
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import AutoTokenizer, GenerationConfig

TEXTS = ["The river runs.", "  two  spaces", "Größe 川は 🌲", "a line\nanother", "It's 1987, isn't it?", "", "MiXeD case"]


def facts(folder: str) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    chat = [{"role": "user", "content": "Hello"}]
    found = {
        "class": type(tokenizer).__name__,
        "special tokens": special,
        "tokens": ids,
        "texts": [tokenizer.decode(row) for row in ids],
        "without special tokens": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
        "template": tokenizer.chat_template,
    }
    if tokenizer.chat_template:
        found["conversation"] = tokenizer.apply_chat_template(chat, tokenize=False)
    if (Path(folder) / "generation_config.json").exists():
        found["generation"] = GenerationConfig.from_pretrained(folder).to_diff_dict()
    return found


def main() -> None:
    source, saved = sys.argv[1:]
    got = facts(saved)
    print({name: got[name] for name in ["class", "special tokens"]})
    if source == "-":
        return
    wrong = [(name, wanted, got.get(name)) for name, wanted in facts(source).items() if wanted != got.get(name)]
    for name, wanted, found in wrong:
        print(f"{name}: the source has {wanted}, and the saved tokenizer {found}")
    if wrong:
        sys.exit(1)
    print(f"{saved}: transformers reads it as it reads {source}")


if __name__ == "__main__":
    main()
