"""python -m fasa, beside the `fasa` command on the same model."""
import json
import os
import subprocess
import sys

import pytest
from conftest import EVERYTHING, MODEL, ROOT

TEXT = ROOT / "models/texts/ruth.txt"


def run(program, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FASA_")}
    done = subprocess.run([*program, *map(str, arguments)], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    return done


def python(*arguments):
    return run([sys.executable, "-m", "fasa"], *arguments)


def command(*arguments):
    return run([os.environ["COMMAND_UNDER_TEST"]], *arguments)


@pytest.mark.parametrize("tokens", [EVERYTHING, 128])
def test_generates_what_the_command_does(tokens, tmp_path):
    prompt = tmp_path / "prompt.txt"
    facts = json.loads((ROOT / "models/texts/facts-1k.json").read_text())
    question = facts["questions"][1]
    prompt.write_text(facts["text"] + question["prompt_suffix"])
    flags = ["generate", "--model", MODEL, "--prompt-file", prompt, "--max-tokens", 6, "--json",
             "--fac-tokens", tokens, "--row-dtype", "bf16"]
    mine = python(*flags, "--dtype", "float32")
    assert mine.returncode == 0, mine.stderr
    mine, theirs = json.loads(mine.stdout), json.loads(command(*flags).stdout)
    assert mine["tokens"] == theirs["tokens"]
    assert mine["text"].startswith(question["answer"])
    assert mine["row_dtype"] == theirs["row_dtype"] and mine["config"] == theirs["config"]
    # Every key there is a key here but what the clock and the making of maps bring along.
    assert set(theirs) - set(mine) <= {"text_lossy", "map_seconds"}
    for part in ("prefill", "decode", "memory", "fetch"):
        assert set(mine[part]) <= set(theirs[part])


def test_calibrates(tmp_path):
    made = tmp_path / "map.json"
    done = python("calibrate", "--model", MODEL, "--text", TEXT, "--tokens", 512, "--queries", 8,
                  "-o", made)
    assert done.returncode == 0, done.stderr
    assert "8 queries over 512 tokens" in done.stdout
    done = command("generate", "--model", MODEL, "--prompt", "In the beginning", "--max-tokens", 2,
                   "--slice", "lean", "--map", made, "--json")
    assert done.returncode == 0, done.stderr  # a map of the same fingerprint


@pytest.mark.parametrize("arguments,code,message", [
    (["generate", "--model", "/nowhere", "--prompt", "x"], 3, "/nowhere/config.json"),
    (["generate", "--model", MODEL, "--prompt", ""], 2, "the prompt is empty"),
    (["generate", "--model", MODEL, "--prompt", "x", "--fac-tokens", "3"], 2,
     "--fac-tokens: selection.fac_tokens = 3"),
    (["generate", "--model", MODEL, "--prompt", "x", "--fac-token", "3"], 2, "--fac-token"),
    (["generate", "--model", MODEL, "--prompt", "x", "--chat"], 2, "no chat template"),
    (["generate", "--model", MODEL, "--prompt", "x", "--dtype", "int3"], 2, '--dtype = "int3"'),
    (["calibrate", "--model", MODEL], 2, "-o/--output"),
])
def test_errors(arguments, code, message):
    done = python(*arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr
