"""Scores stored predictions with the program fasa_metrics in its Python environment."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from . import InputError, UsageError
from ._core import write_file

_HOW = ("make an environment with tools/metrics-env, or give one (--metrics-python PATH; default: "
        "this Python)")


# Removes the working folder from the module search path: other users may be able to write there.
_RUN = ("import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; "
        "runpy.run_module('fasa_metrics', run_name='__main__', alter_sys=True)")


def _source_tree() -> pathlib.Path | None:
    """The source tree of this package, if it is in one; parent folders are not searched."""
    package = pathlib.Path(__file__).resolve().parent
    tree = package.parents[min(2, len(package.parents) - 1)]
    return tree if package == tree / "bindings/python/fasa" else None


def _folder() -> pathlib.Path:
    """The folder that contains fasa_metrics: beside this package, or in the source tree."""
    tree = _source_tree()
    place = tree / "tools" if tree else pathlib.Path(__file__).resolve().parents[1]
    if (place / "fasa_metrics/__main__.py").is_file():
        return place
    raise UsageError("the package fasa_metrics was not found beside fasa; reinstall the wheel, or "
                     "run from the source tree")


def _default_python() -> str:
    tree = _source_tree()
    made = tree / "build/metrics-venv/bin/python" if tree else None
    return str(made) if made and made.is_file() else sys.executable


class MetricsProgram:
    def __init__(self, python: str | None):
        """Raises UsageError if the program or a package is missing. Call it before answers are
        generated."""
        self._folder = _folder()
        self._python = python or _default_python()
        done = self._run("--check")
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UsageError(f"the metrics cannot run with {self._python}: "
                             f"{said[0] if said else 'no answer'}; {_HOW}")

    def score(self, results: str) -> dict:
        """Scores in per cent by record id; also stored beside the results, as `fasa eval` does."""
        done = self._run(results)
        line = next((line for line in reversed(done.stdout.splitlines())
                     if line.startswith('{"scores"')), None)
        if done.returncode != 0 or line is None:
            raise InputError(f"{results}: the metrics failed: {done.stdout}{done.stderr}")
        write_file(f"{results}.scores.json", line)
        return json.loads(line)["scores"]

    def _run(self, *arguments):
        try:
            return subprocess.run([self._python, "-c", _RUN, *arguments], text=True,
                                  capture_output=True,
                                  env={**os.environ, "PYTHONPATH": str(self._folder)})
        except OSError as error:
            raise UsageError(f"{self._python}: {error.strerror}; {_HOW}") from error


def add_scores(scores: dict, records: list[dict]) -> None:
    for record in records:
        if record["id"] in scores:
            record["score"] = scores[record["id"]]
