"""Blocks are allocated and freed, and no freed block is read."""
from support import long_run, run

pytestmark = long_run


def test_freed_blocks_are_never_read():
    found = run("freed_blocks")
    assert found["asked"] == 300 and found["aborted"] > 5
    assert found["preemptions"] >= 20 and found["checked"] > 1000
    undisturbed = run("freed_blocks", drops=False, blocks=400)
    assert undisturbed["preemptions"] == 0
    both = set(found["outputs"]) & set(undisturbed["outputs"])
    same = sum(found["outputs"][name] == undisturbed["outputs"][name] for name in both)
    assert len(both) > 200
    assert same >= 0.99 * len(both)  # ties of logits, which other batch sizes break differently


def test_a_live_page_that_is_dropped_raises():
    said = run("a_live_page_dropped")["said"]
    assert "holds 0 tokens" in said


def test_memory_goes_with_the_engine():
    found = run("after_shutdown")
    assert found["closed"] and found["rows"] > 900 << 20
    assert found["back"] >= found["rows"]
