"""Text of the bundled model on fasa, all tokens selected, against transformers' own attention."""
import copy

import pytest
import torch
import transformers
from conftest import EVERYTHING

import fasa
import fasa.transformers

NEW = 16


def generate(model, ids, **options):
    options = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, **options}
    if not isinstance(ids, torch.Tensor):
        ids = torch.tensor([ids])
    options.setdefault("attention_mask", torch.ones_like(ids))
    return model.generate(ids, **options)


def cache(model, **options):
    return fasa.transformers.Cache(model, **{"fac_tokens": EVERYTHING, **options})


@pytest.mark.parametrize("tokens", [1, 63, 64, 700])
def test_greedy(plain, model, text_ids, tokens):
    ids = text_ids[:tokens]
    own = cache(model)
    assert torch.equal(generate(model, ids, past_key_values=own), generate(plain, ids))
    assert own.get_seq_length() == tokens + NEW - 1
    assert own.runtime.metrics()["decode_steps"] == NEW - 1


def test_tiers_give_the_same_text(plain, model, text_ids):
    ids = text_ids[:300]
    own = cache(model, preset="fasa-m", device="emulated", hot_rows=64)
    assert torch.equal(generate(model, ids, past_key_values=own), generate(plain, ids))
    assert own.runtime.memory()["host_rows"] > 0


def test_rows_in_eight_bits(model, text_ids):
    """The same text with rows in every tier, in half of the bytes."""
    ids = text_ids[:300]
    texts, sizes = [], []
    for options in ({"row_dtype": "int8"}, {"row_dtype": "int8", "preset": "fasa-c"},
                    {"row_dtype": "bf16"}):
        own = cache(model, **{"preset": "fasa-m", "device": "emulated", **options})
        texts.append(generate(model, ids, past_key_values=own))
        sizes.append(own.runtime.memory()["host_rows"])
    assert torch.equal(texts[0], texts[1])
    assert sizes[0] == sizes[2] / 2


def test_without_a_fasa_cache(plain, model, text_ids):
    ids = torch.tensor([text_ids[:200]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, plain(ids).logits)
    assert torch.equal(generate(model, ids), generate(plain, ids))
    assert torch.equal(generate(model, ids, cache_implementation="static"), generate(plain, ids))


def test_several_tokens_over_somebody_elses_past(plain, model, text_ids):
    ids = torch.tensor([text_ids[:200]])
    logits = []
    for one in (plain, model):
        own = transformers.DynamicCache(config=one.config)
        with torch.no_grad():
            one(ids[:, :150], past_key_values=own)
            logits.append(one(ids[:, 150:], past_key_values=own).logits)
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize("chunk", [1, 33, 64, 255])
def test_chunked_prefill_has_the_logits_of_one_piece(plain, model, text_ids, chunk):
    ids = torch.tensor([text_ids[:256]])
    with torch.no_grad():
        wanted = plain(ids).logits
        own = cache(model)
        found = [model(part, past_key_values=own).logits for part in ids.split(chunk, 1)]
    torch.testing.assert_close(torch.cat(found, 1), wanted, atol=1e-4, rtol=1e-4)


def test_a_last_chunk_of_one_token_is_no_decode_step(plain, model, text_ids):
    own = fasa.transformers.Cache(model, fac_tokens=32)
    generate(model, text_ids[:257], past_key_values=own, prefill_chunk_size=64, max_new_tokens=1)
    assert own.runtime.metrics()["decode_steps"] == 0
    ids = text_ids[:257]
    with torch.no_grad():
        wanted = plain(torch.tensor([ids])).logits[0, -1].argmax()
    again = fasa.transformers.Cache(model, fac_tokens=32)
    found = generate(model, ids, past_key_values=again, prefill_chunk_size=64, max_new_tokens=1)
    assert found[0, -1] == wanted


def left_padded(text_ids, lengths):
    width = max(lengths)
    ids = torch.zeros(len(lengths), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, width - length:] = torch.tensor(text_ids[row * 50:row * 50 + length])
        mask[row, width - length:] = 1
    return ids, mask


@pytest.mark.parametrize("options", [{}, {"prefill_chunk_size": 64}, {"num_beams": 3}])
def test_left_padding(plain, model, text_ids, options):
    ids, mask = left_padded(text_ids, [300, 131, 1])
    wanted = generate(plain, ids, attention_mask=mask, **options)
    found = generate(model, ids, attention_mask=mask, past_key_values=cache(model), **options)
    assert torch.equal(found, wanted)
    if not options:
        assert torch.equal(generate(model, ids, attention_mask=mask), wanted)


@pytest.mark.parametrize("options", [
    {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}, {"prompt_lookup_num_tokens": 4}])
def test_ways_of_decoding(plain, model, text_ids, options):
    ids = text_ids[:400]
    wanted = generate(plain, ids, **options)
    assert torch.equal(generate(model, ids, past_key_values=cache(model), **options), wanted)


def test_assisted(plain, model, text_ids):
    ids = text_ids[:200]
    plain.generation_config.num_assistant_tokens = 3
    options = {"assistant_model": plain}
    if "tokens_to_remove" not in transformers.DynamicCache.crop.__code__.co_varnames:
        pytest.skip("this release's assistant runs on to the model's last position")
    wanted = generate(plain, ids, **options)
    assert torch.equal(generate(model, ids, past_key_values=cache(model), **options), wanted)


def test_sampling(plain, model, text_ids):
    texts = []
    for one in (plain, model):
        torch.manual_seed(3)
        own = {"past_key_values": cache(model)} if one is model else {}
        texts.append(generate(one, text_ids[:200], do_sample=True, num_return_sequences=3, **own))
    assert torch.equal(*texts)


@pytest.mark.parametrize("chunk", [None, 32])
def test_continued_conversation_and_its_copy(plain, model, text_ids, chunk):
    turns = [text_ids[:150], text_ids[400:460]]
    texts = []
    for one in (plain, model):
        own = cache(one) if one is model else transformers.DynamicCache(config=one.config)
        options = {"prefill_chunk_size": chunk} if one is model and chunk else {}
        first = generate(one, turns[0], past_key_values=own, **options)
        twin = copy.deepcopy(own)
        second = torch.cat([first, torch.tensor([turns[1]])], dim=1)
        texts.append([generate(one, second, past_key_values=c, **options) for c in (own, twin)])
    assert torch.equal(texts[1][0], texts[0][0])
    assert torch.equal(texts[1][1], texts[0][0])


def test_few_tokens_still_answer(model):
    """Sparse attention differs from exact attention and still finds a planted fact."""
    import json

    from conftest import ROOT

    facts = json.loads((ROOT / "models/texts/facts-1k.json").read_text())
    question = facts["questions"][0]
    prompt = list((facts["text"] + question["prompt_suffix"]).encode())
    own = fasa.transformers.Cache(model, fac_tokens=128)
    found = generate(model, prompt, past_key_values=own, max_new_tokens=6)
    assert bytes(found[0, len(prompt):].tolist()).decode().startswith(question["answer"])
    assert own.runtime.metrics()["decode_steps"] == 5


def test_half_precision(plain, model, text_ids):
    ids = torch.tensor([text_ids[:300]])
    with torch.no_grad():
        wanted = plain(ids).logits[0, -1]
        half = copy.deepcopy(model).to(torch.bfloat16)
        own = cache(half)
        half(ids[:, :-1], past_key_values=own)
        found = half(ids[:, -1:], past_key_values=own).logits[0, -1]
    # bf16 has 8 significant bits: logits of magnitude 10 after 4 layers.
    torch.testing.assert_close(found.float(), wanted, atol=0.5, rtol=0.1)
