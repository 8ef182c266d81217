"""One rank of parallel_test.py: generates, and prints what it got as a line of JSON."""
import json
import os
import sys

import torch
import transformers

import fasa.transformers


def load(folder):
    options = dict(dtype=torch.float32, attn_implementation="fasa")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        from transformers.distributed import DistributedConfig

        options["distributed_config"] = DistributedConfig(tp_size=2)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


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
    }.items():
        own = fasa.transformers.Cache(model, **settings)
        found[name] = model.generate(ids, past_key_values=own, **options)[0, 700:].tolist()
        found["kv_heads"] = own.runtime.geometry.kv_heads
    with torch.no_grad():
        found["logits"] = model(torch.tensor([[65]]), past_key_values=own).logits[0, -1].tolist()
    print(json.dumps(found), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


main()
