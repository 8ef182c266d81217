"""The contract of fasa's cache for transformers: behaviour for callers, effect of enable(),
errors."""
import copy
import weakref

import pytest
import torch
import transformers
from conftest import EVERYTHING
from transformers import cache_utils

import fasa
import fasa.transformers

TAKES_LENGTH = "max_length" in cache_utils.DynamicLayer.crop.__code__.co_varnames


def cache(model, **options):
    return fasa.transformers.Cache(model, **{"fac_tokens": EVERYTHING, **options})


def forward(model, ids, own, **options):
    with torch.no_grad():
        return model(torch.tensor(ids), past_key_values=own, **options).logits


def logits_after(model, own, rows):
    """The logits after one more token in every row."""
    return forward(model, [[65]] * rows, own)


def same(model, plain, mine, theirs, rows):
    torch.testing.assert_close(logits_after(model, mine, rows), logits_after(plain, theirs, rows),
                               atol=1e-4, rtol=1e-4)


@pytest.fixture
def pair(plain, model, text_ids):
    """Caches of transformers and of fasa, over the same two rows of 100 tokens."""
    mine, theirs = cache(model), transformers.DynamicCache(config=plain.config)
    rows = [text_ids[:100], text_ids[200:300]]
    forward(model, rows, mine)
    forward(plain, rows, theirs)
    return mine, theirs


@pytest.mark.parametrize("action", [
    lambda c: c.reorder_cache(torch.tensor([1, 1])),
    lambda c: c.reorder_cache(torch.tensor([1, 0])),
    lambda c: c.crop(-30),
    lambda c: c.batch_select_indices(torch.tensor([1, 0])),
], ids=["reorder", "swap", "crop", "select"])
def test_methods_do_what_a_dynamic_cache_does(plain, model, pair, action):
    mine, theirs = pair
    for one in pair:
        action(one)
    assert mine.get_seq_length() == theirs.get_seq_length()
    same(model, plain, mine, theirs, 2)


def test_rows_multiply(plain, model, pair):
    mine, theirs = pair
    for one in pair:
        one.batch_repeat_interleave(2)
        one.batch_select_indices(torch.tensor([0, 3, 2]))
    same(model, plain, mine, theirs, 3)


def test_crop_of_nothing(plain, model, pair):
    mine, theirs = pair
    for one in pair:
        one.crop(0)
    assert mine.get_seq_length() == theirs.get_seq_length() == (0 if TAKES_LENGTH else 100)
    if TAKES_LENGTH:
        mine.crop(7)
    else:
        with pytest.raises(ValueError, match="negative"):
            mine.crop(7)


def test_copy_reset_and_the_rest(plain, model, pair, text_ids):
    mine, theirs = pair
    twin = copy.deepcopy(mine)
    mine.reset()
    assert (mine.get_seq_length(), twin.get_seq_length()) == (0, 100)
    same(model, plain, twin, theirs, 2)
    forward(model, [text_ids[:10]], mine)  # another batch
    assert mine.get_seq_length() == 10
    assert not any(mine.is_sliding) and not mine.is_compileable and len(mine) == 4
    assert mine.get_mask_sizes(3, 0) == (13, 0)
    for layer in mine.layers:
        layer.offload()
        layer.prefetch()
    held = weakref.ref(twin.session)
    del twin
    assert held() is None  # memory is freed at once, without the garbage collector


def test_an_interrupted_forward_leaves_the_cache_as_it_was(plain, model, pair):
    mine, theirs = pair

    def fail(*_):
        raise RuntimeError("interrupted")

    hook = model.model.layers[2].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="interrupted"):
        logits_after(model, mine, 2)
    hook.remove()
    assert mine.get_seq_length() == 100
    same(model, plain, mine, theirs, 2)


@pytest.mark.parametrize("past", [0, 60])
def test_masks_of_the_callers_own(plain, model, text_ids, past):
    new, rows = 40, [text_ids[:100]]
    torch.manual_seed(0)
    mask = torch.ones(1, 1, new, past + new, dtype=torch.bool).tril(past)
    mask &= (torch.rand(mask.shape) < 0.7) | torch.eye(new, past + new).roll(past, 1).bool()
    found = []
    for one, own in ((plain, transformers.DynamicCache(config=plain.config)),
                     (model, cache(model))):
        if past:
            forward(one, [rows[0][:past]], own)
        positions = torch.arange(past, past + new)[None]
        found.append(forward(one, [rows[0][past:past + new]], own, attention_mask=mask,
                             position_ids=positions))
        found.append(logits_after(one, own, 1))
    torch.testing.assert_close(found[2], found[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[3], found[1], atol=1e-4, rtol=1e-4)


def test_enable_and_disable(plain, text_ids):
    model = copy.deepcopy(plain)
    ids = torch.tensor([text_ids[:300]])
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0,
                   attention_mask=torch.ones_like(ids))
    wanted = plain.generate(ids, **options)
    assert fasa.transformers.enable(model, fac_tokens=EVERYTHING, prefill_chunk_size=64) is model
    found = model.generate(ids, return_dict_in_generate=True, **options)
    assert torch.equal(found.sequences, wanted)
    assert isinstance(found.past_key_values, fasa.transformers.Cache)
    without = model.generate(ids, use_cache=False, **{**options, "max_new_tokens": 2})
    assert without.shape == (1, 302)
    if not TAKES_LENGTH:
        assert torch.equal(without, wanted[:, :302])
    for name in ("generate_batch", "init_continuous_batching"):
        with pytest.raises(fasa.UsageError, match=f"{name} uses transformers' paged cache"):
            getattr(model, name)([[1, 2]])
    fasa.transformers.disable(model)
    assert model.config._attn_implementation == "sdpa"
    assert model.generation_config.prefill_chunk_size is None
    found = model.generate(ids, return_dict_in_generate=True, **options)
    assert torch.equal(found.sequences, wanted)
    assert not isinstance(found.past_key_values, fasa.transformers.Cache)


def refused(*words):
    return pytest.raises(fasa.UsageError, match="(?s)" + ".*".join(words))


def test_other_attention_over_a_fasa_cache(plain, model, text_ids):
    own = cache(plain)
    for name in ("sdpa", "eager"):
        other = copy.deepcopy(plain)
        other.set_attn_implementation(name)
        with refused("keys that fasa stores", 'attn_implementation="fasa"'):
            forward(other, [text_ids[:10]], cache(other))
    with refused("made for another model"):
        forward(model, [text_ids[:10]], own)


def test_refusals_by_name(model, text_ids):
    attention = model.model.layers[0].self_attn
    q, k = torch.zeros(1, 4, 1, 64), torch.zeros(1, 2, 1, 64)
    call = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["fasa"]
    with refused("does not support softcap together with s_aux"):
        call(attention, q, k, k, None, softcap=30.0, s_aux=torch.ones(4))
    own = cache(model)
    handles = own.update(k, k, 0)
    with refused("does not support position_bias"):
        call(attention, q, *handles, None, position_bias=torch.ones(1))
    with refused("dropout = 0.1"):
        call(attention, q, *handles, None, dropout=0.1)
    with refused("causal attention only"):
        call(attention, q, *handles, None, is_causal=False)
    with refused("float64"):
        call(attention, q.double(), *handles, None)
    with refused("attention without new keys"):
        call(attention, q, *handles, None)


def test_bad_calls(plain, model, text_ids):
    with refused(r"unknown option fac_token \(nearest: fac_tokens\)"):
        cache(model, fac_token=3)
    with refused("selection.fac_tokens = 3"):
        fasa.transformers.enable(copy.deepcopy(plain), fac_tokens=3)
    with refused("the config file cannot be read"):
        fasa.transformers.Cache(model, config="/nowhere.toml")
    own = cache(model)
    forward(model, [text_ids[:10]], own)
    with refused("2 rows for a cache of 1"):
        forward(model, [[1], [2]], own)
    with refused("attention_mask has 3 tokens; expected 12"):
        forward(model, [[1, 2]], own, attention_mask=torch.tensor([[0, 1, 1]]))
    assert own.get_seq_length() == 10
    model.train()
    try:
        with refused("inference only"):
            forward(model, [[1]], own)
    finally:
        model.eval()


def test_a_config_of_its_own_file(model, text_ids, tmp_path):
    file = tmp_path / "fasa.toml"
    file.write_text('preset = "full"\n[device]\nname = "emulated"\n')
    own = fasa.transformers.Cache(model, config=str(file), sinks=2)
    forward(model, [text_ids[:10]], own)
    assert own.runtime.device == "emulated"
    assert own.session.settings.sinks == 2
