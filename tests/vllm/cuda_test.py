"""fasa.vllm on a GPU: vLLM and the GPU are fakes (tests/python/fake_gpu). Without the experiment's
setting it gives an error that names it; with it, exact attention from tables in GPU memory."""
import sys
import types

import fake_cuda_calls
import fake_vllm
import pytest
from contract_test import LAYERS, attend_in_batches, engine, layers_of, spec  # noqa: F401

import fasa
from fasa.vllm import _backend, _impl, _metadata, _settings, _store, _worker

CUSTOM = fake_vllm.AttentionBackendEnum.CUSTOM
ASKED = {"experimental_cuda": True}


@pytest.fixture
def gpu(engine, monkeypatch):  # noqa: F811
    """vLLM's tensors count as the fake GPU's, whose work is done at once."""
    stream = fake_cuda_calls.stream()
    fake_cuda_calls.serve_host_tensors(1)
    monkeypatch.setattr("vllm.platforms.current_platform", fake_vllm.platform("cuda"))
    for module in (_store, _impl, _metadata):
        monkeypatch.setattr(module, "on_gpu", lambda tensor: True)
        monkeypatch.setattr(module, "stream_of", lambda tensor: stream)
    monkeypatch.setattr(_store, "own_gpu", lambda: "cuda:0")
    engine.additional_config = {"fasa": dict(ASKED)}
    engine.parallel_config.worker_cls = "fasa.vllm.GpuWorker"
    engine.attention_config.backend = CUSTOM
    fasa.vllm.register()
    yield engine
    _store.close_store()
    fake_cuda_calls.serve_host_tensors(0)
    fake_cuda_calls.destroy_stream(stream)


class OwnWorker(fake_vllm.GpuWorker):
    """vLLM's, as fasa's stands on it."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config

    def get_kv_cache_spec(self):
        return {f"model.layers.{i}.attn": _backend.stub_of(spec()) for i in range(LAYERS)}

    def determine_available_memory(self):
        return 32 << 20


def worker_of(config):
    class Worker(_worker._Memory, OwnWorker):
        pass

    return Worker(config)


def refused(config, message):
    """By the worker, and by the backend where vLLM chose it."""
    for start in (lambda: worker_of(config), _backend.FasaGpuBackend.get_impl_cls):
        with pytest.raises(fasa.UsageError, match=message):
            start()


def test_what_vllm_finds(gpu):
    assert fake_vllm.REGISTERED == {CUSTOM: "fasa.vllm._backend.FasaGpuBackend"}
    assert issubclass(fasa.vllm.GpuWorker, fake_vllm.GpuWorker)
    backend = _backend.FasaGpuBackend
    assert backend.get_name() == CUSTOM.name
    assert backend.get_impl_cls() is _impl.FasaImpl
    assert backend.get_builder_cls() is _metadata.FasaMetadataBuilder
    assert backend.customize_spec(spec()).page_size_bytes == 256
    assert [one.base for one in backend.get_supported_kernel_block_sizes()] == [64]
    assert not (backend.supports_kv_connector() or backend.supports_pcp() or backend.supports_dcp()
                or backend.forward_includes_kv_cache_update)


def test_no_graphs():
    from vllm.v1.attention.backend import AttentionCGSupport

    assert _metadata.FasaMetadataBuilder._cudagraph_support is AttentionCGSupport.NEVER


@pytest.mark.parametrize("asked", [{}, {"experimental_cuda": False}, {"fac_tokens": 128}])
def test_who_does_not_ask_for_the_experiment(gpu, asked):
    gpu.additional_config = {"fasa": asked}
    refused(gpu, "fasa in vLLM on cuda has only been tested.*experimental_cuda")


def test_what_the_experiment_does_not_take(gpu, monkeypatch):
    gpu.additional_config = {"fasa": {**ASKED, "device": "cuda:1"}}
    refused(gpu, '"device" = cuda:1, but vLLM chooses the GPU of a process: allowed: auto')
    gpu.additional_config = {"fasa": {**ASKED, "device": "cpu"}}
    refused(gpu, '"device" = cpu')
    gpu.additional_config = {"fasa": ASKED}
    gpu.attention_config.backend = None
    with pytest.raises(fasa.UsageError, match="--attention-backend is None: allowed: CUSTOM"):
        worker_of(gpu)
    gpu.attention_config.backend = CUSTOM
    gpu.parallel_config.worker_cls = "fasa.vllm.CpuWorker"
    with pytest.raises(fasa.UsageError, match="--worker-cls is .*: allowed: fasa.vllm.GpuWorker"):
        _backend.FasaGpuBackend.get_impl_cls()
    gpu.additional_config = {}
    with pytest.raises(fasa.UsageError, match="CUSTOM selects fasa, but fasa is not configured"):
        _backend.FasaGpuBackend.get_builder_cls()
    gpu.additional_config = {"fasa": ASKED}
    gpu.speculative_config = object()
    gpu.parallel_config.worker_cls = "fasa.vllm.GpuWorker"
    refused(gpu, "speculative decoding")
    monkeypatch.setattr("vllm.platforms.current_platform", fake_vllm.platform("rocm"))
    with pytest.raises(fasa.UsageError, match="does not support the platform of this vLLM"):
        _settings.refuse_device(_settings.Settings.of(gpu))


def test_a_backend_of_another_plugin(gpu):
    fake_vllm.REGISTERED[CUSTOM] = "other.Backend"
    fasa.vllm.register()
    assert fake_vllm.REGISTERED == {CUSTOM: "other.Backend"}
    with pytest.raises(fasa.UsageError, match="CUSTOM belongs to another plugin, other.Backend"):
        worker_of(gpu)
    fake_vllm.REGISTERED.clear()
    with pytest.raises(fasa.UsageError, match="vLLM did not load fasa's plugin"):
        worker_of(gpu)


def test_blocks_fit_on_the_gpu_and_in_the_hosts_memory(gpu):
    layers_of(gpu)
    stub = LAYERS * spec().block_size * 2
    gpu.additional_config = {"fasa": {**ASKED, "host_memory": "1GiB"}}
    worker = worker_of(gpu)
    blocks, rest = divmod(worker.determine_available_memory(), stub)
    sizes = _store.current_store().sizes()
    page, fixed = sizes["page"], sizes["fixed"]
    assert rest == 0 and page["host_rows"] > page["device_total"] > 0
    assert blocks == ((32 << 20) - fixed["device_total"]) // (page["device_total"] + stub)
    _store.close_store()
    gpu.additional_config = {"fasa": {**ASKED, "host_memory": "4MiB"}}
    fewer = worker_of(gpu).determine_available_memory() // stub
    taken = fixed["host_rows"] + fixed["host_tables"]
    assert fewer == ((4 << 20) - taken) // (page["host_rows"] + page["host_tables"]) < blocks


def test_without_a_limit_ranks_share_the_hosts_memory(gpu, monkeypatch):
    free = types.SimpleNamespace(available=(2 << 30) + (8 << 20))
    monkeypatch.setitem(sys.modules, "psutil", types.SimpleNamespace(virtual_memory=lambda: free))
    layers_of(gpu)
    gpu.parallel_config.world_size = 2
    stub = LAYERS * spec().block_size * 2
    blocks = worker_of(gpu).determine_available_memory() // stub
    store = _store.current_store()
    page, fixed = store.sizes()["page"], store.sizes()["fixed"]
    taken = fixed["host_rows"] + fixed["host_tables"]
    assert blocks == ((4 << 20) - taken) // (page["host_rows"] + page["host_tables"])


def test_batches_attend_exactly(gpu):
    gpu.additional_config = {"fasa": {**ASKED, "selection": "full"}}
    before = fake_cuda_calls.calls("locate")
    attend_in_batches(gpu)
    assert _store.current_store().paged.device == "cuda:0"
    assert fake_cuda_calls.calls("locate") > before


def test_a_step_reads_its_tables_once(gpu, monkeypatch):
    """Before its layers: what lies there then is what counts for all of them."""
    gpu.additional_config = {"fasa": {**ASKED, "selection": "full"}}
    build = _metadata.FasaMetadataBuilder.build

    def spoiled(self, prefix, batch, fast_build=False):
        made = build(self, prefix, batch, fast_build)
        for array in (batch.slot_mapping, *made.arrays()):
            array.fill_(-77)
        return made

    monkeypatch.setattr(_metadata.FasaMetadataBuilder, "build", spoiled)
    attend_in_batches(gpu)
