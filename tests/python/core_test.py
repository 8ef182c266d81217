"""The core, with NumPy alone. Runs under the address sanitizer too."""
import copy
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import fasa

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS, KV, QUERY, DIM = 2, 2, 4, 32
RNG = np.random.default_rng(7)


def geometry(**changes):
    given = dict(layers=LAYERS, kv_heads=KV, query_heads=QUERY, head_dim=DIM)
    return fasa.Geometry(**{**given, **changes})


def open_runtime(**options):
    return fasa.Runtime(geometry(), fasa.Config(**{"fac_tokens": 4096, **options}), row_dtype="f32")


def tensor(tokens, heads, dtype=np.float32):
    return RNG.standard_normal((tokens, heads, DIM)).astype(dtype)


def new_tokens(tokens, dtype=np.float32):
    return [(tensor(tokens, KV, dtype), tensor(tokens, KV, dtype), tensor(tokens, QUERY, dtype))
            for _ in range(LAYERS)]


def run(runtime, parts, layers, kept=()):
    runtime.begin_step(parts)
    outs = []
    for layer, (k, v, q) in enumerate(layers):
        runtime.append(layer, k, v)
        outs.append(runtime.attend(layer, q))
    runtime.end_step(kept)
    return outs


def softmax_attention(keys, values, query):
    """[query_heads, dim]: one query's attention over all keys."""
    out = np.empty((QUERY, DIM))
    sums = np.empty(QUERY)
    for head in range(QUERY):
        scores = keys[:, head // (QUERY // KV)].astype(np.float64) @ query[head] / DIM**0.5
        weights = np.exp(scores - scores.max())
        sums[head] = np.log(weights.sum()) + scores.max()
        out[head] = weights @ values[:, head // (QUERY // KV)] / weights.sum()
    return out, sums


@pytest.mark.parametrize("options", [{"preset": "fasa-c"}, {"preset": "full"},
                                     {"preset": "fasa-m", "device": "emulated"}])
def test_attention_is_softmax_over_everything_selected(options):
    runtime = open_runtime(**options)
    sequence = runtime.sequence()
    prompt, new = new_tokens(131), new_tokens(1)
    run(runtime, [(sequence, 131)], prompt)
    runtime.begin_step([sequence])
    for layer, (k, v, q) in enumerate(new):
        runtime.append(layer, k, v)
        out, sums = runtime.attend(layer, q, lse=True)
        keys = np.concatenate([prompt[layer][0], k])
        values = np.concatenate([prompt[layer][1], v])
        expected, expected_sums = softmax_attention(keys, values, q[0])
        # f32 sums of 132 terms of magnitude 1.
        np.testing.assert_allclose(out[0], expected, atol=2e-5)
        np.testing.assert_allclose(sums[0], expected_sums, atol=2e-5)
    runtime.end_step()
    assert len(sequence) == sequence.length == 132
    assert runtime.metrics()["decode_steps"] == 1
    assert runtime.memory()["device_total"] > 0


def test_stored_rows_are_read_back():
    runtime = open_runtime(device="emulated")
    sequence = runtime.sequence()
    prompt = new_tokens(70)
    run(runtime, [(sequence, 70)], prompt)
    keys, values = runtime.read(sequence, 1, first=3)
    np.testing.assert_array_equal(keys, prompt[1][0][3:])
    np.testing.assert_array_equal(values, prompt[1][1][3:])


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_rows_in_eight_bits(device):
    bytes_of = {}
    for kind in ("bf16", "int8"):
        runtime = fasa.Runtime(geometry(), fasa.Config(device=device, fac_tokens=4096,
                                                       row_dtype=kind))
        sequence = runtime.sequence()
        prompt, new = new_tokens(300), new_tokens(1)
        run(runtime, [(sequence, 300)], prompt)
        outs = run(runtime, [sequence], new)
        memory = runtime.memory()
        bytes_of[kind] = memory["host_rows"] + memory["device_rows"]
        for layer, (given_k, given_v, _) in enumerate(prompt):
            keys, values = runtime.read(sequence, layer)
            if kind == "int8":
                for stored, given in ((keys, given_k), (values, given_v)):
                    step = np.abs(given).max(axis=-1, keepdims=True) / 127
                    # Rounded once, so an element may move to a neighbouring code: a step plus the
                    # scale's rounding.
                    assert (np.abs(stored[:300].astype(np.float32) - given) <= 1.01 * step).all()
            expected, _ = softmax_attention(keys.astype(np.float32), values.astype(np.float32),
                                            new[layer][2][0])
            np.testing.assert_allclose(outs[layer][0], expected, atol=1e-2)
    assert bytes_of["int8"] == bytes_of["bf16"] / 2
    with expect(fasa.UsageError, "int8"):
        fasa.Runtime(geometry(head_dim=16), fasa.Config(row_dtype="int8"))


def test_dtypes_and_strides_without_a_copy():
    runtime = open_runtime()
    same = [RNG.integers(-3, 4, (5, heads, DIM)).astype(np.float32) for heads in (KV, KV, QUERY)]
    wanted = None
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        sequence = runtime.sequence()
        layers = [[t.astype(dtype) for t in same]] * LAYERS
        out = run(runtime, [(sequence, 5)], layers)[1]
        wanted = out if wanted is None else wanted
        np.testing.assert_array_equal(out, wanted)  # small integers: exact in every dtype
    wide = [np.zeros((5, 2 * t.shape[1], DIM), np.float32) for t in same]
    for big, t in zip(wide, same):
        big[:, ::2] = t
    sequence = runtime.sequence()
    out = run(runtime, [(sequence, 5)], [[big[:, ::2] for big in wide]] * LAYERS)[1]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="PyTorch is not sanitized")
def test_pytorch_tensors():
    torch = pytest.importorskip("torch")
    runtime = open_runtime()
    sequence = runtime.sequence()
    layers = new_tokens(3)
    wanted = run(runtime, [(runtime.sequence(), 3)], layers)
    runtime.begin_step([(sequence, 3)])
    for layer, (k, v, q) in enumerate(layers):
        runtime.append(layer, torch.from_numpy(k), torch.from_numpy(v).requires_grad_().detach())
        exact = torch.zeros(3, QUERY, DIM)
        out = exact if layer == 0 else torch.zeros(3, QUERY, DIM, dtype=torch.bfloat16)
        assert runtime.attend(layer, torch.from_numpy(q), out=out) is out
        # The output for NumPy tensors, rounded to the tensor's dtype.
        assert torch.equal(out, torch.from_numpy(wanted[layer]).to(out.dtype))
    runtime.end_step()


def test_forks_share_and_go_their_own_way():
    runtime = open_runtime()
    parent = runtime.sequence()
    prompt, a, b = new_tokens(100), new_tokens(1), new_tokens(1)
    run(runtime, [(parent, 100)], prompt)
    child = parent.fork()
    short = parent.fork(64)
    assert (len(child), len(short)) == (100, 64)
    of_parent = run(runtime, [parent], a)
    run(runtime, [child], b)
    child.truncate(100)
    np.testing.assert_array_equal(run(runtime, [child], a)[1], of_parent[1])


def test_a_sequence_goes_with_its_object_even_inside_a_step():
    runtime = open_runtime()
    kept, gone = runtime.sequence(), runtime.sequence()
    for sequence in (kept, gone):
        run(runtime, [(sequence, 70)], new_tokens(70))
    held = runtime.memory()["device_rows"]
    runtime.begin_step([kept])
    del gone
    gc.collect()
    # the step is still open; its memory is freed when it ends
    assert runtime.memory()["device_rows"] == held
    runtime.abort_step()
    assert runtime.memory()["device_rows"] <= held
    assert len(kept) == 70


def test_references_are_given_back():
    runtime = open_runtime(device="emulated")
    sequence = runtime.sequence()
    layers = new_tokens(9)
    before = [sys.getrefcount(t) for layer in layers for t in layer]
    run(runtime, [(sequence, 9)], layers)
    assert [sys.getrefcount(t) for layer in layers for t in layer] == before
    runtime.begin_step([(sequence, 9)])
    runtime.append(0, *layers[0][:2])
    runtime.abort_step()
    assert [sys.getrefcount(t) for layer in layers for t in layer] == before


def test_tensors_freed_early_are_kept_alive():
    runtime = open_runtime(device="emulated")
    sequence = runtime.sequence()
    layers = new_tokens(90)
    wanted = [k.copy() for k, _, _ in layers]
    runtime.begin_step([(sequence, 90)])
    for layer in range(LAYERS):
        k, v, q = layers[layer]
        layers[layer] = None
        runtime.append(layer, k, v)
        del k, v
        gc.collect()
        runtime.attend(layer, q)
    runtime.end_step()
    for layer in range(LAYERS):
        np.testing.assert_array_equal(runtime.read(sequence, layer)[0], wanted[layer])


def expect(error, *words):
    return pytest.raises(error, match="(?s)" + ".*".join(words))


def test_nested_values_have_a_limit():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with expect(fasa.UsageError, "allowed: 64 levels"):
        fasa.Config(dense_layers=deep)
    endless = []
    endless.append(endless)
    with expect(fasa.UsageError, "allowed: 64 levels"):
        fasa.Config(dense_layers=endless)


def test_bad_tensors_say_expected_and_given():
    runtime = open_runtime()
    sequence = runtime.sequence()
    runtime.begin_step([(sequence, 2)])
    good = tensor(2, KV)
    cases = [
        (good.astype(np.float64), "k has dtype float64; expected float32, float16 or bfloat16"),
        (tensor(3, KV), r"k is \[3, 2, 32\]; expected \[2, 2, 32\]"),
        (tensor(2, QUERY), r"k is \[2, 4, 32\]; expected \[2, 2, 32\]"),
        (np.zeros((2, KV, 2 * DIM), np.float32)[:, :, ::2], "stride 2 .* expected stride 1"),
        (good[0], r"k has 2 dimensions; expected \[tokens, heads, dim\]"),
        ("keys", "k is of type str; expected a NumPy array"),
        (None, "k is of type NoneType; expected a NumPy array"),
    ]
    for bad, message in cases:
        with expect(fasa.UsageError, message):
            runtime.append(0, bad, good)
    runtime.append(0, good, good)
    read_only = np.zeros((2, QUERY, DIM), np.float32)
    read_only.flags.writeable = False
    with expect(fasa.UsageError, "out is read-only"):
        runtime.attend(0, tensor(2, QUERY), out=read_only)
    with expect(fasa.UsageError, "layers must come in order"):
        runtime.append(0, good, good)
    runtime.abort_step()


def test_drafts_that_do_not_stay_leave_no_trace():
    runtime = open_runtime(device="cpu")
    sequence = runtime.sequence()
    run(runtime, [(sequence, 20)], new_tokens(20))
    other = sequence.fork()
    assert sequence.max_drafted == 43
    first, second, wrong = new_tokens(1), new_tokens(1), new_tokens(1)
    drafted = [[np.concatenate(part) for part in zip(*layer)]
               for layer in zip(first, second, wrong)]
    outs = run(runtime, [(sequence, 3, "decode")], drafted, kept=[2])
    assert len(sequence) == 22
    expected = [run(runtime, [other], tokens) for tokens in (first, second)]
    for layer, out in enumerate(outs):
        assert (out[0] == expected[0][layer][0]).all() and (out[1] == expected[1][layer][0]).all()
    following = new_tokens(1)
    for one, two in zip(run(runtime, [sequence], following), run(runtime, [other], following)):
        assert (one == two).all()


def test_lifetimes():
    runtime, other = open_runtime(), open_runtime()
    sequence = runtime.sequence()
    with expect(fasa.UsageError, "belongs to another runtime"):
        other.begin_step([sequence])
    with expect(fasa.UsageError, "belongs to another runtime"):
        other.read(sequence, 0)
    sequence.free()
    for call in (sequence.fork, sequence.free, lambda: len(sequence),
                 lambda: sequence.truncate(0), lambda: runtime.begin_step([sequence])):
        with expect(fasa.UsageError, "the sequence was freed"):
            call()
    alone = open_runtime().sequence()  # the sequence keeps its runtime alive
    gc.collect()
    assert len(alone) == 0
    with expect(fasa.UsageError, "fork at token 5; allowed: 0 to the sequence's length, 0"):
        alone.fork(5)
    with expect(fasa.UsageError, "a part of a step has the wrong type"):
        runtime.begin_step([3])
    with expect(fasa.UsageError, "end_step outside a step"):
        runtime.end_step()


def test_config_is_the_table_of_options():
    config = fasa.Config(fac_tokens=64, sinks=2, device_memory="6GiB")
    assert (config.fac_tokens, config.sinks, config.device_memory) == (64, 2, 6 << 30)
    assert fasa.Config(device_memory="1KiB").device_memory == 1 << 10
    config.fac_tokens = 0.5
    assert fasa.Config.from_toml(config.to_toml()) == config
    assert copy.deepcopy(config) == config and copy.copy(config) is not config
    flat = {}
    for key, value in config.to_dict().items():
        flat.update({f"{key}.{k}": v for k, v in value.items()}
                    if isinstance(value, dict) else {key: value})
    attributes = [name for name in dir(fasa.Config)
                  if isinstance(getattr(fasa.Config, name), property)]
    assert len(attributes) == len(flat)
    assert fasa.Config().low_bit_tokens == "auto"
    assert fasa.Config().low_bit_tokens_of(geometry()) == 1.0
    assert fasa.Config().fac_tokens_of(geometry()) == "320 to 1024"
    assert fasa.Config(slice="fine").fac_tokens_of(geometry()) == "128"
    assert fasa.Config(fac_tokens=0.5).fac_tokens_of(geometry()) == 0.5
    assert fasa.Config(slice="lean").low_bit_tokens_of(geometry()) == 0
    assert fasa.Config(low_bit_tokens=0.5).low_bit_tokens_of(geometry()) == 0.5
    low_bit = fasa.Config(low_bit_tokens=512, value_codes="int4")
    assert (low_bit.low_bit_tokens, low_bit.value_codes) == (512, "int4")
    assert fasa.Config.from_toml(low_bit.to_toml()) == low_bit
    with expect(fasa.UsageError,
                "selection.low_bit_tokens = 512: allowed: 0 with selection.kind = quest"):
        low_bit.selection = "quest"
    with expect(fasa.UsageError, "selection.fac_tokens = 3: allowed: at least"):
        config.fac_tokens = 3
    assert config.fac_tokens == 0.5
    with expect(fasa.UsageError, r"unknown option fac_token \(nearest: fac_tokens\)"):
        fasa.Config(fac_token=3)
    with pytest.raises(AttributeError):
        config.fac_token = 3
    with expect(fasa.UsageError, "config:2: selection.fac_tokens = 1"):
        fasa.Config.from_toml("[selection]\nfac_tokens = 1\n")
    with expect(fasa.UsageError, "the config file cannot be read"):
        fasa.Config.load("/nowhere.toml")


def test_config_sources(tmp_path, monkeypatch):
    file = tmp_path / "fasa.toml"
    file.write_text("[selection]\nsinks = 1\nrecent = 8\nfac_tokens = 99\n")
    monkeypatch.setenv("FASA_RECENT", "9")
    config = fasa.Config.load(str(file), fac_tokens=77)
    assert (config.sinks, config.recent, config.fac_tokens) == (1, 9, 77)
    assert fasa.Config.load(str(file), environment=False).recent == 8


def test_errors_are_one_small_hierarchy():
    for name in ("UsageError", "InputError", "BudgetError", "DeviceError"):
        assert issubclass(getattr(fasa, name), fasa.Error)
    assert issubclass(fasa.UsageError, ValueError) and issubclass(fasa.BudgetError, MemoryError)
    runtime = fasa.Runtime(geometry(), fasa.Config(device="emulated", device_memory="256KiB"))
    sequence = runtime.sequence()
    with pytest.raises(fasa.BudgetError) as caught:
        sequence.reserve(1 << 20)
    assert caught.value.limit == "device_memory"
    assert caught.value.asked_bytes > caught.value.capacity_bytes > 0
    assert len(sequence) == 0


def test_maps_and_plans():
    with expect(fasa.UsageError, "need an FC map"):
        open_runtime(slice="lean")
    made = fasa.calibrate(str(ROOT / "models/needle-3m"), tokens=512, queries=8)
    assert made.slice_dims(8).shape == (4, 2, 16)
    again = fasa.FcMap.from_json(made.to_json())  # the JSON form rounds
    assert again.to_json() == made.to_json() and again == fasa.FcMap.from_json(again.to_json())
    with expect(fasa.UsageError, "4 layers of 2 KV heads; expected 2 of 2"):
        fasa.Runtime(geometry(), fasa.Config(slice="lean"), fc_map=made)
    with expect(fasa.InputError, "/nowhere.json"):
        fasa.FcMap.load("/nowhere.json")
    plan = fasa.plan(geometry="Llama-3.1-8B", vram="16GiB", memory_bandwidth="300GB/s",
                     link_bandwidth="16GB/s", weight_bits=4)
    assert plan["recommended"]["toml"]
    with expect(fasa.UsageError, "model .* or geometry"):
        fasa.plan()


def test_slices_of_a_map_select_what_they_rank():
    keys, queries = RNG.standard_normal((64, DIM)), RNG.standard_normal((3, 2, DIM))
    keys[:, [3, 3 + DIM // 2]] *= 8  # one chunk dominates the scores
    queries[:, :, [3, 3 + DIM // 2]] *= 8
    ranking = fasa.rank_chunks(keys.astype(np.float32), queries.astype(np.float32), [40, 50, 63],
                               geometry().chunks, scale=DIM**-0.5, window=32)
    assert list(ranking.chunks[0]) == [3, 3 + DIM // 2]
    with expect(fasa.UsageError, "at positions within the keys"):
        fasa.rank_chunks(keys.astype(np.float32), queries.astype(np.float32), [40, 50, 64],
                         geometry().chunks, scale=1.0)


def test_the_stateless_api_gives_a_runtimes_bits():
    config = fasa.Config(fac_tokens=48)
    runtime = fasa.Runtime(geometry(), config, row_dtype="f32")
    sequence = runtime.sequence()
    prompt, new = new_tokens(200), new_tokens(1)
    run(runtime, [(sequence, 200)], prompt)
    wanted = run(runtime, [sequence], new)
    k, v = (np.concatenate([prompt[0][i], new[0][i]]).transpose(1, 0, 2)[None] for i in (0, 1))
    out = fasa.sparse_decode(new[0][2], k, v, geometry(), config)
    np.testing.assert_array_equal(out, wanted[0])
    k2, v2 = (np.concatenate([t, np.zeros_like(t)]) for t in (k, v))
    out = fasa.sparse_decode(np.concatenate([new[0][2]] * 2), k2, v2, geometry(), config,
                             lengths=[201, 7])
    np.testing.assert_array_equal(out[:1], wanted[0])
    with expect(fasa.UsageError, r"k must be a tensor \[batch, heads, tokens, dim\]"):
        fasa.sparse_decode(new[0][2], k[0], v, geometry(), config)


def test_the_stateless_api_knows_rows_in_eight_bits():
    config = fasa.Config(fac_tokens=48, row_dtype="int8")
    runtime = fasa.Runtime(geometry(), config)
    sequence = runtime.sequence()
    prompt, new = new_tokens(200), new_tokens(1)
    run(runtime, [(sequence, 200)], prompt)
    wanted = run(runtime, [sequence], new)
    k, v = (np.concatenate([prompt[0][i], new[0][i]]).transpose(1, 0, 2)[None] for i in (0, 1))
    np.testing.assert_array_equal(fasa.sparse_decode(new[0][2], k, v, geometry(), config),
                                  wanted[0])


def test_threads_take_turns():
    """Some threads run steps, one step at a time, while others create, query and drop sequences."""
    runtime = open_runtime(device="emulated")
    prompt, new = new_tokens(70), [new_tokens(1) for _ in range(10)]
    quiet = runtime.sequence()
    run(runtime, [(quiet, 70)], prompt)
    wanted = [run(runtime, [quiet], tokens) for tokens in new]
    steps = threading.Lock()
    errors, found, stepping = [], [], [3]

    def guarded(work):
        def body():
            try:
                work()
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        return body

    def step():
        try:
            sequence = runtime.sequence()
            outputs = []
            for tokens in [None, *new]:
                with steps:
                    outputs.append(run(runtime, [(sequence, 70)] if tokens is None else [sequence],
                                       tokens or prompt))
            found.append(outputs[1:])
        finally:
            stepping[0] -= 1

    def ask():
        while stepping[0] > 0:
            sequence = runtime.sequence()
            assert runtime.memory()["device_total"] > 0
            assert len(sequence) == 0
            del sequence

    threads = [threading.Thread(target=guarded(work)) for work in [step] * 3 + [ask] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found) == 3
    for outputs in found:
        np.testing.assert_array_equal(outputs, wanted)


def test_the_package_is_typed():
    folder = pathlib.Path(fasa.__file__).parent
    assert (folder / "py.typed").exists()
    for name in fasa.__all__:
        assert (getattr(fasa, name).__doc__ or "").strip() or name.startswith("Head"), name


@pytest.mark.parametrize("use, loaded", [("fasa.sparse_decode", False), ("fasa.plan", True)])
def test_models_code_is_loaded_when_it_is_used(use, loaded):
    program = f"import fasa; {use}; print('libdnnl' in open('/proc/self/maps').read())"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                             text=True).stdout
    assert printed.strip() == str(loaded)


class OnCuda:
    """Exports DLPack like a GPU tensor; its address is not valid."""

    class Managed(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                    ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                    ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, *shape):
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.managed = self.Managed(0x1000, 2, 0, len(shape), 2, 32, 1, self.shape)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                         ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), b"dltensor", None)


def test_tensors_of_a_gpu_are_refused():
    runtime = open_runtime()
    runtime.begin_step([runtime.sequence()])
    there, here = OnCuda(1, KV, DIM), tensor(1, KV)
    for k, v, name in ((there, here, "k"), (here, there, "v")):
        with pytest.raises(fasa.UsageError,
                           match=f"^{name} is in the memory of a GPU; expected "
                                                  "one in this process's host memory"):
            runtime.append(0, k, v)
