"""Other model families: windows, other rotary layouts or none, quantised weights."""
import copy
import json

import pytest
import torch
import transformers
from conftest import EVERYTHING, MODEL

import fasa
import fasa.transformers

SMALL = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
             pad_token_id=0, bos_token_id=1, eos_token_id=None)


def small(kind, **changes):
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def generate(model, own=None, tokens=150):
    torch.manual_seed(2)
    ids = torch.randint(1, 97, (2, tokens))
    mask = torch.ones_like(ids)
    mask[1, :20] = 0
    given = {} if own is None else {"past_key_values": own}
    return model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False,
                          pad_token_id=0, **given)


def on_fasa(model, **options):
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("fasa")
    return twin, fasa.transformers.Cache(twin, **{"fac_tokens": EVERYTHING, **options})


@pytest.mark.parametrize("kind,changes", [
    ("Mistral", {"sliding_window": None}),
    ("Qwen3", {}),
    ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    ("Mixtral", {"num_local_experts": 4, "sliding_window": None}),
    ("Phi", {"partial_rotary_factor": 0.5}),
    ("Cohere", {}),  # interleaved
    ("Glm", {"partial_rotary_factor": 0.5}),  # interleaved, partial
], ids=lambda value: value if isinstance(value, str) else "")
def test_families(kind, changes):
    model = small(kind, **changes)
    twin, own = on_fasa(model)
    assert torch.equal(generate(twin, own), generate(model))
    geometry = own.runtime.geometry
    assert geometry.rotary_dims == (8 if changes.get("partial_rotary_factor") else 16)
    pairs = geometry.chunks
    assert pairs[0] == ((0, 1) if kind in ("Cohere", "Glm") else (0, geometry.rotary_dims // 2))


LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.0, 1.5, 1.5, 2.0, 2.0], "long_factor": [2.0, 2.0, 3.0, 3.0, 4.0, 4.0]}


@pytest.mark.parametrize("kind,changes", [
    ("Granite", {"attention_multiplier": 0.2, "residual_multiplier": 0.5}),
    ("Olmo2", {}),
    ("SmolLM3", {"no_rope_layer_interval": 2}),
    ("Phi3", {"original_max_position_embeddings": 512, "rope_parameters": LONG_ROPE}),
    ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32,
                "layer_types": ["sliding_attention", "full_attention"] * 2}),
    ("Gemma2", {"sliding_window": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 1.5,
                "layer_types": ["sliding_attention", "full_attention"] * 2}),
    ("Gemma3", {"sliding_window": 32, "query_pre_attn_scalar": 24, "layer_types": [
        "sliding_attention", "full_attention"] * 2}),
], ids=lambda value: value if isinstance(value, str) else "")
def test_families_of_the_runner(kind, changes, tmp_path):
    """The text on fasa equals transformers' own, and the fingerprint equals that of the runner's
    maps."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{'Gemma3Text' if kind == 'Gemma3' else kind}Config")
    model = getattr(transformers, f"{kind}ForCausalLM")(
        config(**{**SMALL, "vocab_size": 256, **changes})).eval()
    twin, own = on_fasa(model)
    assert torch.equal(generate(twin, own), generate(model))
    assert own.runtime.geometry.layers == (2 if kind in ("Gemma2", "Gemma3", "GptOss") else 4)
    model.save_pretrained(tmp_path)
    texts = tmp_path / "text.txt"
    texts.write_text(" ".join(str(i % 256) for i in range(512)))
    native = fasa.calibrate(str(tmp_path), [str(texts)], tokens=256, queries=4, window=64,
                            probes=False)
    assert fasa.transformers.fingerprint(model) == native.fingerprint


# The third of four layers has full attention.
LINEAR = dict(layer_types=["linear_attention", "linear_attention", "full_attention",
                           "linear_attention"],
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
              linear_value_head_dim=12)
MIXED = dict(layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=32)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
               shared_expert_intermediate_size=24)


@pytest.mark.parametrize("kind,layers,changes", [
    ("Qwen3_5", 1, LINEAR),
    ("Qwen3_5Moe", 1, {**LINEAR, **EXPERTS}),
    ("Qwen3Next", 1, {**LINEAR, **EXPERTS}),
    ("GraniteMoeHybrid", 1, dict(layer_types=["mamba", "mamba", "attention", "mamba"],
                                 num_local_experts=4, num_experts_per_tok=2,
                                 shared_intermediate_size=48, mamba_n_heads=8, mamba_d_head=16,
                                 mamba_d_state=16, mamba_n_groups=1)),
    ("Gemma4", 2, dict(MIXED, global_head_dim=32, hidden_size_per_layer_input=8,
                       vocab_size_per_layer_input=97, num_kv_shared_layers=0)),
    ("Ministral3", 4, {}),
    ("Olmo3", 2, MIXED),
    ("Glm4", 4, {}),
    ("SeedOss", 4, {}),
    ("Exaone4", 2, MIXED),
    ("Cohere2", 2, MIXED),
    ("Starcoder2", 4, {}),
    ("Qwen2Moe", 4, EXPERTS),
], ids=lambda value: value if isinstance(value, str) else "")
def test_families_of_2026(kind, layers, changes):
    config = next((name for name in (f"{kind}TextConfig", f"{kind}Config")
                   if hasattr(transformers, name)), None)
    if config is None:
        pytest.skip(f"this transformers has no {kind}")
    torch.manual_seed(1)
    model = getattr(transformers, f"{kind}ForCausalLM")(
        getattr(transformers, config)(**{**SMALL, **changes})).eval()
    twin, own = on_fasa(model)
    assert torch.equal(generate(twin, own), generate(model))
    assert own.runtime.geometry.layers == layers


def test_a_rotation_that_changes_on_the_way_is_refused():
    phi = small("Phi3", original_max_position_embeddings=64, rope_parameters=dict(LONG_ROPE))
    with pytest.raises(fasa.UsageError, match="phi3: rope_type = longrope beyond .* = 64"):
        on_fasa(phi)
    fasa.transformers.fingerprint(phi)


@pytest.mark.parametrize("kinds", [["full_attention"] * 4,
                                   ["sliding_attention", "full_attention"] * 2],
                         ids=["full", "mixed"])
def test_capped_scores(kinds):
    """Soft caps that change scores, in fasa's layers and in those that keep transformers' cache."""
    gemma = small("Gemma2", query_pre_attn_scalar=1, layer_types=kinds, sliding_window=32,
                  attn_logit_softcapping=0.5)
    gemma.set_attn_implementation("eager")
    for layer in gemma.model.layers:
        layer.self_attn.q_proj.weight.data *= 20
    twin, own = on_fasa(gemma)
    assert torch.equal(generate(twin, own), generate(gemma))
    assert own.runtime.geometry.score_cap == 0.5
    ids = torch.randint(1, 97, (2, 60))
    with torch.no_grad():
        expected = gemma(ids).logits
        torch.testing.assert_close(twin(ids, use_cache=False).logits, expected,
                                   rtol=1e-4, atol=1e-4)
        other = fasa.transformers.Cache(twin, fac_tokens=EVERYTHING)
        torch.testing.assert_close(twin(ids, past_key_values=other).logits, expected,
                                   rtol=1e-4, atol=1e-4)
        left = torch.ones_like(ids)
        left[0, :7] = 0  # padding
        torch.testing.assert_close(
            twin(ids, attention_mask=left, past_key_values=fasa.transformers.Cache(
                twin, fac_tokens=EVERYTHING)).logits[:, 7:],
            gemma(ids, attention_mask=left).logits[:, 7:], rtol=1e-4, atol=1e-4)
        for layer in gemma.model.layers:
            layer.self_attn.attn_logit_softcapping = None
        assert (gemma(ids).logits - expected).abs().max() > 1e-2


def test_layers_with_caps_of_their_own_are_refused():
    gemma = small("Gemma2", layer_types=["full_attention"] * 4)
    twin, own = on_fasa(gemma)
    twin.model.layers[2].self_attn.attn_logit_softcapping = 7.0
    with pytest.raises(fasa.UsageError, match="layer 2: softcap = 7.0, but 50.0 in the first"):
        generate(twin, own)


@pytest.mark.parametrize("kinds", [["full_attention"] * 4,
                                   ["sliding_attention", "full_attention"] * 2],
                         ids=["full", "mixed"])
def test_logits_beside_the_tokens(kinds):
    """Attention sinks in fasa's layers and in transformers' own; larger sinks take more of every
    softmax."""
    gpt = small("GptOss", num_local_experts=4, num_experts_per_tok=2, layer_types=kinds,
                sliding_window=32)
    gpt.set_attn_implementation("eager")
    for scale in (0.0, 3.0):
        for layer in gpt.model.layers:
            layer.self_attn.sinks.data = scale + torch.randn(4)
        twin, own = on_fasa(gpt)
        assert torch.equal(generate(twin, own), generate(gpt))
        ids = torch.randint(1, 97, (2, 60))
        with torch.no_grad():  # without fasa's cache, and with it
            expected = gpt(ids).logits
            torch.testing.assert_close(twin(ids, use_cache=False).logits, expected,
                                   rtol=1e-4, atol=1e-4)
            other = fasa.transformers.Cache(twin, fac_tokens=EVERYTHING)
            torch.testing.assert_close(twin(ids, past_key_values=other).logits, expected,
                                       rtol=1e-4, atol=1e-4)


def test_windowed_layers_stay_transformers_own():
    kinds = ["sliding_attention", "full_attention"] * 2
    model = small("Qwen2", layer_types=kinds, use_sliding_window=True, sliding_window=32,
                  max_window_layers=0)
    twin, own = on_fasa(model)
    assert [type(layer).__name__ for layer in own.layers] == [
        "DynamicSlidingWindowLayer", "FasaLayer"] * 2
    assert torch.equal(generate(twin, own), generate(model))
    assert own.runtime.geometry.layers == 2


def test_nothing_to_do():
    with pytest.raises(fasa.UsageError, match="none of its 4 layers is full attention"):
        on_fasa(small("Mistral", sliding_window=4096))
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=97, n_embd=32, n_layer=2, n_head=2)).eval()
    with pytest.raises(fasa.UsageError):
        gpt.set_attn_implementation("fasa")
        generate(gpt, fasa.transformers.Cache(gpt))


def test_without_a_word_on_rotation():
    twin, own = on_fasa(small("Llama"))
    twin.config.rope_parameters = None
    with pytest.raises(fasa.UsageError, match="rope_parameters = None"):
        generate(twin, own)


def test_quantised_weights():
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig

    loader = transformers.TorchAoConfig(Int8WeightOnlyConfig())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        MODEL, dtype=torch.float32, quantization_config=loader).eval()
    ids = torch.tensor([list(b"And it came to pass in the days when the judges ruled, " * 4)])
    options = dict(attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
                   pad_token_id=0)
    wanted = model.generate(ids, **options)
    model.set_attn_implementation("fasa")
    own = fasa.transformers.Cache(model, fac_tokens=EVERYTHING)
    found = model.generate(ids, past_key_values=own, **options)
    assert type(model.model.layers[0].self_attn.k_proj.weight).__name__ != "Parameter"
    assert torch.equal(found, wanted)


def test_calibration_through_transformers(model, text_ids, tmp_path):
    """The map made from a transformers model equals the one that fasa's own runner makes."""
    texts = tmp_path / "text.txt"
    texts.write_bytes(bytes(text_ids[:1500]))
    options = dict(tokens=1024, queries=12, window=64)
    native = fasa.calibrate(str(MODEL), [str(texts)], **options)
    made = fasa.transformers.calibrate(model, text_ids[:1024], **options)
    assert made.fingerprint == native.fingerprint
    assert made.data_hash == native.data_hash
    same = [a.chunks[:4] == b.chunks[:4]
            for mine, theirs in zip(made.heads, native.heads) for a, b in zip(mine, theirs)]
    # Weights and activations are f32 on both sides; sums in another order may swap near ties.
    assert sum(same) >= len(same) - 1
    assert json.loads(made.to_json())["schema"] == 2
    own = fasa.transformers.Cache(model, fc_map=made, slice="lean", fac_tokens=64)
    ids = torch.tensor([text_ids[:300]])
    with torch.no_grad():
        model(ids, past_key_values=own)
        assert model(ids[:, :1], past_key_values=own).logits.isfinite().all()
    other = small("Llama")
    other.set_attn_implementation("fasa")
    own = fasa.transformers.Cache(other, fc_map=made, slice="lean", fac_tokens=64)
    with pytest.raises(fasa.InputError):
        generate(other, own)
