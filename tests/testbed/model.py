"""The model of a recipe, an instance of transformers' class, so that the exported model equals the
trained one."""
import torch
import transformers

from testbed import RecipeError, beginning

VOCABULARY = 256  # token id = byte


def config_of(recipe):
    fields = dict(recipe.model)
    kind = fields.pop("model_type")
    try:
        config = transformers.AutoConfig.for_model(
            kind, vocab_size=VOCABULARY, bos_token_id=None, eos_token_id=0, pad_token_id=0,
            **fields)
    except (ValueError, TypeError) as problem:
        raise RecipeError(f"recipe {recipe.name}: model: {problem}") from problem
    return config


def build(recipe):
    """A fresh model in f32, its weights drawn from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    model = transformers.AutoModelForCausalLM.from_config(config_of(recipe), dtype=torch.float32)
    _scale_outputs(model)
    if recipe.likeness:
        beginning.begin(model)
    return model


def _scale_outputs(model):
    """Scales projections into the residual stream down by their number."""
    layers = model.config.num_hidden_layers
    for name, parameter in model.named_parameters():
        if any(part in name for part in ("o_proj", "out_proj", "dense.", "down_proj", "4h_to_h")):
            parameter.data.mul_((2 * layers) ** -0.5)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def optimisers(model):
    """Muon for matrices between layers, AdamW for embeddings, norms and biases."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        embedding = any(part in name for part in ("embed", "wte", "lm_head"))
        (matrices if parameter.dim() == 2 and not embedding else others).append(parameter)
    # match_rms_adamw gives both optimisers the same scale of learning rates.
    return [torch.optim.Muon(matrices, lr=1e-3, weight_decay=0.05, momentum=0.95,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)]
