"""fasa tokenize beside Hugging Face's tokenizers, for the settings of every supported family.

FASA_TOKENIZER_STRINGS sets how many texts there are in all (100000 for a thorough run)."""
import json
import os
import random
import subprocess

import pytest
from tokenizer_families import Texts, families
from transformers_families import transformers_families

FAMILIES = families() | transformers_families()
STRINGS = int(os.environ.get("FASA_TOKENIZER_STRINGS", "4000")) // len(FAMILIES) + 1
SEED = int(os.environ.get("FASA_TOKENIZER_SEED", "1"))


def tokenize(folder, lines, *flags):
    """The command's output for each line."""
    path = folder / "lines"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(
        [os.environ["COMMAND_UNDER_TEST"], "tokenize", "--model", folder, "--lines", path, *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(lines)
    return answers


def check_equal(given, mine, theirs):
    wrong = [(text, a, b) for text, a, b in zip(given, mine, theirs) if a != b]
    assert not wrong, f"{len(wrong)} of {len(given)} differ, the shortest: " + repr(
        min(wrong, key=lambda case: len(case[0])))


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_and_texts_are_those_of_hugging_face(name, tmp_path):
    tokenizer = FAMILIES[name]
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = Texts(tokenizer, SEED)
    given = [""] + [texts.next() for _ in range(STRINGS)]
    for flags, adds in (((), False), (("--add-special",), True)):
        theirs = [tokenizer.encode(text, add_special_tokens=adds).ids for text in given]
        check_equal(given, tokenize(tmp_path, given, *flags), theirs)
    # Decoding: ids of whole and truncated texts, and random ids.
    chance = random.Random(SEED)
    ids = theirs + [one[chance.randrange(len(one) + 1):] for one in theirs]
    size = tokenizer.get_vocab_size()
    ids += [chance.choices(range(size), k=chance.randrange(12)) for _ in range(STRINGS)]
    for flags, skips in (((), False), (("--skip-special",), True)):
        decoded = [tokenizer.decode(one, skip_special_tokens=skips) for one in ids]
        check_equal(ids, tokenize(tmp_path, ids, "--decode", *flags), decoded)
