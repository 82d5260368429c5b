"""Greedy decoding of a GGUF file with llama.cpp at batch 1: the peer of `examples/llama.rs`.

    python benches/llama_decode.py --model FILE.gguf [--prompt-ids 5,17,40] [--max-new-tokens 128] [--threads N]
    python benches/llama_decode.py --model FILE.gguf --tokenize TEXT.txt        (prints the text's ids)

Requires llama-cpp-python, for its bindings of llama.cpp's functions. Prints one JSON line. There is no warm-up, as in
the example, and end tokens are ignored. `tokens_per_second` covers the tokens after the first, `first_token_seconds`
is the time from the prompt's ids to the first new id, `load_seconds` the time to load the model and create the
context, and `peak_rss_mib` the peak resident size of the process, including the mapped file.

The loop calls llama.cpp's functions directly, because the class `Llama` copies logits and adds bookkeeping.
"""

import argparse
import ctypes
import json
import os
import resource
import time

import llama_cpp as cpp
import numpy as np


@cpp.llama_log_callback
def silent(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    pass


def load(path: str, vocab_only: bool = False):
    settings = cpp.llama_model_default_params()
    settings.vocab_only = vocab_only
    model = cpp.llama_model_load_from_file(path.encode(), settings)
    if not model:
        raise SystemExit(f"{path}: llama.cpp cannot read it")
    return model


def tokenize(path: str, file: str) -> list[int]:
    vocabulary = cpp.llama_model_get_vocab(load(path, vocab_only=True))
    text = open(file, "rb").read()
    ids = (cpp.llama_token * (len(text) + 1))()
    count = cpp.llama_tokenize(vocabulary, text, len(text), ids, len(ids), True, False)
    return list(ids[:count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--prompt-ids", default="504,2365,1465,253", help="comma-separated token ids")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokenize", metavar="TEXT", help="print the ids of this file's text, and do nothing else")
    args = parser.parse_args()
    cpp.llama_log_set(silent, ctypes.c_void_p(0))
    cpp.llama_backend_init()
    if args.tokenize:
        print(",".join(map(str, tokenize(args.model, args.tokenize))))
        return
    ids = [int(i) for i in args.prompt_ids.split(",")]

    start = time.perf_counter()
    model = load(args.model)
    settings = cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = len(ids) + args.max_new_tokens
    settings.n_threads = settings.n_threads_batch = args.threads
    context = cpp.llama_init_from_model(model, settings)
    loaded = time.perf_counter()

    size = cpp.llama_vocab_n_tokens(cpp.llama_model_get_vocab(model))
    generated, times = [], []
    for _ in range(args.max_new_tokens):
        array = (cpp.llama_token * len(ids))(*ids)  # The batch points into it.
        if cpp.llama_decode(context, cpp.llama_batch_get_one(array, len(ids))) != 0:
            raise SystemExit(f"llama.cpp failed after {len(generated)} tokens")
        logits = np.ctypeslib.as_array(cpp.llama_get_logits_ith(context, -1), (size,))
        ids = [int(logits.argmax())]
        generated += ids
        times.append(time.perf_counter())

    rest = times[-1] - times[0]
    print(
        json.dumps(
            {
                "framework": f"llama.cpp (llama-cpp-python {cpp.__version__})",
                "tokens_per_second": (len(times) - 1) / rest if rest > 0 else None,
                "first_token_seconds": times[0] - loaded,
                "load_seconds": loaded - start,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "threads": args.threads,
                "generated_ids": generated,
            }
        )
    )


if __name__ == "__main__":
    main()
