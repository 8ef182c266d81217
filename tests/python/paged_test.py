"""fasa.Paged: pages whose ids the caller owns. The bits are those of the sequences API."""
import threading

import numpy as np
import pytest

import fasa

LAYERS, KV, QUERY, DIM, PAGE = 2, 2, 4, 32, 64
RNG = np.random.default_rng(11)
GEOMETRY = fasa.Geometry(layers=LAYERS, kv_heads=KV, query_heads=QUERY, head_dim=DIM)
CONFIG = {"fac_tokens": 48, "sinks": 3, "recent": 5}


def open_pages(**changes):
    options = {key: changes.pop(key) for key in list(changes) if key in ("device", "selection")}
    given = {"num_pages": 8, "row_dtype": "f32", **changes}
    return fasa.Paged(GEOMETRY, fasa.Config(**{**CONFIG, **options}), **given)


def tokens(count):
    """k, v and q of each layer."""
    def tensor(heads):
        return RNG.standard_normal((count, heads, DIM)).astype(np.float32)
    return [(tensor(KV), tensor(KV), tensor(QUERY)) for _ in range(LAYERS)]


def slots_of(pages, first, count):
    return np.array([pages[i // PAGE] * PAGE + i % PAGE for i in range(first, first + count)],
                    dtype=np.int64)


def table_of(*rows):
    width = max(map(len, rows))
    return np.array([list(row) + [-1] * (width - len(row)) for row in rows], dtype=np.int32)


def i32(*values):
    return np.array(values, dtype=np.int32)


def of_sequences(new, prompt, device="cpu"):
    """The same tokens through fasa.Runtime: a prompt, then decodes; outputs [layer][token]."""
    runtime = fasa.Runtime(GEOMETRY, fasa.Config(**CONFIG, device=device), row_dtype="f32")
    sequence = runtime.sequence()
    outs = [[] for _ in range(LAYERS)]
    total = len(new[0][0])
    for first, count in [(0, prompt)] + [(i, 1) for i in range(prompt, total)]:
        mode = "prefill" if first == 0 else "decode"
        runtime.begin_step([(sequence, count, mode)])
        for layer, (k, v, q) in enumerate(new):
            part = slice(first, first + count)
            runtime.append(layer, k[part], v[part])
            outs[layer].append(runtime.attend(layer, q[part]))
        runtime.end_step()
    return [np.concatenate(parts) for parts in outs]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_the_bits_of_sequences(device):
    new, pages, prompt = tokens(200), [5, 0, 7, 2], 190
    expected = of_sequences(new, prompt, device)
    paged = open_pages(device=device)
    table = table_of(pages)
    for layer, (k, v, q) in enumerate(new):
        for first, count in [(0, 70), (70, 1), (71, 119)]:
            part = slice(first, first + count)
            paged.append(layer, k[part], v[part], slots_of(pages, first, count))
            out = paged.prefill(layer, q[part], table, i32(first + count), i32(count))
            np.testing.assert_array_equal(out, expected[layer][part])
        for at in range(prompt, 200):
            paged.append(layer, k[at:at + 1], v[at:at + 1], slots_of(pages, at, 1))
            out, lse = paged.attend(layer, q[at:at + 1], table, i32(at + 1), lse=True)
            np.testing.assert_array_equal(out[0], expected[layer][at])
            assert lse.shape == (1, QUERY)
    assert paged.metrics()["decode_steps"] == 10
    assert paged.memory()["device_slices"] > 0


def test_sequences_of_a_step_share_pages():
    """In one layer of one step, a sequence reads pages that another sequence writes."""
    new, prefix = tokens(150), [3, 4]
    rest = tokens(20)
    expected = of_sequences([tuple(np.concatenate([a[:128], b]) for a, b in zip(x, y))
                             for x, y in zip(new, rest)], 148)
    first = of_sequences(new, 150)
    paged = open_pages()
    table = table_of(prefix + [1], prefix + [6])
    for layer in range(LAYERS):
        k, v, q = (np.concatenate([a, b]) for a, b in zip(new[layer], rest[layer]))
        slots = np.concatenate([slots_of(prefix + [1], 0, 150), slots_of(prefix + [6], 128, 20)])
        paged.append(layer, k, v, slots)
        out = paged.prefill(layer, q, table, i32(150, 148), i32(150, 20))
        np.testing.assert_array_equal(out[:150], first[layer])
        np.testing.assert_array_equal(out[150:], expected[layer][128:])


def test_pages():
    paged = open_pages()
    (k, v, _), pages = tokens(70)[0], [2, 6]
    for layer in range(LAYERS):
        paged.append(layer, k, v, slots_of(pages, 0, 70))
    assert [paged.held(page, 1) for page in (2, 6, 0)] == [64, 6, 0]
    keys, values = paged.read(6, 0)
    np.testing.assert_array_equal(keys, k[64:])
    np.testing.assert_array_equal(values, v[64:])
    np.testing.assert_array_equal(paged.read(2, 0, 10, 5)[0], k[10:15])
    paged.copy_pages([(6, 0)])
    np.testing.assert_array_equal(paged.read(0, 1)[0], k[64:])
    paged.drop_pages([6])
    assert paged.held(6, 0) == 0
    with pytest.raises(fasa.UsageError, match="holds 0 tokens"):
        paged.attend(0, np.zeros((1, QUERY, DIM), np.float32), table_of(pages), i32(70))
    assert (paged.page_size, paged.num_pages, paged.geometry.kv_heads) == (64, 8, KV)


def test_a_part_of_the_model():
    """One layer and one head give their part of the whole model's bits."""
    new, pages = tokens(100), [0, 1]
    whole = of_sequences(new, 99)
    paged = open_pages(layers=(1, 1), kv_heads=(1, 1))
    assert (paged.geometry.layers, paged.geometry.kv_heads, paged.geometry.query_heads) == (1, 1, 2)
    k, v, q = (t[:, t.shape[1] // 2:] for t in new[1])
    paged.append(0, k, v, slots_of(pages, 0, 100))
    out = paged.attend(0, q[99:], table_of(pages), i32(100))
    np.testing.assert_array_equal(out[0], whole[1][99, 2:])
    with pytest.raises(fasa.UsageError, match="layers from 2"):
        open_pages(layers=(2, 1))


def test_sizes():
    paged = open_pages()
    sizes = fasa.Paged.sizes(GEOMETRY, fasa.Config(**CONFIG), row_dtype="f32", max_sequences=4,
                             max_context=512, step_tokens=128)
    assert paged.memory()["device_rows"] == 8 * sizes["page"]["device_rows"] > 0
    assert sizes["fixed"]["device_total"] > 0


def test_what_is_refused():
    paged = open_pages()
    (k, v, q), _ = tokens(2)
    slots = slots_of([0], 0, 2)
    with pytest.raises(fasa.UsageError, match="slots has the wrong .* contiguous int64"):
        paged.append(0, k, v, slots.astype(np.int32))
    paged.append(0, k, v, slots)
    with pytest.raises(fasa.UsageError, match="block_table has the wrong .* int32"):
        paged.attend(0, q[:1], [[0]], i32(2))
    with pytest.raises(fasa.UsageError, match="seq_lens has the wrong .* contiguous int32"):
        paged.attend(0, q[:1], table_of([0]), np.array([2]))
    with pytest.raises(fasa.UsageError, match=r"query_lens\[0\] = 3"):
        paged.prefill(0, q, table_of([0]), i32(2), i32(3))
    with pytest.raises(fasa.UsageError, match="num_pages = 0"):
        open_pages(num_pages=0)
    with pytest.raises(fasa.UsageError, match="out is read-only"):
        out = np.zeros((1, QUERY, DIM), np.float32)
        out.flags.writeable = False
        paged.attend(0, q[:1], table_of([0]), i32(2), out)


def test_other_threads_run_on():
    """Calls release the interpreter's lock: many run at once, each with its own results."""
    paged = open_pages(num_pages=40)
    new = tokens(300)[0]
    expected = {}
    def work(number):
        pages = [number * 5 + i for i in range(5)]
        paged.append(0, new[0], new[1], slots_of(pages, 0, 300))
        expected[number] = paged.prefill(0, new[2], table_of(pages), i32(300), i32(300))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(1, 8):
        np.testing.assert_array_equal(expected[number], expected[0])
