"""`python -m fasa eval --server`: the questions of `fasa eval`, answered by a server."""
import http.server
import json
import os
import re
import subprocess
import threading

import pytest
from conftest import MODEL, ROOT

TEXT = ROOT / "models/texts/ruth.txt"
K = 128


def evaluate(capsys, *arguments):
    from fasa._command import main

    with pytest.raises(SystemExit) as ended:
        main(["eval", *map(str, arguments), "--model", str(MODEL)])
    return (ended.value.code, *capsys.readouterr())


def records(report):
    return [json.loads(line) for line in open(report["tasks"][0]["results"], encoding="utf-8")][1:]


@pytest.fixture(scope="module")
def serving():
    """`fasa serve` with sets of K tokens."""
    process = subprocess.Popen(
        [os.environ["COMMAND_UNDER_TEST"], "serve", "--model", str(MODEL), "--port", "0",
         "--quiet", "--fac-tokens", str(K), "--row-dtype", "bf16"], stderr=subprocess.PIPE,
        text=True)
    line = next(line for line in process.stderr if " at http" in line)
    yield re.search(r"http://\S+", line)[0]
    process.kill()
    process.wait()
    process.stderr.close()


def test_needle_is_answered_as_by_the_command(serving, tmp_path, capsys):
    flags = ["needle", "--context", "600", "--examples", "3", "--text", TEXT, "--json"]
    code, out, errors = evaluate(capsys, *flags, "--server", serving, "--results",
                                 tmp_path / "mine")
    assert code == 0, errors
    mine = json.loads(out)
    assert mine["method"].startswith("needle-3m at 127.0.0.1:")
    assert (mine["server"], mine["server_model"]) == (serving, "needle-3m")
    theirs = subprocess.run(
        [os.environ["COMMAND_UNDER_TEST"], "eval", *map(str, flags), "--model", str(MODEL),
         "--fac-tokens", str(K), "--row-dtype", "bf16", "--results", str(tmp_path / "theirs")],
        check=True, capture_output=True, text=True, timeout=300)
    assert mine["accuracy"] == json.loads(theirs.stdout)["accuracy"]
    for one, other in zip(records(mine), records(json.loads(theirs.stdout)), strict=True):
        for ours, its in zip(one["questions"], other["questions"], strict=True):
            assert (ours["question"], ours["expected"], ours["right"]) == (
                its["question"], its["expected"], its["right"])


class Answers(http.server.BaseHTTPRequestHandler):
    asked: list = []
    body = None

    def log_message(self, *_):
        pass

    def reply(self, code, body):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, {"data": [{"id": "one"}, {"id": "two"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, dict(self.headers), asked))
        if self.body is not None:
            return self.reply(*self.body)
        self.reply(200, {"choices": [{"text": "The answer is \\boxed{1}."}]})


@pytest.fixture
def fake_server():
    """A server that gives every request the same answer, and records the requests."""
    handler = type("Handler", (Answers,), {"asked": [], "body": None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/", handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dataset2prompt.json").write_text(json.dumps({"qasper": "{context}\n{input}"}))
    (folder / "dataset2maxlen.json").write_text(json.dumps({"qasper": 5}))
    (folder / "qasper.jsonl").write_text(json.dumps(
        {"context": TEXT.read_text()[:700], "input": "who?", "answers": ["the"],
         "all_classes": []}) + "\n")
    (folder / "aime.jsonl").write_text(json.dumps({"question": "0+1?", "answer": 1}) + "\n")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n[ \"$3\" = --check ] && exit 0\n"
                      "echo '{\"scores\": {\"1\": 50}}'\n")
    python.chmod(0o755)
    return tmp_path


def test_longbench_and_math(fake_server, data, capsys, monkeypatch):
    url, handler = fake_server
    flags = ["--data", data / "data", "--metrics-python", data / "python", "--server", url,
             "--results", data / "results", "--json"]
    code, out, errors = evaluate(capsys, "longbench", *flags, "--tasks", "qasper", "--context", 300,
                                 "--server-model", "two")
    assert code == 0, errors
    assert json.loads(out)["score"] == 50
    (path, headers, asked), = handler.asked
    assert path == "/v1/completions" and "Authorization" not in headers
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("two", 5, 0)
    assert len(asked["prompt"]) == 295 and all(isinstance(one, int) for one in asked["prompt"])
    monkeypatch.setenv("SERVER_KEY", "a key")
    code, out, errors = evaluate(capsys, "math", *flags, "--tasks", "aime", "--context", 180,
                                 "--samples", 2, "--temperature", 0.5, "--top-p", 0.9, "--seed", 7,
                                 "--server-key-env", "SERVER_KEY")
    assert code == 0, errors
    first, second = handler.asked[1:]
    assert first[1]["Authorization"] == "Bearer a key"
    assert (first[2]["temperature"], first[2]["top_p"]) == (0.5, 0.9)
    assert (first[2]["seed"], second[2]["seed"]) == (7, 8)
    assert "boxed{1}" in json.dumps(records(json.loads(out)))


@pytest.mark.parametrize("arguments,code,message", [
    (["ppl", "--server", "URL"], 2, "eval ppl --server: the completions API does not"),
    (["needle", "--server", "URL", "--fac-tokens", "64"], 2, "the server has its own config"),
    (["needle", "--server", "ftp://x"], 2, '--server = "ftp://x": allowed: http://'),
    (["needle", "--server", "URL", "--server-model", "three"], 2, "allowed: one, two"),
    (["needle", "--server", "URL", "--server-key-env", "NOT_THERE"], 2,
     "this environment variable is not set"),
    (["needle", "--server", "http://127.0.0.1:1"], 3, "is the server running?"),
])
def test_what_is_refused(arguments, code, message, fake_server, tmp_path, capsys):
    arguments = [fake_server[0] if one == "URL" else one for one in arguments]
    found, out, errors = evaluate(capsys, *arguments, "--results", tmp_path)
    assert (found, out) == (code, "") and message in errors, errors


@pytest.mark.parametrize("body,message", [
    ((400, {"error": "the prompt is too long"}), "400: "),
    ((200, {"choices": []}), "the answer has no text"),
    ((200, b"not JSON"), "is the server running?"),
    ((200, b"[" * 100000), "/v1/completions"),
])
def test_answers_that_are_none(body, message, fake_server, tmp_path, capsys):
    url, handler = fake_server
    handler.body = body
    code, out, errors = evaluate(capsys, "needle", "--context", 600, "--examples", 1, "--server",
                                 url, "--results", tmp_path)
    assert (code, out) == (3, "") and message in errors, errors
