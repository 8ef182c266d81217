#!/usr/bin/env python3
"""Makes the JSON files beside this script: tokenizers of model families as transformers makes them,
with small vocabularies, and what they give for texts and ids that are easily got wrong.

    build/venv/bin/python tests/text/golden/make_golden.py

vocabularies.json holds pieces and merges that families share. A family's file holds the rest of its
tokenizer.json; its pieces have the shared ones' ids plus `first_id`, or are in model.vocab."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))

from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: E402
from transformers_families import Pieces, transformers_families  # noqa: E402

SIZE = 420
TEXTS = [
    "", " ", "   ", "\n", "\n\n\n", "\t", " \t\n \r\n", "a", " a", "  a", "a ", "a  b   c    d",
    "The LORD said unto the children of Israel", "\n\nAnd  \n it came\tto pass\r\n\r\nin the days",
    "1", "12", "1234567", "3.14159 and 1,000,000", "x2y34z567", "٠١٢٣ ½ ① x²⁰ ⅷ",
    "don't I'LL we've it'S 's 'twas o'clock ''ve", "don’t I’ll", "HTTPResponse camelCase XMLs ÀÉ",
    "!!! ?!... (a)[b]{c} --> /* x */ #!/bin\n/\n", " !a ?b .c\n,d\r\n;e", "a\u00a0b\u3000c\u2028d",
    "中文文本，没有空格。日本語のテキストです 한국어", "e\u0301 é o\u0308\u0323 ọ̈ ﬁ Å Å \u0301 a\u0301b",
    "हिन्दी ไทย العَرَبِيَّة", "😀👍🏽👩‍👩‍👧 🇩🇪 a😀b", "\u200b\ufeff\u200d\u0000x\u007f",
    "▁a ▁▁ b▁", "ĠaĊ <0x41> Ã©", "\ufffd \U0010ffff \U00020000",
    "def f(x):\n    if x:\n\t\treturn 'y'\n\n\n    # ok\n",
]
# Bytes that are no UTF-8, alone and between others.
BYTES = [b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"a\xc3b", b"\x80", b"\xc0\x80", b"\xed\xa0\x80",
         b"\xf5\xff", b"\xe4\xb8\xad\xe6\x96", b"\xf0\x9f\x98\x80\xff \x80a"]


def shared_vocabularies():
    pieces = Pieces(SIZE)
    sets = {"byte_level": pieces.byte_level, "sentence": pieces.gemma([])}
    return {name: {"pieces": sorted(vocabulary, key=vocabulary.get),
                   "merges": [list(merge) for merge in merges]}
            for name, (vocabulary, merges) in sets.items()}


def without_vocabulary(document, shared):
    """(its name, first_id), after the shared pieces and merges are taken out of the document."""
    model = document["model"]
    for name, vocabulary in shared.items():
        first = model["vocab"].get(vocabulary["pieces"][0])
        if first is None or model["merges"] != vocabulary["merges"]:
            continue
        for i, piece in enumerate(vocabulary["pieces"]):
            assert model["vocab"].pop(piece) == first + i, piece
        del model["merges"]
        return name, first
    raise ValueError("pieces or merges that are not shared")


def ids_of_bytes(tokenizer, data, by_byte):
    return [tokenizer.token_to_id(by_byte[byte]) for byte in data]


def golden(tokenizer, shared):
    document = json.loads(tokenizer.to_str())
    name, first = without_vocabulary(document, shared)
    document = {key: value for key, value in document.items()
                if key not in ("truncation", "padding")}
    names = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    texts = TEXTS + [f"a {token}b{token} {token}\n {token}" for token in names]
    texts += [" ".join(names), names[-1][:-1] + " " + names[-1][1:]]
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    pieces = shared[name]["pieces"]
    by_byte = ([f"<0x{byte:02X}>" for byte in range(256)] if name == "sentence" else
               [bytes_to_unicode()[byte] for byte in range(256)])
    added = [tokenizer.token_to_id(token) for token in names]
    decoded = [ids_of_bytes(tokenizer, data, by_byte) for data in BYTES]
    decoded += [[first + len(pieces) - 1, *added, first + len(pieces) - 1],
                [decoded[0][0], added[-1], decoded[0][0]], added[:1] + decoded[2] + added[-1:]]
    around = tokenizer.encode("a", add_special_tokens=True).ids
    return {"vocabulary": name, "first_id": first, "document": document, "around": around,
            "texts": [[text, one, *([] if tokenizer.decode(one, skip_special_tokens=False) == text
                                    else [tokenizer.decode(one, skip_special_tokens=False)])]
                      for text, one in zip(texts, ids)],
            "decoded": [[one, tokenizer.decode(one, skip_special_tokens=False),
                         tokenizer.decode(one, skip_special_tokens=True)] for one in decoded]}


def dump(value, depth=0):
    """JSON with a line for each item of the outer containers."""
    if depth == 2 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}:{dump(item, depth + 1)}" for key, item in value.items()]
        return "{" + ",\n".join(items) + "}"
    return "[" + ",\n".join(dump(item, depth + 1) for item in value) + "]"


def main():
    shared = shared_vocabularies()
    (HERE / "vocabularies.json").write_text(dump(shared) + "\n")
    for family, tokenizer in transformers_families(SIZE).items():
        (HERE / f"{family}.json").write_text(dump(golden(tokenizer, shared)) + "\n")


if __name__ == "__main__":
    main()
