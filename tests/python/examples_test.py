"""The Python examples run unchanged."""
import os
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize("name, shown", [("decode.py", "8016 tokens"),
                                         ("transformers_generate.py", " ")])
def test_example(name, shown, tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "examples" / name)], cwd=tmp_path,
                          env=os.environ, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
