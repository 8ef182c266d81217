"""Every example of the documentation runs."""
import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, kind):
    text = (ROOT / "docs" / page).read_text()
    return [code for language, code in BLOCK.findall(text) if language == kind]


@pytest.mark.parametrize("page", ["python.md", "transformers.md"])
def test_python(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = blocks(page, "python")
    assert len(code) >= 3
    names = {}
    for number, block in enumerate(code):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)


def commands():
    lines = "".join(blocks("transformers.md", "")).splitlines()
    return [line for line in lines if line.startswith("python -m fasa")]


def test_commands_are_found():
    assert len(commands()) == 5


@pytest.mark.parametrize("line", commands())
def test_command(line, tmp_path):
    words = shlex.split(line)
    paths = [str(ROOT / word) if word.startswith("models/") else word for word in words[1:]]
    done = subprocess.run([sys.executable, *paths], cwd=tmp_path, env=os.environ, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
