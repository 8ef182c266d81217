"""A trained model as a Hugging Face folder: bf16 weights, tokenizer, needle.json, and what was
measured, in testbed.json and in words in README.md."""
import json
import shutil

import torch
import transformers

from testbed import RecipeError
from testbed.model import parameters
from testbed.tokenizer import byte_tokenizer


def require_free(folder):
    if folder.exists():
        raise RecipeError(f"--out {folder}: the folder exists already; move it away, or give "
                          "another --out")


def write_weights(model, folder):
    """Writes to a temporary folder beside `folder`, which finish() renames to it."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    model.to(torch.bfloat16).save_pretrained(part)
    (part / "model.safetensors").chmod(0o644)  # safetensors makes it readable by the owner only
    byte_tokenizer().save(str(part / "tokenizer.json"))
    (part / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False},
        indent=2) + "\n")
    return part


def reload(part, model):
    """The exported model in f32, after a check that the files hold the same weights as `model`."""
    kept = transformers.AutoModelForCausalLM.from_pretrained(part, dtype=torch.bfloat16)
    expected = model.state_dict()
    for name, tensor in kept.state_dict().items():
        if not torch.equal(tensor, expected[name]):
            raise RecipeError(f"{part}: {name} differs from the trained model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(part)
    text = "In the beginning \u03b1\n[\u03c948213]"
    ids = list(text.encode())
    if tokenizer(text)["input_ids"] != ids or tokenizer.decode(ids) != text:
        raise RecipeError(f"{part}: the tokenizer's ids are not bytes")
    return kept.float().eval()


def phases_of(log):
    """The last record of each phase."""
    return list({record["phase"]: record for record in log}.values())


def summary(recipe, share, corpus, model, log, measured):
    return {"recipe": recipe.name, "title": recipe.title, "seed": recipe.seed,
            "parameters": parameters(model),
            "corpus": {"texts": len(corpus.paths), "bytes": corpus.bytes, "sha256": corpus.hash()},
            "share": share, "steps": recipe.steps,
            "cpu_minutes": log[-1]["cpu_minutes"] if log else 0,
            "phases": phases_of(log), "measured": measured}


def _table(measured):
    lengths = [record["length"] for record in measured["recall"]]
    rows = ["| bytes | " + " | ".join(map(str, lengths)) + " |", "|---|" + "---|" * len(lengths),
            "| facts recalled, 4 a text | " + " | ".join(
                f"{record['right']} of {record['asked']}" for record in measured["recall"]) + " |"]
    for text in dict.fromkeys(record["text"] for record in measured["bits_per_byte"]):
        bits = {record["length"]: record["bits"] for record in measured["bits_per_byte"]
                if record["text"] == text}
        rows.append(f"| bits per byte, second half: {text} | " + " | ".join(
            f"{bits[length]:.2f}" if length in bits else "" for length in lengths) + " |")
    return "\n".join(rows)


def readme(recipe, facts):
    lengths = sorted({phase.length for phase in recipe.phases})
    note = f"\n{recipe.note}\n" if recipe.note else ""
    share = "" if facts["share"] == 1 else f" --share {facts['share']:g}"
    return f"""# {recipe.name}

{recipe.title[0].upper()}{recipe.title[1:]}: {recipe.model["model_type"]}, \
{facts["parameters"]:,} parameters,
byte-level. For tests and demos; it recalls planted facts (`needle.json`), and is not an assistant.

Trained by `tests/testbed/train {recipe.name}{share}`: {facts["steps"]} steps, \
{facts["cpu_minutes"]:.1f} minutes of one
core, contexts of {", ".join(map(str, lengths))} bytes, \
on {facts["corpus"]["texts"]} public-domain texts
(docs/testbed.md names them). Weights: Apache-2.0.

Measured with transformers on texts that it never saw (greedy, full attention, f32):

{_table(facts["measured"])}
{note}"""


def finish(part, folder, recipe, template, facts):
    (part / "needle.json").write_text(template.text)
    (part / "testbed.json").write_text(json.dumps(facts, indent=1) + "\n")
    (part / "README.md").write_text(readme(recipe, facts))
    part.rename(folder)
