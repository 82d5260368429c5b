"""Measures a chat model on the held-out dialogues of make.py, with the program `grove`.

    python tools/dialogues/measure.py GROVE MODEL OUTPUT_OF_MAKE [--show]

For each kind: the share of dialogues whose last reply, of `grove chat` at temperature 0, is exactly the expected one.
The user's messages are given one after another, so the model sees its own earlier replies. A story has no single right
text: it counts if it is about the beast that was asked for. Then the mean loss of the expected last replies in nats a
token, from the losses that `grove generate --score` reports with and without the reply.
"""

import collections
import json
import math
import pathlib
import subprocess
import sys

from make import rendered


def grove(program, *arguments, text=None):
    done = subprocess.run([program, *arguments, "--json"], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def is_right(kind, expected, reply):
    if kind != "story":
        return reply == expected
    beast = expected.split(" in a ")[0].removeprefix("Once there was ")
    return reply.startswith(f"Once there was {beast} ") and f"So the {beast.split()[-1]} had " in reply


def last_reply(program, model, messages):
    system = [argument for message in messages if message["role"] == "system"
              for argument in ("--system", message["content"])]
    said = "".join(message["content"] + "\n" for message in messages if message["role"] == "user")
    talk = grove(program, "chat", "--model", model, "--temperature", "0", *system, text=said)
    return talk["turns"][-1]["assistant"]


def nats(program, model, text):
    """The summed loss of a text after its first token, and the number of its tokens."""
    scored = grove(program, "generate", "--model", model, "--score", "--prompt", text)
    count = len(scored["prompt_ids"])
    return scored["loss"] * (count - 1), count


def main(program, model, data, *rest):
    right, counts = collections.Counter(), collections.Counter()
    loss, tokens = 0.0, 0
    for line in (pathlib.Path(data) / "held_out.jsonl").read_text(encoding="utf-8").splitlines():
        dialogue = json.loads(line)
        kind, messages = dialogue["kind"], dialogue["messages"]
        expected, reply = messages[-1]["content"], last_reply(program, model, messages)
        counts[kind] += 1
        right[kind] += is_right(kind, expected, reply)
        if rest == ("--show",) and not is_right(kind, expected, reply):
            print(f"{kind}: {messages[-2]['content']} -> {reply} (expected: {expected})")
        # The reply's tokens, with the end of its line.
        whole = "<|endoftext|>" + rendered(messages)
        without = whole.removesuffix(f" {expected}\n")
        (all_nats, all_count), (nats_before, count_before) = (nats(program, model, text) for text in (whole, without))
        loss, tokens = loss + all_nats - nats_before, tokens + all_count - count_before
    for kind, count in counts.items():
        print(f"{kind:12} {right[kind]:3} of {count:3} right, {100 * right[kind] / count:.0f} %")
    print(f"{'all':12} {right.total():3} of {counts.total():3} right, {100 * right.total() / counts.total():.0f} %")
    mean = loss / tokens
    print(f"loss of the replies {mean:.4f} nats a token, perplexity {math.exp(mean):.3f}, {tokens} tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
