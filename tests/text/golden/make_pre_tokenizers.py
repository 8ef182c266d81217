"""Writes pre_tokenizers.json: how texts are split under the names of tokenizer.ggml.pre, as Hugging
Face's tokenizers splits them by llama.cpp's regular expressions (one after the other, each within
the pieces of the one before).

    python3 make_pre_tokenizers.py EXPRESSIONS.json

EXPRESSIONS.json: {"names": {NAME: {"regexes": [...]}}}. Needs `tools/env python`.
"""
import json
import pathlib
import sys

from tokenizers import Regex, pre_tokenizers

# Combining marks, digits, contractions, letters with and without case, line ends, signs.
TEXTS = [
    "It's 12345 o'clock, HELLOWorld iPhone's THEY'RE don'T x'S",
    "cafe\u0301 na\u0308ive \u0928\u092e\u0938\u094d\u0924\u0947 a\u0300\u0301b \u0301x",
    "a  b\t\tc   \n\n  d\r\n\r\ne \n",
    "f(x)=[1,22]; // //\n/* --> */\n\n!!!\n?!... $+<=>^~|`",
    "价格123元、。，《》한국어テストひらがなカタカナ漢字",
    "1 12 123 1234 12345678 ½ Ⅷ ٣٤٥ 1.5e-10",
    "Ünïcödé ЖуЖа ΑβΓ ǅungla ʰa 𝐀𝐛 ß",
    "https://example.org/a_b?c=d&e#f user@host.com",
    "🙂🙂 👩\u200d👩\u200d👧 \u00a0\u3000x \u2028y",
    "…。，、।۔، (a)b{c} «d» “e” ‘f’ !a :b",
    "    indent\n        more\n\ttab",
    "ab1cd22ef333gh4444 A1B2 x86_64 UPPER lower MiXeD",
]
# Splits that another test knows, and those of kinds of models that fasa does not run.
OTHERS = {"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace", "kimi-k2", "afmoe",
          "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code",
          "modern-bert", "roberta-bpe", "chameleon", "granite-embed-multi-97m"}
# Whose models' own expressions differ: there marks belong to words. Files here that have them.
OWN = {"tekken": "ministral3", "gpt-4o": "gpt_oss", "llama4": "gpt_oss", "kanana2": "gpt_oss",
       "minimax-m2": "gpt_oss", "talkie": "gpt_oss"}


def as_utf8(expression):
    """An expression whose UTF-8 was read as Latin-1."""
    try:
        return expression.encode("latin-1").decode()
    except UnicodeError:
        return expression


def own_expressions(family):
    document = json.loads(pathlib.Path(__file__).with_name(f"{family}.json").read_text())
    steps = document["document"]["pre_tokenizer"]["pretokenizers"]
    return [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]


def pieces(expressions, text):
    chain = [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]
    return [piece for piece, _ in pre_tokenizers.Sequence(chain).pre_tokenize_str(text)]


def main():
    names = json.loads(pathlib.Path(sys.argv[1]).read_text())["names"]
    splits = []  # [names, lengths of the pieces in characters for each text]
    for name, entry in names.items():
        if name in OTHERS:
            continue
        given = own_expressions(OWN[name]) if name in OWN else map(as_utf8, entry["regexes"])
        expressions = [one + r"|\s+" if one.endswith(r"\s+(?!\S)") else one
                       for one in given]
        if name == "deepseek-llm":  # its models split numbers into digits
            expressions = [one.replace(r"\p{N}+", r"\p{N}") for one in expressions]
        lengths = [[len(piece) for piece in pieces(expressions, text)] for text in TEXTS]
        known = next((split for split in splits if split[1] == lengths), None)
        if known:
            known[0].append(name)
        else:
            splits.append([[name], lengths])
    lines = ",\n".join(json.dumps(split) for split in splits)
    texts = json.dumps(TEXTS)
    path = pathlib.Path(__file__).with_name("pre_tokenizers.json")
    path.write_text(f'{{"texts": {texts},\n"splits": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
