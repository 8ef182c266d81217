"""Tensor parallelism: two processes of PyTorch on this machine, against one."""
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import MODEL, ROOT

WORKER = ROOT / "tests/python/parallel_worker.py"


def run(processes, *flags):
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                     str(processes)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, str(WORKER), str(MODEL), *flags], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed")
def test_two_ranks_give_the_text_of_one():
    one = run(1)[0]
    two = sorted(run(2), key=lambda found: found["rank"])
    assert [found["kv_heads"] for found in two] == [1, 1] and one["kv_heads"] == 2
    for found in two:
        assert found["all"] == one["all"]
    # 128 tokens through the model's own map: each rank's sets are its heads' of one process.
    assert [found["sparse"] for found in two] == [one["sparse"]] * 2
    scores = [abs(a - b) for a, b in zip(two[0]["logits"], one["logits"])]
    assert max(scores) < 1e-3


def test_ranks_that_do_not_divide_the_heads():
    import fasa
    import fasa.transformers

    class Ranks:
        tp_size = 3

    import transformers
    config = transformers.LlamaConfig(num_key_value_heads=2, num_attention_heads=4)
    with pytest.raises(fasa.UsageError, match="tp_size = 3 does not divide the model's 2 KV heads"):
        fasa.transformers._geometry.require_divisible(Ranks(), config)
