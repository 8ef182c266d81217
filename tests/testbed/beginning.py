"""Initial weights of a model. From random weights, a small model spends most of its training on
learning to look one token back and to match a question's key with a fact's. These weights start
close to that:

- queries and keys are similar, and outputs are the transposes of values, so that a head attends to
  tokens similar to its own and writes a copy of them (after mimetic initialisation, Trockman and
  Kolter, arXiv 2305.09828);
- with rotary positions, head h of the first layer looks back h + 1 tokens. With ALiBi the biases
  have that effect."""
import dataclasses

import torch

EMBEDDING = 0.1   # standard deviation, also of the component that all bytes share
LIKENESS = 1.4    # scale of queries and keys: for a unit input, times 1 / sqrt(hidden)
COPY = 0.1        # scale of a head's output
LOOK_BACK = 7.0   # scale of a rotated pair: one token gets most of the attention


@dataclasses.dataclass
class Attention:
    """Views of one layer's weights, [heads x head_dim, hidden]; output [hidden, heads x
    head_dim]."""
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor


def attention_layers(model):
    """Attention layers with separate or stacked (mpt) queries, keys and values; [] for other
    models."""
    layers = []
    for module in model.modules():
        if hasattr(module, "q_proj"):
            output = module.o_proj if hasattr(module, "o_proj") else module.dense
            layers.append(Attention(module.q_proj.weight.data, module.k_proj.weight.data,
                                    module.v_proj.weight.data, output.weight.data))
        elif hasattr(module, "Wqkv"):
            layers.append(Attention(*module.Wqkv.weight.data.chunk(3), module.out_proj.weight.data))
    return layers


def _rotated_pairs(config, head_dim):
    """The two dimensions of each rotated pair, and its radians per token. Empty without
    rotation."""
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        return [], []
    dims = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    interleaved = config.model_type == "ernie4_5"
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + dims // 2) for i in range(dims // 2)]
    return pairs, [rope["rope_theta"] ** (-2 * i / dims) for i in range(dims // 2)]


def _look_back(layer, config, heads, shared):
    """Makes head h look back h + 1 tokens: a query of (1, 0) and a rotated key score highest at
    that distance. Uses the faster half of the pairs: the others hardly distinguish neighbours."""
    head_dim = len(layer.query) // heads
    pairs, radians = _rotated_pairs(config, head_dim)
    for head in range(heads if pairs else 0):
        for (first, second), angle in list(zip(pairs, radians))[:len(pairs) // 2]:
            turn = torch.tensor((head + 1) * angle)
            row = head * head_dim
            strength = LOOK_BACK * shared / len(shared)
            layer.query[row + first] = strength
            layer.query[row + second] = 0
            layer.key[row + first] = strength * turn.cos()
            layer.key[row + second] = strength * turn.sin()


def begin(model):
    """Sets the weights of models with as many key heads as query heads; leaves others unchanged."""
    layers = attention_layers(model)
    if not layers or layers[0].key.shape != layers[0].query.shape:
        return
    heads = model.config.num_attention_heads
    embeddings = model.get_input_embeddings().weight.data
    hidden = embeddings.shape[1]
    # The mean is zero because a LayerNorm removes the mean.
    shared = torch.tensor([1.0, -1.0]).repeat(hidden // 2)
    embeddings.normal_(0, EMBEDDING).add_(EMBEDDING * shared)
    for index, layer in enumerate(layers):
        layer.query.normal_(0, LIKENESS * hidden**-0.5)
        layer.key.copy_(layer.query)
        if index == 0:
            layer.query.mul_(0.1)
            layer.key.mul_(0.1)
            _look_back(layer, model.config, heads, shared)
        layer.value.normal_(0, hidden**-0.5)
        layer.output.copy_(COPY * layer.value.T)
