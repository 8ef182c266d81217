"""Measures a trained model on texts that it never saw: facts recalled, bits per byte."""
import dataclasses
import math

import numpy
import torch
from torch.nn.functional import cross_entropy

FACTS = 4  # per text


@dataclasses.dataclass(frozen=True)
class HeldOut:
    name: str
    text: bytes


def word_start(text, place):
    """The blank at or before `place`, as `fasa eval needle` plants facts."""
    return max(text.rfind(blank, 0, place + 1) for blank in (b" ", b"\n", b"\t")) if place else 0


def planted(text, facts, random):
    places = sorted((max(0, word_start(text, int(random.integers(len(text) + 1)))), index)
                    for index in range(len(facts)))
    result, copied = b"", 0
    for place, index in places:
        result += text[copied:place] + facts[index].statement
        copied = place
    return result + text[copied:]


def recalls(model, text, fact):
    """Whether greedy decoding gives the right answer to a question after the text."""
    asked = text + fact.question + fact.answer
    tokens = torch.tensor([list(asked[:-1])])
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0, -len(fact.answer):]
    return bytes(logits.argmax(-1).tolist()) == fact.answer


def recall(model, held_out, template, length, texts, seed):
    """The number of right answers and of questions over `texts` passages of `length` bytes with
    FACTS facts each."""
    random = numpy.random.default_rng([seed, length])
    statement, asked = template.bytes_of_fact()
    room = length - FACTS * statement - asked
    right = 0
    for index in range(texts):
        source = held_out[index % len(held_out)].text
        first = int(random.integers(max(1, len(source) - room + 1)))
        facts = template.draw(FACTS, random)
        text = planted(source[first:first + room], facts, random)
        right += sum(recalls(model, text, fact) for fact in facts)
    return {"length": length, "right": right, "asked": texts * FACTS}


def bits_per_byte(model, text, length, windows=8):
    """Measured on the second half of windows of `length` bytes."""
    starts = numpy.linspace(0, max(0, len(text) - length - 1), windows).astype(int)
    total, count = 0.0, 0
    for start in starts:
        tokens = torch.tensor([list(text[start:start + length + 1])])
        half = tokens.shape[1] // 2
        with torch.no_grad():
            logits = model(tokens[:, :-1], use_cache=False).logits[0].float()
        total += cross_entropy(logits[half:], tokens[0, half + 1:], reduction="sum").item()
        count += tokens.shape[1] - 1 - half
    return round(total / count / math.log(2), 3)


def measure(model, held_out, template, lengths, texts, seed=7):
    return {"recall": [recall(model, held_out, template, length, texts, seed)
                       for length in lengths],
            "bits_per_byte": [{"text": text.name, "length": length,
                               "bits": bits_per_byte(model, text.text, length)}
                              for text in held_out for length in lengths[-2:]]}
