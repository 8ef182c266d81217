"""Two processes, each with one of the bundled model's two KV heads, or half of its layers."""
import pytest
from support import long_run, run, same_tokens

pytestmark = long_run
PROCESSES = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


@pytest.mark.parametrize("fasa", [{"selection": "full"}, {"fac_tokens": 128}])
@pytest.mark.parametrize("kind", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_the_tokens_of_one_process(kind, fasa):
    expected = run("greedy", fasa=fasa, tokens=32)
    found = run("greedy", changes=PROCESSES, fasa=fasa, tokens=32,
                options={kind: 2, "distributed_executor_backend": "mp"})
    assert same_tokens(found["first"], expected["first"]) > 12 * 16
