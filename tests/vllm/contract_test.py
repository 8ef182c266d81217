"""fasa.vllm alone, over a fake vLLM: what it registers, a block's size, which rows decode, and that
a batch's outputs are those of exact attention."""
import types

import numpy as np
import fake_vllm
import pytest
import torch

import fasa

fake_vllm.install()

import fasa.vllm  # noqa: E402
from fasa.vllm import _backend, _impl, _metadata, _settings, _store, _worker  # noqa: E402

LAYERS, KV, QUERY, DIM, BLOCK = 2, 2, 4, 32, 64


@pytest.fixture(autouse=True)
def engine():
    """Sets the current configuration, and clears the store of other tests."""
    fake_vllm.REGISTERED.clear()
    fake_vllm.CURRENT["config"] = fake_vllm.config()
    yield fake_vllm.CURRENT["config"]
    _store.close_store()
    fake_vllm.CURRENT["config"] = None


def test_registers_as_often_as_it_is_asked_to():
    for _ in range(2):
        fasa.vllm.register()
    assert fake_vllm.REGISTERED == {
        fake_vllm.AttentionBackendEnum.CPU_ATTN: "fasa.vllm._backend.FasaCpuBackend"}


def test_other_platforms_are_left_alone(monkeypatch):
    monkeypatch.setattr("vllm.platforms.current_platform", fake_vllm.platform("xpu"))
    fasa.vllm.register()
    assert not fake_vllm.REGISTERED


@pytest.mark.parametrize("version,served",
                         [((0, 31, 9), False), ((0, 32, 0), True), ((0, 33, 1), True),
                          ((0, 34, 0), False), ((1, 0, 0), False)])
def test_versions(version, served):
    fake_vllm.install(version)
    try:
        fasa.vllm.register()
        assert bool(fake_vllm.REGISTERED) == served
        if not served:
            with pytest.raises(fasa.UsageError, match="fasa.vllm supports 0.32 to 0.33"):
                fasa.vllm.require_version()
    finally:
        fake_vllm.install()


def spec():
    return fake_vllm.Spec(128, KV, DIM, torch.float32)


def test_a_block_of_vllm_is_a_stub(engine):
    backend = _backend.FasaCpuBackend
    assert backend.get_impl_cls() is _impl.FasaImpl
    assert backend.get_builder_cls() is _metadata.FasaMetadataBuilder
    assert backend.customize_spec(spec()).page_size_bytes == 256
    assert [one.base for one in backend.get_supported_kernel_block_sizes()] == [64]
    assert not backend.supports_kv_connector() and not backend.forward_includes_kv_cache_update
    fake_vllm.CURRENT["config"] = None  # vLLM asks for specs without one
    assert backend.customize_spec(spec()).page_size_bytes == 256


def test_vllms_own_where_nobody_asks(engine):
    engine.additional_config = {}
    backend = _backend.FasaCpuBackend
    assert backend.get_impl_cls() == backend.get_builder_cls() == "vLLM's own"
    assert backend.customize_spec(spec()) == spec()
    assert backend.get_supported_kernel_block_sizes()[0].base == 32
    assert backend.get_name() == "CPU_ATTN"


@pytest.mark.parametrize("changes,message", [
    ({"speculative_config": object()}, "speculative decoding"),
    ({"kv_transfer_config": object()}, "KV connectors"),
    ({"model_config__enable_sleep_mode": True}, "sleep mode"),
    ({"cache_config__cache_dtype": "fp8"}, "quantised KV cache"),
    ({"model_config__dtype": torch.float64}, "model in float64"),
    ({"model_config__use_mla": True}, "latent attention"),
    ({"model_config__is_encoder_decoder": True}, "encoder-decoder"),
    ({"parallel_config__decode_context_parallel_size": 2}, "decode context parallelism"),
    ({"parallel_config__prefill_context_parallel_size": 2}, "prefill context parallelism"),
    ({"parallel_config__enable_dbo": True}, "dual-batch overlap"),
    ({"parallel_config__tensor_parallel_size": 4}, "4 ranks over 2 KV heads"),
    ({"cache_config__block_size": 32}, "blocks of 32 tokens"),
    ({"cache_config__block_size": 320}, "blocks of 320 tokens"),
])
def test_what_is_refused(changes, message):
    config = fake_vllm.config(**changes)
    with pytest.raises(fasa.UsageError, match="fasa does not support") as error:
        _settings.refuse(config)
    assert message in str(error.value)


@pytest.mark.parametrize("options,message", [
    ({"alibi_slopes": [1.0]}, "ALiBi"),
    ({"sliding_window": 512}, "sliding windows"),
    ({"logits_soft_cap": 30.0}, "soft-capped"),
    ({"attn_type": "encoder_only"}, "attention of the kind encoder_only"),
    ({"kv_sharing_target_layer_name": "a"}, "share another's keys"),
    ({"sinks": torch.zeros(4)}, "attention sinks"),
    ({"kv_cache_dtype": "fp8"}, r"quantised KV cache \(fp8\)"),
    ({"chunk_lookback": 3}, "fasa does not support chunk_lookback"),
])
def test_layers_that_are_refused(options, message):
    with pytest.raises(fasa.UsageError, match=message):
        _impl.FasaImpl(QUERY, DIM, 0.1, KV, **options)


@pytest.mark.parametrize("asked,message", [
    ({"fac_token": 3}, "fac_token"),
    ({"fac_tokens": "many"}, "fac_tokens"),
    (3, '"fasa" = 3'),
])
def test_wrong_settings(asked, message, engine):
    engine.additional_config = {"fasa": asked}
    with pytest.raises(fasa.UsageError, match=message):
        _settings.Settings.of(engine)


@pytest.mark.parametrize("asked,message", [
    ({"experimental_cuda": 1}, "experimental_cuda = 1: allowed: true, false"),
    ({"device": "cuda:0"}, '"device" = cuda:0, but this vLLM is built for CPUs'),
    ({"device": "cuda", "experimental_cuda": True},
     '"device" = cuda, but this vLLM is built for CPUs'),
])
def test_no_gpu_under_vllm_for_processors(asked, message, engine):
    fasa.vllm.register()
    engine.additional_config = {"fasa": asked}
    with pytest.raises(fasa.UsageError, match=message):
        worker_of(engine)
    with pytest.raises(fasa.UsageError, match=message):
        _backend.FasaCpuBackend.get_impl_cls()


def test_a_worker_that_is_not_fasas(engine):
    engine.parallel_config.worker_cls = "vllm.v1.worker.cpu_worker.CPUWorker"
    with pytest.raises(fasa.UsageError, match="allowed: fasa.vllm.CpuWorker"):
        _backend.FasaCpuBackend.get_impl_cls()


class OwnWorker:
    """vLLM's own worker, the base of fasa's."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config

    def get_kv_cache_spec(self):
        return {f"model.layers.{i}.attn": _backend.stub_of(fake_vllm.Spec(BLOCK, KV, DIM,
                                                                          torch.float32))
                for i in range(LAYERS)}

    def determine_available_memory(self):
        return 32 << 20

    def execute_model(self, scheduler_output):
        return "done"

    def shutdown(self):
        return "ended"


def worker_of(config):
    class Worker(_worker._Memory, OwnWorker):
        pass

    return Worker(config)


def test_a_plugin_that_was_not_loaded(engine):
    with pytest.raises(fasa.UsageError, match="vLLM did not load fasa's plugin"):
        worker_of(engine)
    fasa.vllm.register()
    worker_of(engine)
    engine.additional_config = {}
    with pytest.raises(fasa.UsageError, match="fasa is not configured"):
        worker_of(engine)


def layers_of(config):
    impls = [_impl.FasaImpl(QUERY, DIM, DIM**-0.5, KV) for _ in range(LAYERS)]
    config.layers = {f"model.layers.{i}.attn": types.SimpleNamespace(impl=impl)
                     for i, impl in enumerate(impls)}
    config.compilation_config = types.SimpleNamespace(static_forward_context=config.layers)
    return impls


def test_as_many_blocks_as_fit(engine):
    """In units of vLLM's cache memory, which vLLM divides by a stub block's size."""
    fasa.vllm.register()
    layers_of(engine)
    worker = worker_of(engine)
    stub = LAYERS * BLOCK * 2
    blocks, rest = divmod(worker.determine_available_memory(), stub)
    sizes = _store.current_store().sizes()
    page = sizes["page"]["device_total"]
    assert rest == 0 and page > 2 * LAYERS * KV * DIM * BLOCK * 4
    taken = sizes["fixed"]["device_total"] + sizes["fixed"]["host_tables"]
    assert blocks == ((32 << 20) - taken) // (page + stub) > 100
    engine.additional_config = {"fasa": {"device_memory": "8MiB"}}
    _store.close_store()
    limited = worker_of(engine).determine_available_memory() // stub
    assert limited == ((8 << 20) - sizes["fixed"]["device_total"]) // page < blocks
    engine.additional_config = {"fasa": {"device_memory": "1KiB"}}
    _store.close_store()
    with pytest.raises(fasa.UsageError, match="1024 bytes for the KV cache: fasa needs"):
        worker_of(engine).determine_available_memory()
    with pytest.raises(fasa.UsageError, match="with 2 groups of KV caches"):
        worker.initialize_from_config(types.SimpleNamespace(kv_cache_groups=[1, 2]))
    with pytest.raises(fasa.UsageError, match="sleep mode"):
        worker.sleep(1)
    assert worker.shutdown() == "ended" and _store.current_store() is None


def build(engine, **batch):
    """A batch from (block ids, total tokens, new tokens, still in its prompt) per row."""
    rows = batch["rows"]
    starts = np.concatenate([[0], np.cumsum([row[2] for row in rows])]).astype(np.int32)
    width = max(len(row[0]) for row in rows)
    table = np.full((len(rows), width), 0, np.int32)
    for at, row in enumerate(rows):
        table[at, :len(row[0])] = row[0]
    flags = torch.tensor([row[3] for row in rows])
    return types.SimpleNamespace(
        num_reqs=len(rows), query_start_loc_cpu=torch.from_numpy(starts),
        seq_lens=torch.tensor([row[1] for row in rows], dtype=torch.int32),
        block_table_tensor=torch.from_numpy(table), slot_mapping=batch.get("slots"),
        is_prefilling=None if batch.get("no_flags") else flags)


def test_which_rows_decode(engine):
    rows = [([1], 5, 1, False), ([2], 1, 1, True), ([3], 9, 1, False), ([0], 0, 0, False),
            ([4], 30, 20, True)]
    made = _metadata.FasaMetadata.of(build(engine, rows=rows))
    assert made.decode.table[:, 0].tolist() == [1, 3] and made.decode.tokens.tolist() == [0, 2]
    assert made.prefill.table[:, 0].tolist() == [2, 4] and made.prefill.queries.tolist() == [1, 20]
    assert made.prefill.tokens.tolist() == [1, *range(3, 23)]
    unknown = _metadata.FasaMetadata.of(build(engine, rows=rows, no_flags=True))
    assert unknown.decode.lengths.tolist() == [5, 1, 9] and unknown.decode.tokens is None
    assert unknown.prefill.first == 3 and unknown.prefill.tokens is None
    nobody = _metadata.FasaMetadata.of(build(engine, rows=[([0], 0, 0, False)]))
    assert nobody.decode is None and nobody.prefill is None


def exact(q, k, v):
    """Causal attention of the newest tokens; [tokens, heads, dim]."""
    k, v = (t.repeat_interleave(QUERY // KV, dim=1).double() for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * DIM**-0.5
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def attend_in_batches(engine):
    """Three sequences over some steps: chunks beside decodes in any order, one that begins with a
    block which another writes in the same step, blocks that are reused."""
    impls = layers_of(engine)
    names = list(engine.layers)
    builder = _metadata.FasaMetadataBuilder(
        types.SimpleNamespace(head_size=DIM, head_size_v=DIM), names, engine, "cpu")
    rng = torch.Generator().manual_seed(5)
    stored = {}  # sequence: layer: [k, v]
    tables = {"a": [3, 9, 1], "b": [3, 9, 5], "c": [7, 3, 2]}
    # (sequence, tokens before, new, in its prompt); "b" has the first two blocks from "a".
    steps = [[("a", 0, 150, True), ("b", 128, 20, True)],
             [("b", 148, 1, False), ("a", 150, 1, True), ("a2", 0, 0, False)],
             [("a", 151, 1, False), ("b", 149, 30, True)],
             [("c", 0, 70, True)]]  # block 3 again
    for step in steps:
        step = [one for one in step if one[0] in tables]
        total = sum(one[2] for one in step)
        slots = torch.tensor([tables[name][at // BLOCK] * BLOCK + at % BLOCK
                              for name, before, new,
                              _ in step for at in range(before, before + new)])
        metadata = builder.build(0, build(engine, rows=[
            (tables[name], before + new, new, prompt) for name, before, new, prompt in step],
                                          slots=slots))
        for layer, impl in enumerate(impls):
            # Views into shared rows of queries, keys and values, followed by padding.
            qkv = torch.randn(total + 3, (QUERY + 2 * KV) * DIM, generator=rng)
            q, k, v = (t.view(total + 3, -1, DIM)
                       for t in qkv.split([QUERY * DIM, KV * DIM, KV * DIM], 1))
            out = torch.full((total + 3, QUERY, DIM), 7.0)
            impl.do_kv_cache_update(None, k, v, None, slots)
            impl.forward(None, q, k, v, None, metadata, out)
            first = 0
            for name, before, new, _ in step:
                part = slice(first, first + new)
                old = stored.get((name, layer))
                if old is None and before:  # from "a", which this step has stored already
                    old = [t[:before] for t in stored["a", layer]]
                kept = [t[part] if old is None else torch.cat([one, t[part]])
                        for one, t in zip(old or (None, None), (k, v))]
                stored[name, layer] = kept
                torch.testing.assert_close(out[part].double(), exact(q[part], *kept), rtol=0,
                                           atol=2e-5)
                first += new
            assert (out[total:] == 7).all()
    held = [_store.current_store().paged.held(block, 1) for block in (7, 3, 9, 5)]
    assert held == [64, 6, 64, 51]


def test_batches_attend_exactly(engine):
    engine.additional_config = {"fasa": {"selection": "full"}}
    attend_in_batches(engine)


def test_no_batch_is_a_measurement(engine):
    out = torch.ones(3, QUERY, DIM)
    impl = _impl.FasaImpl(QUERY, DIM, 0.1, KV)
    assert impl.forward(None, out, out, out, None, None, out) is out
    with pytest.raises(fasa.UsageError, match="quantised attention outputs"):
        impl.forward(None, out, out, out, None, None, out, output_scale=1)


def test_block_copies_come_first(engine):
    fasa.vllm.register()
    impls = layers_of(engine)
    engine.additional_config = {"fasa": {"selection": "full"}}
    _metadata.FasaMetadataBuilder(types.SimpleNamespace(head_size=DIM, head_size_v=DIM),
                                  list(engine.layers), engine, "cpu")
    k = torch.randn(10, KV, DIM)
    for impl in impls:
        impl.do_kv_cache_update(None, k, k, None, torch.arange(64, 74))
    worker = worker_of(engine)
    assert worker.execute_model(types.SimpleNamespace(kv_cache_block_copies=[(1, 5)])) == "done"
    paged = _store.current_store().paged
    np.testing.assert_array_equal(paged.read(5, 1)[0], k.numpy())
    worker.execute_model(types.SimpleNamespace(kv_cache_block_copies=None))


def test_parts_of_a_model(engine):
    assert _store.part_of(engine, ["model.layers.1.attn", "model.layers.0.attn"], 0) == (
        _store.Part((0, 2), (0, 2)))
    engine.parallel_config.tensor_parallel_size = 2
    assert _store.part_of(engine, ["model.layers.1.attn"], 1) == _store.Part((1, 1), (1, 1))
    with pytest.raises(fasa.UsageError, match=r"attention in layers \[0, 2\] alone"):
        _store.part_of(engine, ["model.layers.0.attn", "model.layers.2.attn"], 0)
