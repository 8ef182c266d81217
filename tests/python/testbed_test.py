"""tests/testbed: a small recipe, from the committed texts to a folder that fasa loads."""
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy
import pytest
import torch
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from testbed import RecipeError, corpus, examples, facts, recipe, trainer  # noqa: E402
from testbed.__main__ import main  # noqa: E402

TEXTS = ROOT / "models/texts"
TINY = """title = "a tiny one"
seed = 5
warmup = 2
final_rate = 1e-4
lengths = [256]

[model]
model_type = "{kind}"
{fields}

[[phases]]
name = "digit"
length = 128
batch = 2
steps = {steps}
rate = 1e-3
mix = {{ digit = 1.0 }}

[[phases]]
name = "mixed"
length = 256
batch = 2
steps = 4
rate = 1e-3
mix = {{ recall = 1, facts = 1, repeat = 1, text = 1 }}
"""
ROTARY = """hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 2
max_position_embeddings = 512
rope_parameters = {{ rope_type = "default", rope_theta = 1e4{share} }}"""
GEOMETRIES = {
    "ernie4_5": ROTARY.format(share="") + "\nhead_dim = 16",
    "stablelm": ROTARY.format(share=", partial_rotary_factor = 0.5"),
    "mpt": "d_model = 32\nn_layers = 2\nn_heads = 2\nmax_seq_len = 512",
    "llama": ROTARY.format(share="").replace("value_heads = 2", "value_heads = 1"),
}


def template():
    return facts.FactTemplate((ROOT / "tests/testbed/needle.json").read_text())


def write_recipe(folder, kind, steps=3, **changes):
    text = TINY.format(kind=kind, fields=GEOMETRIES[kind], steps=steps)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "tiny.toml"
    path.write_text(text)
    return path


def script(*arguments):
    return subprocess.run([ROOT / "tests/testbed/train", *map(str, arguments)], text=True,
                          env={**os.environ, "FASA_VENV": sys.prefix}, capture_output=True,
                          timeout=300)


@pytest.fixture
def train(capsys):
    """Runs the script's program in this process, because PyTorch is slow to import."""
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, "".join(capsys.readouterr())
    return run


def generate(model, ids):
    prompt = model.parent / "prompt.json"
    prompt.write_text(json.dumps(ids))
    done = subprocess.run([os.environ["COMMAND_UNDER_TEST"], "generate", "--model", model,
                           "--prompt-ids", prompt, "--max-tokens", "4", "--json"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["tokens"]


@pytest.mark.parametrize("kind", ["ernie4_5", "stablelm", "mpt"])
def test_a_tiny_recipe_ends_in_a_folder_that_fasa_loads(kind, tmp_path, train):
    code, told = train(write_recipe(tmp_path, kind), "--work", tmp_path / "work", "--texts", 1)
    assert code == 0, told
    model = tmp_path / "work/model"
    assert {path.name for path in model.iterdir()} == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "needle.json",
        "testbed.json", "tokenizer.json", "tokenizer_config.json"}
    told = json.loads((model / "testbed.json").read_text())
    assert told["steps"] == 7 and told["corpus"]["texts"] == 1
    assert told["measured"]["recall"] == [{"length": 256, "right": 0, "asked": 4}]
    assert {phase["phase"] for phase in told["phases"]} == {"digit", "mixed"}
    assert len(generate(model, list(b"In the beginning"))) == 4
    code, told = train(write_recipe(tmp_path, kind), "--work", tmp_path / "work")
    assert code == 2 and "exists already" in told


def test_goes_on_after_an_interruption_as_if_there_was_none(tmp_path, train, monkeypatch):
    path = write_recipe(tmp_path, "llama")
    assert train(path, "--work", tmp_path / "whole", "--texts", 1)[0] == 0
    step = trainer.Trainer._step

    def interrupted(self, phase):
        step(self, phase)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_step", interrupted)
        code, told = train(path, "--work", tmp_path / "cut", "--texts", 1)
    assert code == 130 and "interrupted at step 1" in told
    code, told = train(path, "--work", tmp_path / "cut", "--texts", 1)
    assert code == 0 and "from step 1 of 7" in told
    weights = [torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["model"]
               for name in ("whole", "cut")]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
    code, told = train(write_recipe(tmp_path, "llama", steps=4), "--work", tmp_path / "cut",
                       "--out", tmp_path / "out")
    assert code == 2 and "the checkpoint belongs to another recipe or corpus" in told


def test_bad_input_is_named(tmp_path, train):
    done = script("nothing-of-the-kind")
    assert done.returncode == 2
    for known in ("pairs-400k", "partial-400k", "alibi-400k", "needle-3m"):
        assert known in done.stderr
    code, told = train("pairs-400k", "--corpus", tmp_path, "--work", tmp_path / "w")
    assert code == 2 and "no text to train on: 0 *.txt" in told
    for flag, value in (("--texts", 0), ("--threads", 0), ("--share", 0), ("--share", 2)):
        with pytest.raises(SystemExit):
            train("pairs-400k", flag, value)


@pytest.mark.parametrize("old, new, expected", [
    ("batch = 2", "batch = 0", "batch = 0: allowed: 1 or more"),
    ("digit = 1.0", "riddles = 1.0", "digit, recall, facts, repeat, text"),
    ("warmup = 2\n", "", "warmup"),
    ("length = 128", "length = 64", "allowed: 128 or more"),
    ('model_type = "llama"', "", "model_type is missing"),
    ("seed = 5", "seed = ", "tiny.toml"),
])
def test_bad_recipes_are_named(tmp_path, old, new, expected):
    with pytest.raises(RecipeError, match="tiny.toml") as raised:
        recipe.find(str(write_recipe(tmp_path, "llama", **{old: new})))
    assert expected in str(raised.value)


def test_every_recipe_is_read():
    for name in recipe.known():
        found = recipe.find(name)
        assert found.steps > 0
        assert found.rate(found.steps - 1) == pytest.approx(found.final_rate, rel=0.5)


def test_corpora_too_short_or_kept_back(tmp_path):
    with pytest.raises(RecipeError, match="the folder does not exist"):
        corpus.Corpus(tmp_path / "none")
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(RecipeError, match="5 bytes in 1 texts"):
        corpus.Corpus(tmp_path)
    (tmp_path / "a.txt").write_text("word " * 1000)
    with pytest.raises(RecipeError, match="5000 bytes"):
        corpus.Corpus(tmp_path).require(5001)
    # A text used for measuring is excluded from training under any file name.
    ruth = (TEXTS / "ruth.txt").read_bytes()
    shutil.copy(TEXTS / "ruth.txt", tmp_path / "b.txt")
    assert [path.name for path in corpus.Corpus(tmp_path, [ruth]).paths] == ["a.txt"]


@pytest.mark.parametrize("kind", list(examples.KINDS))
def test_examples_ask_for_what_they_state(kind):
    texts = corpus.Corpus(TEXTS)
    for seed in range(20):
        example = examples.KINDS[kind](600, texts, template(),
                                       numpy.random.default_rng([seed]))
        assert len(example) >= 600 and len(example.weights) == len(example)
        whole = bytes(example.bytes)
        for answer in set(example.answers) - {0}:
            first = example.answers.index(answer)
            last = len(example) - example.answers[::-1].index(answer)
            key = whole[:first].rsplit(b"?", 1)[1]
            assert b"[" + key + whole[first:last - 1] + b"]" in whole[:first]
            assert min(example.weights[first:last]) > 0


def test_batches_are_a_function_of_the_seed_and_count_recall():
    texts = corpus.Corpus(TEXTS)
    phase = recipe.Phase("p", 256, 6, 1, 1e-3, {"recall": 0.5, "facts": 0.5})
    batches = [examples.batch(phase, texts, template(), numpy.random.default_rng([1, 2]))
               for _ in range(2)]
    assert numpy.array_equal(batches[0].tokens, batches[1].tokens)
    right = batches[0].tokens[:, 1:]
    recalled, asked = batches[0].recalled(right)
    assert recalled == asked > 6
    wrong = right.copy()
    place = tuple(numpy.argwhere(batches[0].answers > 0)[0])
    wrong[place] ^= 1
    assert batches[0].recalled(wrong) == (asked - 1, asked)
