"""Shared by the tests of fasa.vllm: scenarios run in their own processes, because vLLM keeps state
of its first engine in a process."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODEL = ROOT / "models/needle-3m"
GAP = 1e-3  # between the two best logits; below it a step may choose either
NEAR = 1e-4  # log-probabilities in float32; orders of summation alone change them by up to 1e-5

long_run = pytest.mark.skipif(
    os.environ.get("FASA_LONG") != "1",
    reason="minutes: the long run has them (tools/test --all, FASA_LONG=1)")


def installed(folder):
    """A folder for PYTHONPATH in which vLLM finds fasa's entry points, named as in
    pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = pathlib.Path(folder, f"fasa-{project['version']}.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: fasa\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()))
    return folder


def environment(folder, **changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FASA_")}
    return {**kept, "PYTHONPATH": f"{installed(folder)}:{os.environ['PYTHONPATH']}",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_CI_ENV": "1", "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": "1", **changes}


def run(scenario, changes=None, timeout=900, fails=False, **arguments):
    """Runs scenarios.py's function of that name in a new process; returns its result, or its output
    if it is to fail."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder, "result.json")
        done = subprocess.run(
            [sys.executable, HERE / "scenarios.py", scenario, json.dumps(arguments), result],
            env=environment(folder, **(changes or {})), capture_output=True, text=True,
            timeout=timeout, cwd=folder)
        assert (done.returncode != 0) == fails, (done.stdout + done.stderr)[-6000:]
        return done.stdout + done.stderr if fails else json.loads(result.read_text())


def same_tokens(found, expected):
    """Equal token for token, up to a step whose two best logits are too close for float32; there
    the token must be one of the two. Log-probabilities are near."""
    assert len(found) == len(expected)
    compared = 0
    for one, other in zip(found, expected):
        for step, (mine, theirs) in enumerate(zip(one["steps"], other["steps"], strict=True)):
            best = sorted(theirs["top"].values(), reverse=True)
            if mine["token"] != theirs["token"]:
                assert best[0] - best[1] < GAP, (step, mine, theirs)
                assert str(mine["token"]) in theirs["top"]
                break
            token = str(mine["token"])
            assert abs(mine["top"][token] - theirs["top"][token]) < NEAR, (step, mine, theirs)
            compared += 1
    return compared
