"""Tensor parallelism: two PyTorch processes on this machine, against one."""
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import MODEL, ROOT

WORKER = ROOT / "tests/python/parallel_worker.py"


def run(processes, folder):
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                     str(processes)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, str(WORKER), str(MODEL), str(folder)], env=environment,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed")
def test_two_ranks_give_the_text_and_sets_of_one(tmp_path):
    one = run(1, tmp_path)[0]
    two = run(2, tmp_path)
    assert [found["kv_heads"] for found in two] == [1, 1] and one["kv_heads"] == 2
    for found in two:
        assert found["all"] == one["all"]
    # 128 tokens selected by the model's own map; each rank uses its heads' part of the map.
    for name in ("sparse", "scored"):
        assert [found[name] for found in two] == [one[name]] * 2
    scores = [abs(a - b) for a, b in zip(two[0]["logits"], one["logits"])]
    assert max(scores) < 1e-3


    same_sets(one, two)


def same_sets(one, two):
    """Both ranks' sets together equal the single process's, except for tokens at the edge of a
    set."""
    sets, scores = ([two[0][part][layer] + two[1][part][layer] for layer in range(len(one[part]))]
                    for part in ("sets", "scores"))
    for layer, heads in enumerate(one["sets"]):
        assert len(heads) == len(sets[layer]) == 2
        for head, wanted in enumerate(heads):
            assert len(wanted) == len(sets[layer][head]) == 128
            alike = one["scores"][layer][head]
            assert max(abs(a - b) for a, b in zip(alike, scores[layer][head])) < 1e-3
            # neither sinks nor recent tokens
            inner = [alike[t] for t in wanted if 4 <= t < len(alike) - 16]
            for token in set(wanted) ^ set(sets[layer][head]):
                assert abs(alike[token] - min(inner)) <= 1e-5, (layer, head, token)


def test_ranks_that_do_not_divide_the_heads():
    import fasa
    import fasa.transformers

    class Ranks:
        tp_size = 3

    import transformers
    config = transformers.LlamaConfig(num_key_value_heads=2, num_attention_heads=4)
    with pytest.raises(fasa.UsageError, match="tp_size = 3 does not divide the model's 2 KV heads"):
        fasa.transformers._geometry.require_divisible(Ranks(), config)
