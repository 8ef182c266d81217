"""With all tokens attended to, vLLM on fasa gives vLLM's outputs: chunked prompts, four at a time,
shared prefixes, preempted requests."""
import pytest
from support import long_run, run, same_tokens

pytestmark = long_run


@pytest.fixture(scope="module")
def own():
    """vLLM's own backend."""
    return run("greedy", fasa=None)


def test_its_own_tokens(own):
    found = run("greedy", fasa={"selection": "full"}, twice=True)
    assert same_tokens(found["first"], own["first"]) > 12 * 32
    assert found["stub"] == 2
    assert found["metrics"]["decode_steps"] > 0
    # In the second run prefixes are cached.
    assert sum(one["cached"] or 0 for one in found["second"]) > 2000
    assert same_tokens(found["second"], own["first"]) > 12 * 32


def test_a_budget_beyond_every_context(own):
    """Selection is on, and covers all tokens."""
    found = run("greedy", fasa={"fac_tokens": 4096})
    assert same_tokens(found["first"], own["first"]) > 12 * 32


def test_under_preemption(own):
    """17 blocks of 64 tokens for four sequences of up to 964."""
    options = {"block_size": 64, "num_gpu_blocks_override": 18, "max_model_len": 1024}
    found = run("greedy", fasa={"selection": "full"}, options=options)
    assert found["preemptions"] > 0
    assert same_tokens(found["first"], own["first"]) > 12 * 32


def test_without_prefix_caching(own):
    found = run("greedy", fasa={"selection": "full"}, options={"enable_prefix_caching": False})
    assert not any(one["cached"] for one in found["first"])
    assert same_tokens(found["first"], own["first"]) > 12 * 32


def test_prompts_of_one_step_share_blocks():
    found = run("same_step")
    first, second = found["both"]
    assert first["steps"] == second["steps"]
    assert second["cached"] == 3 * 128
    assert same_tokens([first], found["alone"]) == 16


def test_half_precision():
    """Equal until a step whose two best logits are closer than bfloat16 resolves."""
    both = [run("greedy", fasa=fasa, options={"dtype": "bfloat16"})["first"]
            for fasa in ({"selection": "full"}, None)]
    agreed = 0
    for one, other in zip(*both):
        for mine, theirs in zip(one["steps"], other["steps"]):
            best = sorted(theirs["top"].values(), reverse=True)
            if mine["token"] != theirs["token"]:
                assert best[0] - best[1] < 0.05
                break
            agreed += 1
    assert agreed > 12 * 24
