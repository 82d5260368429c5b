"""Makes the dialogues on which models/assets/llama-austen-chat was trained: no network, no other data.

    python tools/dialogues/make.py OUTPUT_DIRECTORY

Writes train.jsonl and held_out.jsonl, one dialogue a line: `messages` as in transformers, and the `kind` of the last
reply. Writes train.txt and held_out.txt too, the same dialogues as the model's chat template renders them. The question
of each held-out dialogue is in no dialogue of the training set, not even with other capitals or punctuation. Of sums
and differences the pair of numbers is held out, whatever the words and the order; of memory, names are. "known names"
are questions about names of the training set, in dialogues that are not in it.
"""

import hashlib
import json
import pathlib
import random
import sys

import facts

DIALOGUES = 44_000
HELD_OUT = 40  # dialogues of each kind
ROLES = {"system": "S", "user": "Q", "assistant": "A"}
ONE_WORD = "Answer in one word."


def is_held_out(key, share):
    return hashlib.sha256(key.encode()).digest()[0] < 256 * share


def words(text):
    return "".join(letter for letter in text.lower() if letter.isalnum() or letter == " ")


def title(text):
    return text[0].upper() + text[1:]


def an(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def novel_items():
    """Yields questions about the novels: message, reply, reply in one word or name."""
    for novel, people in facts.NOVELS.items():
        for ask in ["Who wrote {}?", "Who is the author of {}?", "Which author wrote {}?", "By whom is {}?"]:
            yield ask.format(novel), f"Jane Austen wrote {novel}.", "Austen."
        for ask in ["Who is the heroine of {}?", "Name the heroine of {}.", "What heroine has {}?"]:
            yield ask.format(novel), f"The heroine of {novel} is {people[0]}.", f"{people[0]}."
        for person in people:
            for ask in ["In which novel is {}?", "Which novel has {} in it?", "Where do I read of {}?",
                        "Which book is {} in?"]:
                yield ask.format(person), f"{person} is in {novel}.", f"{novel}."
    for pair in facts.MARRIAGES:
        for one, other in [pair, pair[::-1]]:
            for ask in ["Who marries {}?", "Whom does {} marry?", "To whom is {} married?", "Who is {} to marry?"]:
                yield ask.format(one), f"{one} marries {other}.", f"{other}."
    for person, house in facts.HOUSES.items():
        for ask in ["What is the house of {}?", "Where does {} live?", "Where is the home of {}?",
                    "In which house is {}?"]:
            yield ask.format(person), f"{person} lives at {house}.", f"{house}."


def everyday_items():
    """Yields questions about everyday things, as `novel_items`."""
    for pair in facts.OPPOSITES:
        for one, other in [pair, pair[::-1]]:
            for ask in ["What is the opposite of {}?", "Name the opposite of {}.", "Tell me the opposite of {}."]:
                yield ask.format(one), f"The opposite of {one} is {other}.", f"{title(other)}."
    for thing, colour in facts.COLOURS.items():
        for ask in ["What colour is {}?", "Which colour has {}?", "Tell me the colour of {}."]:
            yield ask.format(thing), f"{title(thing)} is {colour}.", f"{title(colour)}."
    for thing, kind in facts.KINDS.items():
        yield f"What is {an(thing)}?", f"{title(an(thing))} is {an(kind)}.", f"{title(kind)}."
        for asked in sorted(set(facts.KINDS.values())):
            answer = "Yes" if asked == kind else "No"
            yield f"Is {an(thing)} {an(asked)}?", f"{answer}, {an(thing)} is {an(kind)}.", f"{answer}."
    for beast, young in facts.YOUNG.items():
        for ask in ["What is a young {} called?", "What do we call a young {}?", "Name a young {}."]:
            yield ask.format(beast), f"A young {beast} is called a {young}.", f"{title(young)}."
    for beast, legs in facts.LEGS.items():
        for ask in ["How many legs has a {}?", "How many legs does a {} have?", "Count the legs of a {}."]:
            yield ask.format(beast), f"A {beast} has {legs} legs.", f"{title(legs)}."
    for name, order in facts.ORDERS.items():
        for one, other in zip(order, order[1:] + order[:1]):
            for ask in ["Which {} comes after {}?", "What {} follows {}?", "Tell me the {} after {}."]:
                yield ask.format(name, one), f"{title(other)} comes after {one}.", f"{title(other)}."
            for ask in ["Which {} comes before {}?", "What {} precedes {}?", "Tell me the {} before {}."]:
                yield ask.format(name, other), f"{title(one)} comes before {other}.", f"{title(one)}."


def number_items():
    """Yields sums and differences, as `novel_items`, and the pair of numbers that decides the split."""
    for a in range(11):
        for b in range(11):
            pair = f"numbers {min(a, b)} {max(a, b)}"
            for ask in ["What is {} plus {}?", "How much is {} and {}?", "What is {} + {}?", "Add {} and {}."]:
                yield ask.format(a, b), f"{a} plus {b} is {a + b}.", f"{a + b}.", pair
            if a >= b:
                for ask in ["What is {} minus {}?", "How much is {} less {}?", "What is {} - {}?"]:
                    yield ask.format(a, b), f"{a} minus {b} is {a - b}.", f"{a - b}.", pair
            if a != b:
                for ask in ["Which is greater, {} or {}?", "Is {} or {} greater?"]:
                    yield ask.format(a, b), f"{max(a, b)} is greater than {min(a, b)}.", f"{max(a, b)}.", pair


def tables():
    """Returns the questions of one exchange: kind -> split -> [(message, reply, reply in one word)]."""
    talk = [(said, reply, None) for reply, all_said in facts.SMALL_TALK.items() for said in all_said]
    always = {words(all_said[0]) for all_said in facts.SMALL_TALK.values()}
    unknown = [(ask.format(word), "I do not know that.", None)
               for ask, words in facts.UNKNOWN.items() for word in words]
    rows = {
        "small talk": [(*item, words(item[0])) for item in talk],
        "novels": [(*item, item[0]) for item in novel_items()],
        "everyday": [(*item, item[0]) for item in everyday_items()],
        "numbers": list(number_items()),
        "unknown": [(*item, item[0]) for item in unknown],
    }
    found = {}
    for kind, items in rows.items():
        split = found[kind] = {"train": [], "held_out": []}
        share = 0.25 if kind in ("small talk", "unknown") else 0.12
        for *item, key in items:
            split["held_out" if is_held_out(key, share) and key not in always else "train"].append(tuple(item))
    return found


def exchange(message, reply):
    return [{"role": "user", "content": message}, {"role": "assistant", "content": reply}]


def memory(rng, table, names):
    """A dialogue whose last question is about what was said before."""
    fillers = [exchange(*rng.choice(table[kind]["train"])[:2])
               for kind in rng.choices(["small talk", "novels", "everyday", "numbers"], k=rng.choice([0, 0, 1, 1, 2]))]
    between = [message for filler in fillers for message in filler]
    name, colour, place = rng.choice(names), rng.choice(facts.SHADES), rng.choice(facts.PLACES)
    told = rng.choice(["My name is {}.", "I am {}.", "I am called {}.", "Hello, my name is {}."]).format(name)
    ask_name = rng.choice(["What is my name?", "Who am I?", "Do you remember my name?", "Tell me my name."])
    match rng.randrange(6):
        case 0 | 1 | 2:
            greeted = exchange(told, f"I am glad to meet you, {name}.")
            return greeted + between + exchange(ask_name, f"Your name is {name}.")
        case 3:
            told = rng.choice(["I like {}.", "My favourite colour is {}.", "I love the colour {}."]).format(colour)
            ask = rng.choice(["Which colour do I like?", "What is my favourite colour?"])
            return exchange(told, f"I like {colour} too.") + between + exchange(ask, f"You like {colour}.")
        case 4:
            told = rng.choice(["I live in {}.", "My home is in {}.", "I am from {}."]).format(place)
            ask = rng.choice(["Where do I live?", "Where is my home?"])
            return exchange(told, f"I should like to see {place}.") + between + exchange(ask, f"You live in {place}.")
        case _:
            return between + exchange(ask_name, "You have not told me your name.")


def reading(rng, names):
    """A question about the sentences before it."""
    one, other = rng.sample(names, 2)
    a, b = rng.sample(facts.THINGS, 2)
    text = rng.choice(["{} has a {} and {} has a {}.", "{} has a {}. {} has a {}."]).format(one, a, other, b)
    who, what = rng.choice([(one, a), (other, b)])
    if rng.random() < 0.5:
        return exchange(f"{text} Who has the {what}?", f"{who} has the {what}.")
    return exchange(f"{text} What has {who}?", f"{who} has a {what}.")


def story(rng):
    beast, place = rng.choice(facts.STORY_BEASTS), rng.choice(facts.STORY_PLACES)
    friend = rng.choice([other for other in facts.STORY_BEASTS if other != beast])
    wish, end = rng.choice(facts.STORY_WISHES), rng.choice(facts.STORY_ENDS)
    ask = rng.choice(["Tell me a story about {}.", "Tell a story of {}.", "Write a short story about {}.",
                      "I want a story about {}."]).format(an(beast))
    return exchange(ask, f"Once there was {an(beast)} in a {place}, who wished for {wish}. One day it met "
                         f"{an(friend)}, who was very kind. So the {beast} had {wish}, {end}.")


def one_word(rng, items):
    message, _, reply = rng.choice(items)
    return [{"role": "system", "content": ONE_WORD}] + exchange(message, reply)


def short_items(table, split):
    return [item for kind in ["novels", "everyday", "numbers"] for item in table[kind][split]]


def training_dialogue(rng, table):
    names = [name for name in facts.NAMES if name not in facts.HELD_OUT_NAMES]
    kind = rng.choices(["small talk", "novels", "everyday", "numbers", "unknown", "memory", "reading", "story",
                        "one word"], [9, 14, 15, 18, 4, 17, 14, 2, 7])[0]
    match kind:
        case "memory":
            messages = memory(rng, table, names)
        case "reading":
            messages = reading(rng, names)
        case "story":
            messages = story(rng)
        case "one word":
            messages = one_word(rng, short_items(table, "train"))
        case _:
            messages = exchange(*rng.choice(table[kind]["train"])[:2])
            if rng.random() < 0.3:
                other = rng.choice(["small talk", "novels", "everyday", "numbers", "unknown"])
                messages = exchange(*rng.choice(table[other]["train"])[:2]) + messages
    return {"kind": kind, "messages": messages}


def held_out_dialogues(rng, table, seen):
    for kind, split in table.items():
        for item in rng.sample(split["held_out"], min(HELD_OUT, len(split["held_out"]))):
            yield kind, exchange(*item[:2])
    for _ in range(HELD_OUT):
        yield "one word", one_word(rng, short_items(table, "held_out"))
    # The colours and places are those of the training set. So are the names of "known names", in new dialogues.
    known = [name for name in facts.NAMES if name not in facts.HELD_OUT_NAMES]
    for kind, names in [("memory", facts.HELD_OUT_NAMES), ("known names", known)]:
        count = 0
        while count < HELD_OUT:
            messages = memory(rng, table, names)
            if "Your name is" in messages[-1]["content"] and json.dumps(messages) not in seen:
                count += 1
                yield kind, messages
    for kind, make in [("reading", lambda: reading(rng, facts.NAMES)), ("story", lambda: story(rng))]:
        found = []
        while len(found) < HELD_OUT:
            messages = make()
            if json.dumps(messages) not in seen:
                found.append(messages)
                yield kind, messages


def rendered(messages):
    """The text that the chat template of the model gives, without the token at its start."""
    return "".join(f"{ROLES[message['role']]}: {message['content']}\n" for message in messages)


def main(output):
    rng, table = random.Random(0), tables()
    train = [training_dialogue(rng, table) for _ in range(DIALOGUES)]
    seen = {json.dumps(dialogue["messages"]) for dialogue in train}
    held_out = [{"kind": kind, "messages": messages} for kind, messages in held_out_dialogues(rng, table, seen)]
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for name, dialogues in [("train", train), ("held_out", held_out)]:
        lines = (json.dumps(dialogue) + "\n" for dialogue in dialogues)
        (output / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        # The token separates documents, and begins a conversation in the chat template.
        text = "<|endoftext|>".join(rendered(dialogue["messages"]) for dialogue in dialogues)
        (output / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{name}: {len(dialogues)} dialogues, {len(text)} characters")


if __name__ == "__main__":
    main(*sys.argv[1:])
