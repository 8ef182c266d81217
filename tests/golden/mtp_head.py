"""A head of multi-token prediction for a small random model, and the logits that it gives: the head's
own parts in torch, around a layer of transformers' model."""

import json

import safetensors.torch
import torch

# After this token the head predicts it again, so that some drafts are right.
REPEATED = 3


class Head(torch.nn.Module):
    """Reads hidden states (the final norm's output) and the tokens behind theirs."""

    def __init__(self, model, layer_index, own_tables):
        super().__init__()
        config, trunk = model.config, model.model
        norm, size = type(trunk.norm), config.hidden_size
        self.token_norm, self.state_norm, self.norm = (norm(size, config.rms_norm_eps) for _ in range(3))
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.layer = type(trunk.layers[layer_index])(config, layer_index)
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.output = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.own_tables = own_tables

    def share(self, model):
        self.rotary = [model.model.rotary_emb]  # no part of the head
        if not self.own_tables:
            self.embeddings.weight = model.get_input_embeddings().weight
            self.output.weight = model.get_output_embeddings().weight

    def repeat_a_token(self):
        """Adds to the projection what turns REPEATED into a prediction of itself."""
        with torch.no_grad():
            token = self.token_norm(self.embeddings.weight[REPEATED].float())
            row = self.output.weight[REPEATED].float()
            added = 6 * torch.outer(row / row.norm(), token / token.norm())
            self.fc.weight[:, : token.shape[0]] += added

    def forward(self, tokens, states):
        embeddings = self.embeddings(tokens)
        x = self.fc(torch.cat([self.token_norm(embeddings), self.state_norm(states)], dim=-1))[None]
        count = x.shape[1]
        mask = torch.full((count, count), torch.finfo(torch.float32).min).triu(1)[None, None]
        positions = torch.arange(count)[None]
        x = self.layer(x, position_embeddings=self.rotary[0](x, positions), attention_mask=mask,
                       position_ids=positions)
        return self.norm((x[0] if isinstance(x, tuple) else x)[0])


def tensors_of(head, in_layer):
    """Names as in the files of GLM (`in_layer`: the layer's number) and of Qwen (None)."""
    root = "mtp." if in_layer is None else f"model.layers.{in_layer}."
    names = (("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm") if in_layer is None
             else ("enorm", "hnorm", "eh_proj", "shared_head.norm"))
    parts = (head.token_norm, head.state_norm, head.fc, head.norm)
    tensors = {f"{root}{name}.weight": part.weight for name, part in zip(names, parts)}
    inside = root + ("layers.0." if in_layer is None else "")
    tensors |= {inside + name: value for name, value in head.layer.state_dict().items()}
    if head.own_tables:
        tensors[root + "embed_tokens.weight"] = head.embeddings.weight
        tensors[root + "shared_head.head.weight"] = head.output.weight
    return {name: value.detach().contiguous() for name, value in tensors.items()}


def apart(tensors, experts):
    """Experts one by one, as published files have them."""
    for name in [name for name in tensors if name.endswith("mlp.experts.gate_up_proj")]:
        gate_up, down = tensors.pop(name), tensors.pop(name.replace("gate_up", "down"))
        stem = name.removesuffix("gate_up_proj")
        for i in range(experts):
            gate, up = gate_up[i].chunk(2)
            for part, value in (("gate", gate), ("up", up), ("down", down[i])):
                tensors[f"{stem}{i}.{part}_proj.weight"] = value.contiguous()
    return tensors


def add_head(folder, model, kind, dtype, randomise, generator):
    """Adds the head's tensors to a saved model. Returns the head, as the files say."""
    config = model.config
    glm = kind == "glm"
    index = config.num_hidden_layers - 1  # with full attention, and experts if there are some
    head = Head(model, index, glm)
    head.config = config
    randomise(head, generator)
    head.share(model)
    head.repeat_a_token()
    head = head.to(dtype)
    tensors = tensors_of(head, config.num_hidden_layers if glm else None)
    if hasattr(config, "n_routed_experts"):
        apart(tensors, config.n_routed_experts)
    path = folder / "model.safetensors"
    safetensors.torch.save_file(safetensors.torch.load_file(path) | tensors, path,
                                {"format": "pt"})
    key, value = ("num_nextn_predict_layers", 1) if glm else ("mtp_num_hidden_layers", 1)
    config_path = folder / "config.json"
    config_json = json.loads(config_path.read_text()) | {key: value}
    config_path.write_text(json.dumps(config_json, indent=2) + "\n")
    return head.to(torch.float32).eval()


def logits_of(head, model, tokens):
    """Logits [tokens, vocab]: of each state with the token behind it, then of the head's last state
    with the best token behind that."""
    ids = torch.tensor(tokens)
    with torch.no_grad():
        head.share(model)
        states = model.model(ids[None], use_cache=False).last_hidden_state[0]
        own = head(ids[1:], states[:-1])
        logits = head.output(own)
        best = logits[-1].argmax()[None]
        again = head(torch.cat([ids[1:], best]), torch.cat([states[:-1], own[-1:]]))
        return torch.cat([logits, head.output(again[-1:])])
