"""The command `fasa` of an installed wheel: runs the program in it."""
from __future__ import annotations

import os
import pathlib
import signal
import sys


def main() -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin/fasa"
    # Python ignores the signal, and the program would inherit that: it would report a closed pipe
    # as an error, where `fasa ... | head` should end without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program, ["fasa", *sys.argv[1:]])
