"""python -m fasa gives the results of the `fasa` command on the same model."""
import json
import os
import pickle
import re
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
    assert mine["end"] == theirs["end"]
    assert set(mine["sampling"]) <= set(theirs["sampling"])
    # Every key of the command's result is here too, except times, limits, map making.
    assert set(theirs) - set(mine) <= {"control_group", "text_lossy", "map_seconds"}
    for part in ("prefill", "decode", "memory", "fetch"):
        assert set(mine[part]) <= set(theirs[part])


class Planted:
    """A pickle that runs a shell command when it is loaded."""

    def __init__(self, ran):
        self.ran = ran

    def __reduce__(self):
        return os.system, (f"touch {self.ran}",)


def test_weights_are_never_unpickled(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_bytes((MODEL / "config.json").read_bytes())
    ran = tmp_path / "ran"
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Planted(ran)))
    done = python("generate", "--model", model, "--prompt-ids", tmp_path / "none")
    assert done.returncode == 3, done.stderr
    assert "safetensors" in done.stderr
    assert not ran.exists()


def test_what_is_no_prompt_file_is_named(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, what in ((fifo, "named pipe"), ("/dev/zero", "device"), (tmp_path, "folder")):
        done = python("generate", "--model", MODEL, "--prompt-file", path)
        assert done.returncode == 3, done.stderr
        assert str(path) in done.stderr and what in done.stderr


def test_calibrates(tmp_path):
    made = tmp_path / "map.json"
    done = python("calibrate", "--model", MODEL, "--text", TEXT, "--tokens", 512, "--queries", 8,
                  "-o", made)
    assert done.returncode == 0, done.stderr
    assert "8 queries over 512 tokens" in done.stdout
    done = command("generate", "--model", MODEL, "--prompt", "In the beginning", "--max-tokens", 2,
                   "--slice", "lean", "--map", made, "--json")
    assert done.returncode == 0, done.stderr  # the map has the same fingerprint


def evaluate(capsys, *arguments):
    """Runs `python -m fasa eval` in this process, which has loaded PyTorch already; returns exit
    code, output and errors."""
    from fasa._command import main

    with pytest.raises(SystemExit) as ended:
        main(["eval", *map(str, arguments)])
    return (ended.value.code, *capsys.readouterr())


@pytest.mark.parametrize("task", [
    ["needle", "--context", 600, "--examples", 2, "--fac-tokens", 128],
    ["ppl", "--context", 400, "--stride", 50, "--examples", 2],
    ["turns", "--context", 700, "--facts", 3, "--examples", 1],
    ["retrieval", "--tasks", "one-of-four", "--context", 900, "--examples", 1, "--question",
     "prefill"],
])
def test_evaluates_as_the_command_does(task, tmp_path, capsys):
    flags = [*task, "--model", MODEL, "--text", TEXT, "--row-dtype", "bf16",
             "--json"]
    code, out, errors = evaluate(capsys, *flags, "--dtype", "float32")
    assert code == 0, errors
    mine = json.loads(out)
    theirs = command("eval", *flags, "--selection", "fasa", "--results", tmp_path)
    theirs = json.loads(theirs.stdout)
    assert mine["config"] == theirs["config"]
    assert mine["examples"] == theirs["examples"]
    (path,) = tmp_path.glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:]
    for one, other in zip(mine["tasks"][0]["records"], lines, strict=True):
        assert one.pop("nll", 0) == pytest.approx(other.pop("nll", 0), rel=1e-3)
        assert one == other  # questions, answers and all


@pytest.mark.parametrize("arguments,message", [
    (["longbnch"], 'unknown task "longbnch" (nearest: longbench); allowed: ppl, needle'),
    (["longbench"], "eval longbench: --data is missing"),
    (["ppl", "--context", 400, "--stride", 400], "--stride = 400: allowed: 1 to 399"),
    (["ppl", "--context", 400, "--examples", 99999], "--examples = 99999: allowed: 1 to"),
    (["needle", "--context", 9000], "--context = 9000: allowed: 1 to 8192"),
    (["needle", "--context", 40], "--context = 40: too short for 4 facts"),
    (["needle", "--facts", 0], "--facts = 0"),
])
def test_evaluation_errors(arguments, message, capsys):
    code, out, errors = evaluate(capsys, *arguments, "--model", MODEL, "--text", TEXT)
    assert code == 2 and message in errors and out == "", errors


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


@pytest.fixture(scope="module")
def server():
    """The URL of a running `fasa serve` with full attention."""
    flags = ["serve", "--model", MODEL, "--port", "0", "--preset", "full", "--threads", "1"]
    with subprocess.Popen([os.environ["COMMAND_UNDER_TEST"], *map(str, flags)], text=True,
                          stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as started:
        for line in started.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                break
        yield found[0]
        started.terminate()
        started.stderr.read()


@pytest.mark.parametrize("task", [
    ["turns", "--context", 700, "--facts", 3, "--examples", 1],
    ["retrieval", "--tasks", "one-of-four", "--context", 900, "--examples", 1],
    ["extract", "--records", 2, "--context", 900, "--examples", 1],
])
def test_a_server_answers_as_the_command_does(task, server, tmp_path, capsys):
    flags = [*task, "--model", MODEL, "--text", TEXT, "--json"]
    code, out, errors = evaluate(capsys, *flags, "--server", server)
    assert code == 0, errors
    mine = json.loads(out)
    assert not mine["chat"] and mine["server"] == server
    command("eval", *flags, "--question", "prefill", "--preset", "full", "--results", tmp_path)
    (path,) = tmp_path.glob("*.jsonl")
    theirs = json.loads(path.read_text().splitlines()[1])
    for one, other in zip(mine["tasks"][0]["records"][0]["questions"], theirs["questions"],
                          strict=True):
        assert one.pop("answer").startswith(other.pop("answer"))  # a server does not stop early
        assert one == other


@pytest.mark.parametrize("arguments,code,message", [
    (["ppl", "--context", 400], 2, "eval ppl asks no questions; allowed: needle, turns"),
    (["needle", "--question", "decode"], 2, "--question = decode"),
    (["needle", "--fac-tokens", 64], 2, "--fac-tokens: not with --server"),
    (["needle", "--served-model", "other"], 3, "status 404"),
    (["needle", "--chat", "always"], 3, "status 4"),
])
def test_server_evaluation_errors(arguments, code, message, server, capsys):
    found = evaluate(capsys, *arguments, "--model", MODEL, "--text", TEXT, "--server", server)
    assert found[0] == code and message in found[2] and found[1] == "", found[2]


def test_a_missing_server_is_named(capsys):
    for url, code in (("http://127.0.0.1:9", 3), ("127.0.0.1:9", 2)):
        found = evaluate(capsys, "needle", "--model", MODEL, "--text", TEXT, "--server", url)
        assert found[0] == code and url in found[2], found[2]
