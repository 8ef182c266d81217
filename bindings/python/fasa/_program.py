"""The command `fasa` of an installed wheel: runs the program in it."""
from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin/fasa"
    os.execv(program, ["fasa", *sys.argv[1:]])
