"""Unsupported configurations are rejected at start, by name; a plugin that was requested and is
missing is an error."""
from support import long_run, run

pytestmark = long_run

CONFIGURED = [
    ({"block_size": 32}, "blocks of 32 tokens (--block-size; allowed: 64, 128, 192, 256)"),
    ({"additional_config": {"fasa": {"fac_token": 3}}}, "fac_token"),
    ({"additional_config": {"fasa": 7}}, '"fasa" = 7: allowed: an object'),
    ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 2,
                             "prompt_lookup_max": 3}}, "speculative decoding"),
    ({"kv_transfer_config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}},
     "KV connectors"),
    ({"patch": {"model_config.enable_sleep_mode": True}}, "sleep mode (--enable-sleep-mode)"),
    ({"kv_cache_dtype": "fp8"}, "quantised KV cache (--kv-cache-dtype fp8"),
    ({"patch": {"parallel_config.tensor_parallel_size": 4}}, "4 ranks over 2 KV heads"),
    ({"patch": {"parallel_config.decode_context_parallel_size": 2}}, "decode context parallelism"),
    ({"patch": {"parallel_config.enable_dbo": True}}, "dual-batch overlap"),
    ({}, ""),
]


def test_what_a_configuration_asks_for():
    said = run("refusals", asked=[options for options, _ in CONFIGURED])["said"]
    for (options, message), found in zip(CONFIGURED, said, strict=True):
        assert (message in found) and bool(message) == bool(found), (options, found)


def test_the_engine_does_not_start():
    said = run("start", fails=True, fasa={}, block_size=96)
    assert "blocks of 96 tokens (--block-size; allowed: 64, 128, 192, 256)" in said


def test_a_worker_of_another():
    said = run("start", fails=True, fasa=None, additional_config={"fasa": {}})
    assert ("--worker-cls is vllm.v1.worker.cpu_worker.CPUWorker: "
            "allowed: fasa.vllm.CpuWorker") in said


def test_a_plugin_that_was_not_loaded():
    said = run("start", {"VLLM_PLUGINS": "another"}, fails=True, fasa={})
    assert ("vLLM did not load fasa's plugin" in said
            and 'VLLM_PLUGINS, if set, contains "fasa"' in said)


def test_a_worker_and_nothing_that_asks():
    said = run("start", fails=True, fasa=None, worker_cls="fasa.vllm.CpuWorker")
    assert "fasa is not configured" in said


def test_too_little_memory():
    said = run("start", {"VLLM_CPU_KVCACHE_SPACE": ""}, fails=True, fasa={},
               kv_cache_memory_bytes=100000)
    assert "100000 bytes for the KV cache: fasa needs" in said
