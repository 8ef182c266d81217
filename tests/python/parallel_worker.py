"""One rank of parallel_test.py: generates, and writes its results to FOLDER/RANK.json."""
import json
import os
import sys

import numpy as np
import torch
import transformers

import fasa
import fasa.transformers


def load(folder):
    options = dict(dtype=torch.float32, attn_implementation="fasa")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        from transformers.distributed import DistributedConfig

        options["distributed_config"] = DistributedConfig(tp_size=2)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


class LastQueries:
    """Keeps the query and the attention module of every layer's last step."""

    def __init__(self, session):
        self.session, self.step, self.of = session, session.step, {}
        session.step = self

    def __call__(self, index, module, query, *rest):
        self.of[index] = (module, query[0].transpose(0, 1).numpy().copy())
        return self.step(index, module, query, *rest)


def selected(cache, queries):
    """The sets and scores of the last step, [layer][own KV head]: positions, and every position's
    score by the slices' dimensions.

    A runtime with the same keys and dimensions attends over values that identify their tokens. It
    uses several sequences, because a value has too few dimensions to identify all tokens at
    once.
    """
    session = cache.session
    geometry, row = session.runtime.geometry, session.rows[0]
    dims = session._slice_dims(queries.of[0][0], geometry)
    probe = fasa.Runtime(geometry, session.settings, row_dtype="f32", slice_dims=dims)
    keys = [session.runtime.read(row, layer)[0] for layer in range(geometry.layers)]
    tokens, heads = len(row), geometry.kv_heads
    group = geometry.query_heads // heads
    sets = [[[] for _ in range(heads)] for _ in keys]
    for first in range(0, tokens, geometry.value_dim):
        count = min(geometry.value_dim, tokens - first)
        values = np.zeros((tokens, heads, geometry.value_dim), np.float32)
        values[np.arange(first, first + count), :, np.arange(count)] = 1
        sequence = probe.sequence()
        for begin, end, mode in ((0, tokens - 1, "prefill"), (tokens - 1, tokens, "decode")):
            probe.begin_step([(sequence, end - begin, mode)])
            for layer, own in enumerate(keys):
                probe.append(layer, own[begin:end], values[begin:end])
                if mode == "prefill":
                    continue
                weights = probe.attend(layer, queries.of[layer][1])[0]
                for head in range(heads):
                    found = (weights[head * group:(head + 1) * group] > 0).any(0).nonzero()[0]
                    sets[layer][head] += (found + first).tolist()
            probe.end_step()
    return sets, scores(keys, queries, dims, geometry)


def scores(keys, queries, dims, geometry):
    """The head group's rule: the maximum over its query heads of a score relative to that head's
    best."""
    group = geometry.query_heads // geometry.kv_heads
    found = []
    for layer, own in enumerate(keys):
        found.append([])
        for head, chosen in enumerate(dims[layer]):
            q = queries.of[layer][1][0, head * group:(head + 1) * group][:, chosen]
            raw = q.astype(np.float64) @ own[:, head, chosen].T.astype(np.float64) * geometry.scale
            found[-1].append((raw - raw.max(1, keepdims=True)).max(0).tolist())
    return found


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    model = load(folder)
    text = open(os.path.join(folder, "../texts/ruth.txt"), "rb").read()
    ids = torch.tensor([list(text[:700])])
    options = dict(attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
                   pad_token_id=0)
    found = {"rank": int(os.environ.get("RANK", 0))}
    for name, settings in {
        "all": {"fac_tokens": 1 << 20},
        "sparse": {"fac_tokens": 128, "slice": "lean", "map": os.path.join(folder, "fc_map.json")},
        # Uncoded slices: the set follows from the scores exactly.
        "scored": {"fac_tokens": 128, "slice": "lean", "slice_dtype": "f32",
                   "map": os.path.join(folder, "fc_map.json")},
    }.items():
        own = fasa.transformers.Cache(model, **settings)
        queries = LastQueries(own.session)
        found[name] = model.generate(ids, past_key_values=own, **options)[0, 700:].tolist()
        found["kv_heads"] = own.runtime.geometry.kv_heads
    found["sets"], found["scores"] = selected(own, queries)
    with torch.no_grad():
        found["logits"] = model(torch.tensor([[65]]), past_key_values=own).logits[0, -1].tolist()
    with open(os.path.join(sys.argv[2], f"{found['rank']}.json"), "w") as file:
        json.dump(found, file)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


main()
