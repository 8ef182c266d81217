"""Scores of kept predictions, from the metrics' own program in its Python environment."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from . import InputError, UsageError

_HOW = ("make the environment with tools/metrics-env, or name one (--metrics-python PATH; "
        "default: this Python)")


def _folder() -> pathlib.Path:
    """That holds fasa_metrics: beside this package, or the source tree's."""
    places = list(pathlib.Path(__file__).resolve().parents)
    for place in [*places[1:2], *(up / "tools" for up in places)]:
        if (place / "fasa_metrics/__main__.py").is_file():
            return place
    raise UsageError("the package fasa_metrics is not beside fasa; install the wheel again, or run "
                     "from the source tree")


class MetricsProgram:
    def __init__(self, python: str | None):
        """Raises UsageError where it, or a package of its, is missing: before hours of answers."""
        self._folder = _folder()
        made = self._folder.parent / "build/metrics-venv/bin/python"
        self._python = python or (str(made) if made.is_file() else sys.executable)
        done = self._run("--check")
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UsageError(f"the metrics do not run with {self._python}: "
                             f"{said[0] if said else 'no answer'}; {_HOW}")

    def score(self, results: str) -> dict:
        """Per cent by the id of a record; kept beside the results, as `fasa eval` keeps them."""
        done = self._run(results)
        line = next((line for line in reversed(done.stdout.splitlines())
                     if line.startswith('{"scores"')), None)
        if done.returncode != 0 or line is None:
            raise InputError(f"{results}: the metrics failed: {done.stdout}{done.stderr}")
        kept = pathlib.Path(f"{results}.scores.json")
        half = kept.with_name(kept.name + ".part")
        half.write_text(line, encoding="utf-8")
        half.replace(kept)
        return json.loads(line)["scores"]

    def _run(self, *arguments):
        try:
            return subprocess.run([self._python, "-m", "fasa_metrics", *arguments], text=True,
                                  capture_output=True,
                                  env={**os.environ, "PYTHONPATH": str(self._folder)})
        except OSError as error:
            raise UsageError(f"{self._python}: {error.strerror}; {_HOW}") from error


def add_scores(scores: dict, records: list[dict]) -> None:
    for record in records:
        if record["id"] in scores:
            record["score"] = scores[record["id"]]
