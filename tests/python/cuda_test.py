"""fasa.Runtime, fasa.Paged and fasa.transformers on a fake GPU: tensors in its memory, callers'
streams, and the bits of the processor."""
import numpy as np
import fake_cuda_calls as fake_gpu
import pytest

import fasa

LAYERS, KV, QUERY, DIM, PAGE = 2, 2, 4, 32, 64
RNG = np.random.default_rng(5)
GEOMETRY = fasa.Geometry(layers=LAYERS, kv_heads=KV, query_heads=QUERY, head_dim=DIM)
CONFIG = {"fac_tokens": 48, "sinks": 3, "recent": 5}
TOKENS, PROMPT = 150, 140


def config(device):
    return fasa.Config(**CONFIG, device=device)


@pytest.fixture(scope="module")
def new():
    """k, v and q of each layer."""
    def tensor(heads):
        return RNG.standard_normal((TOKENS, heads, DIM)).astype(np.float32)
    return [(tensor(KV), tensor(KV), tensor(QUERY)) for _ in range(LAYERS)]


@pytest.fixture
def stream():
    made = fake_gpu.stream()
    yield made
    fake_gpu.destroy_stream(made)


@pytest.fixture(scope="module")
def expected(new):
    """The processor's outputs, [layer][token]."""
    runtime = fasa.Runtime(GEOMETRY, config("cpu"), row_dtype="f32")
    return steps(runtime, new, lambda array: array, lambda shape: np.empty(shape, np.float32), None)


def steps(runtime, new, place, result, stream):
    sequence = runtime.sequence()
    outs = [[] for _ in range(LAYERS)]
    for first, count in [(0, PROMPT)] + [(i, 1) for i in range(PROMPT, TOKENS)]:
        runtime.begin_step([(sequence, count, "prefill" if first == 0 else "decode")])
        for layer, tensors in enumerate(new):
            k, v, q = (place(tensor[first:first + count]) for tensor in tensors)
            out = result((count, QUERY, DIM))
            runtime.append(layer, k, v, stream=stream)
            assert runtime.attend(layer, q, out, stream=stream) is out
            outs[layer].append(out)
        runtime.end_step()
    if stream is not None:
        fake_gpu.synchronize(stream)
    return [np.concatenate(parts) for parts in outs]


def test_a_callers_stream(new, expected, stream):
    """The host waits for nothing: the inputs' copies precede the steps in the same stream."""
    runtime = fasa.Runtime(GEOMETRY, config("cuda"), row_dtype="f32")
    assert runtime.device == "cuda:0"
    found = steps(runtime, new, lambda array: fake_gpu.coming(array, stream), fake_gpu.empty,
                  stream)
    np.testing.assert_array_equal(found, expected)


def test_calls_with_a_stream_only_enqueue(new, stream):
    runtime = fasa.Runtime(GEOMETRY, config("cuda:0"), row_dtype="f32")
    sequence, (k, v, q) = runtime.sequence(), new[0]
    out = fake_gpu.empty((PROMPT, QUERY, DIM))
    before = out.copy()
    runtime.begin_step([(sequence, PROMPT)])
    runtime.append(0, fake_gpu.coming(k[:PROMPT], stream), fake_gpu.coming(v[:PROMPT], stream),
                   stream=stream)
    runtime.attend(0, fake_gpu.coming(q[:PROMPT], stream), out, stream=stream)
    np.testing.assert_array_equal(out, before)
    fake_gpu.synchronize(stream)
    assert (out != before).any()
    runtime.abort_step()


def test_its_own_stream(new, expected, stream):
    """The work is done when the call returns."""
    runtime = fasa.Runtime(GEOMETRY, config("cuda"), row_dtype="f32")

    def there(array):
        made = fake_gpu.coming(array, stream)
        fake_gpu.synchronize(stream)
        return made

    found = steps(runtime, new, there, fake_gpu.empty, None)
    np.testing.assert_array_equal(found, expected)


def test_rows_are_read_into_host_memory(new, stream):
    runtime = fasa.Runtime(GEOMETRY, config("cuda"), row_dtype="f32")
    sequence = runtime.sequence()
    runtime.begin_step([(sequence, TOKENS)])
    for layer, (k, v, _) in enumerate(new):
        runtime.append(layer, fake_gpu.coming(k, stream), fake_gpu.coming(v, stream), stream=stream)
    runtime.end_step()
    keys, values = runtime.read(sequence, 1, 20, 100)
    np.testing.assert_array_equal(keys, new[1][0][20:120])
    np.testing.assert_array_equal(values, new[1][1][20:120])


def test_memory_that_a_gpu_cannot_access(new, stream):
    runtime = fasa.Runtime(GEOMETRY, config("cuda"), row_dtype="f32")
    sequence, (k, v, q) = runtime.sequence(), (tensor[:9] for tensor in new[0])
    k_there, v_there, q_there = (fake_gpu.coming(tensor, stream) for tensor in (k, v, q))
    runtime.begin_step([(sequence, 9)])
    with pytest.raises(fasa.UsageError, match="v lies in host memory that is not pinned"):
        runtime.append(0, k_there, v, stream=stream)
    with pytest.raises(fasa.UsageError, match="k lies in another device's memory"):
        runtime.append(0, fake_gpu.elsewhere(fake_gpu.empty(k.shape)), v_there, stream=stream)
    crooked = fake_gpu.empty(
        (9 * KV * DIM * 4 + 1,), np.uint8)[1:].view(np.float32).reshape(k.shape)
    with pytest.raises(fasa.UsageError, match="k begins at address .* multiples of 4"):
        runtime.append(0, crooked, v_there, stream=stream)
    runtime.append(0, k_there, v_there, stream=stream)
    with pytest.raises(fasa.UsageError, match="out = None: not supported on cuda:0; give a "):
        runtime.attend(0, q_there, stream=stream)
    with pytest.raises(fasa.UsageError, match="lse = True: not supported on cuda:0"):
        runtime.attend(0, q_there, fake_gpu.empty(q.shape), True, stream=stream)
    with pytest.raises(fasa.UsageError, match="out lies in host memory"):
        runtime.attend(0, q_there, np.empty(q.shape, np.float32), stream=stream)
    runtime.attend(0, q_there, fake_gpu.empty(q.shape), stream=stream)
    runtime.abort_step()
    with pytest.raises(fasa.UsageError, match="reads device memory on the host"):
        fasa.sparse_decode(q[:1], k[None], v[None], GEOMETRY, config("cuda"))


def test_streams_that_are_refused(new, expected, stream):
    runtime = fasa.Runtime(GEOMETRY, config("cuda"), row_dtype="f32")
    sequence = runtime.sequence()
    k, v = (fake_gpu.coming(tensor[:4], stream) for tensor in new[0][:2])
    theirs, gone = fake_gpu.stream(), fake_gpu.stream()
    fake_gpu.foreign_stream(theirs)
    runtime.begin_step([(sequence, 4)])
    with pytest.raises(fasa.UsageError, match="the stream belongs to cuda:1"):
        runtime.append(0, k, v, stream=theirs)
    # A stream known from the step before that was destroyed since.
    runtime.append(0, k, v, stream=gone)
    runtime.abort_step()
    fake_gpu.destroy_stream(gone)
    runtime.begin_step([(sequence, 4)])
    with pytest.raises(fasa.UsageError, match="or the stream was destroyed"):
        runtime.append(0, k, v, stream=gone)
    runtime.abort_step()
    found = steps(runtime, new, lambda array: fake_gpu.coming(array, stream), fake_gpu.empty,
                  stream)
    np.testing.assert_array_equal(found, expected)
    on_host = fasa.Runtime(GEOMETRY, config("cpu"), row_dtype="f32")
    on_host.begin_step([(on_host.sequence(), 4)])
    with pytest.raises(fasa.UsageError, match="stream = 0: not supported on cpu; allowed: None"):
        on_host.append(0, new[0][0][:4], new[0][1][:4], stream=0)


class Pages:
    """A page store on the fake GPU, and a sequence's tables in GPU or host memory."""

    def __init__(self, stream, place):
        self.paged = fasa.Paged(GEOMETRY, config("cuda"), num_pages=8, row_dtype="f32")
        self.stream, self.place, pages = stream, place, [5, 0, 7]
        slots = [pages[i // PAGE] * PAGE + i % PAGE for i in range(TOKENS)]
        # The prompt's slots, then each token's; the lengths of all steps.
        self.slots = place(np.array(slots, np.int64))
        self.table = place(np.array([pages], np.int32))
        self.lengths = place(np.arange(PROMPT, TOKENS + 1, dtype=np.int32))
        self.count = place(np.array([PROMPT], np.int32))

    def there(self, tensor):
        return fake_gpu.coming(tensor, self.stream)

    def prompt(self, layer, k, v, q):
        out = fake_gpu.empty((PROMPT, QUERY, DIM))
        self.paged.append(layer, self.there(k[:PROMPT]), self.there(v[:PROMPT]),
                          self.slots[:PROMPT], stream=self.stream)
        return self.paged.prefill(layer, self.there(q[:PROMPT]), self.table, self.lengths[:1],
                                  self.count, out, stream=self.stream)

    def token(self, layer, at, k, v, q):
        out = fake_gpu.empty((1, QUERY, DIM))
        part = slice(at, at + 1)
        self.paged.append(layer, self.there(k[part]), self.there(v[part]), self.slots[part],
                          stream=self.stream)
        return self.paged.attend(layer, self.there(q[part]), self.table,
                                 self.lengths[at - PROMPT + 1:at - PROMPT + 2], out,
                                 stream=self.stream)

    def run(self, new):
        outs = [[self.prompt(layer, *new[layer])] for layer in range(LAYERS)]
        for at in range(PROMPT, TOKENS):
            for layer in range(LAYERS):
                outs[layer].append(self.token(layer, at, *new[layer]))
        fake_gpu.synchronize(self.stream)
        return [np.concatenate(parts) for parts in outs]


@pytest.mark.parametrize("where", ["host", "gpu"])
def test_pages(new, expected, stream, where):
    place = ((lambda array: array) if where == "host"
             else (lambda array: fake_gpu.coming(array, stream)))
    pages = Pages(stream, place)
    np.testing.assert_array_equal(pages.run(new), expected)
    np.testing.assert_array_equal(pages.paged.read(5, 1)[0], new[1][0][:PAGE])


def test_tables_are_read_once_a_step(new, expected, stream):
    pages = Pages(stream, lambda array: fake_gpu.coming(array, stream))
    every = [pages.slots, pages.table, pages.lengths, pages.count]
    before = fake_gpu.calls("synchronize_stream")
    pages.paged.read_tables(every, stream=stream)
    assert fake_gpu.calls("synchronize_stream") - before == 1
    for array in every:  # the read tables stay valid, whatever the memory holds now
        array.view(np.uint8)[:] = 0x55
    np.testing.assert_array_equal(pages.run(new), expected)
    waits = []
    for arrays in ([pages.slots, pages.table, pages.lengths], []):
        pages = Pages(stream, lambda array: fake_gpu.coming(array, stream))
        pages.paged.read_tables([pages.slots, pages.table, pages.lengths, pages.count],
                                stream=stream)
        pages.run(new)
        pages.paged.read_tables(arrays and [pages.slots, pages.table, pages.lengths], stream=stream)
        before = fake_gpu.calls("synchronize_stream")
        at = TOKENS - 1
        pages.paged.attend(1, pages.there(new[1][2][at:]), pages.table, pages.lengths[-1:],
                           fake_gpu.empty((1, QUERY, DIM)), stream=stream)
        waits.append(fake_gpu.calls("synchronize_stream") - before)
    assert waits[1] == waits[0] + 1


def test_tables_that_are_refused(new, expected, stream):
    pages = Pages(stream, lambda array: fake_gpu.coming(array, stream))
    k, v, q = new[0]
    assert pages.prompt(0, k, v, q) is not None
    out = fake_gpu.empty((1, QUERY, DIM))
    query = pages.there(q[:1])
    with pytest.raises(fasa.UsageError,
                       match="seq_lens is in host memory, block_table in cuda:0"):
        pages.paged.attend(0, query, pages.table, np.array([5], np.int32), out, stream=stream)
    with pytest.raises(fasa.UsageError, match="slots lies in another device's memory"):
        pages.paged.append(0, pages.there(k[:1]), pages.there(v[:1]),
                           fake_gpu.elsewhere(fake_gpu.empty((1,), np.int64)), stream=stream)
    with pytest.raises(fasa.UsageError,
                       match="block_table has the wrong .*int32 array .* in host memory or cuda:0"):
        pages.paged.attend(0, query, [[1]], pages.lengths[:1], out, stream=stream)
    crooked = fake_gpu.empty((5,), np.uint8)[1:].view(np.int32)
    with pytest.raises(fasa.UsageError, match="seq_lens begins at address"):
        pages.paged.attend(0, query, pages.table, crooked, out, stream=stream)
    with pytest.raises(fasa.UsageError, match=r"ranges\[0\] lies in another"):
        pages.paged.read_tables([fake_gpu.elsewhere(fake_gpu.empty((4,), np.int32))], stream=stream)
    np.testing.assert_array_equal(pages.run(new), expected)


def test_sizes_before_there_are_pages():
    sizes = fasa.Paged.sizes(GEOMETRY, config("cuda"), row_dtype="f32", max_sequences=4,
                             max_context=512, step_tokens=128)
    assert sizes["page"]["device_slices"] > 0 and sizes["fixed"]["device_total"] > 0


@pytest.fixture
def model_on_gpu(monkeypatch):
    """This PyTorch has no CUDA: its tensors count as the fake GPU's, whose work is done at once."""
    pytest.importorskip("transformers")
    from fasa.transformers import _session

    made = fake_gpu.stream()
    fake_gpu.serve_host_tensors(1)
    monkeypatch.setattr(_session, "device_of", lambda tensor: "cuda:0")
    monkeypatch.setattr(_session, "stream_of", lambda tensor: made)
    yield
    fake_gpu.serve_host_tensors(0)
    fake_gpu.destroy_stream(made)


PROMPTS = [(0, 300), (900, 300), (40, 77)]


def generate(model, ids, **options):
    """A batch with padding, and a single prompt; with the caller's own mask too."""
    import torch

    import fasa.transformers

    caches, found = [], []
    rows = [ids[first:first + count] for first, count in PROMPTS]
    width = max(map(len, rows))
    batch = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    for given in ({"input_ids": batch, "attention_mask": mask}, {"input_ids": batch[:1]}):
        caches.append(fasa.transformers.Cache(model, fac_tokens=64, **options))
        found.append(model.generate(**given, past_key_values=caches[-1], max_new_tokens=12,
                                    do_sample=False).tolist())
    return found, [cache.runtime.device for cache in caches]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "auto"])
def test_transformers(model, text_ids, model_on_gpu, device):
    before = fake_gpu.calls("locate")
    found, devices = generate(model, text_ids, device=device)
    assert devices == ["cuda:0", "cuda:0"] and fake_gpu.calls("locate") > before
    fake_gpu.serve_host_tensors(0)
    with pytest.MonkeyPatch.context() as patch:
        from fasa.transformers import _session, _tensors

        patch.setattr(_session, "device_of", _tensors.device_of)
        patch.setattr(_session, "stream_of", _tensors.stream_of)
        expected, devices = generate(model, text_ids)
    assert devices == ["cpu", "cpu"]
    assert found == expected


def test_a_model_that_is_elsewhere(model, text_ids):
    """A processor's tensors for a cache on the GPU, and the other way round."""
    with pytest.raises(fasa.UsageError,
                       match="query is torch.float32 on cpu; expected .* on cuda:0"):
        generate(model, text_ids, device="cuda")


def test_a_model_on_the_gpu_for_a_cache_that_is_not(model, text_ids, model_on_gpu):
    with pytest.raises(fasa.UsageError, match="expected float32, float16 or bfloat16 on cpu"):
        generate(model, text_ids, device="cpu")
