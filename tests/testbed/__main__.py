"""tests/testbed/train RECIPE: trains a small model and writes it as a Hugging Face folder."""
import argparse
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Excluded from training with any corpus: models are measured on these texts.
HELD_OUT = ("revelation.txt", "ruth.txt", "state-of-the-union-1996.txt")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/testbed/train", description=__doc__)
    parser.add_argument("recipe", nargs="?", help="name of a recipe, or a .toml file; see --list")
    parser.add_argument("--list", action="store_true", help="list the recipes and exit")
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT / "models" / "texts",
                        help="folder of plain texts (*.txt); default: models/texts")
    parser.add_argument("--work", type=pathlib.Path,
                        help="folder for checkpoint and log; default: build/testbed/RECIPE")
    parser.add_argument("--out", type=pathlib.Path,
                        help="folder for the model; default: model in --work")
    parser.add_argument("--share", type=float, default=1.0,
                        help="share of every phase's steps to run, above 0, up to 1; default: 1")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--texts", type=int, default=25,
                        help="number of texts of each length to measure recall with; default: 25")
    options = parser.parse_args(arguments)
    if not options.list and options.recipe is None:
        parser.error("give a recipe; --list shows all recipes")
    for name in ("threads", "texts"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} = {getattr(options, name)}: allowed: 1 or more")
    if not 0 < options.share <= 1:
        parser.error(f"--share = {options.share}: allowed: above 0, up to 1")
    return options


def train(options, recipe):
    import torch
    torch.set_num_threads(options.threads)
    from testbed import corpus, export, facts, measure, trainer
    work = options.work or ROOT / "build" / "testbed" / recipe.name
    out = options.out or work / "model"
    export.require_free(out)
    held_out = [measure.HeldOut(name, (ROOT / "models" / "texts" / name).read_bytes())
                for name in HELD_OUT]
    texts = corpus.Corpus(options.corpus, [text.text for text in held_out])
    template = facts.FactTemplate((pathlib.Path(__file__).parent / "needle.json").read_text())
    run = trainer.Trainer(recipe, texts, template, work)
    run.run()
    part = export.write_weights(run.model, out)
    model = export.reload(part, run.model)
    measured = measure.measure(model, held_out, template, recipe.lengths, options.texts)
    log = [json.loads(line) for line in open(work / "log.jsonl", encoding="utf-8")]
    export.finish(part, out, recipe, template,
                  export.summary(recipe, options.share, texts, model, log, measured))
    print((out / "README.md").read_text())
    print(f"tests/testbed/train: {out} is made")


def main(arguments):
    options = parse(arguments)
    from testbed import RecipeError, recipe
    from testbed.trainer import Interrupted
    try:
        if options.list:
            for name in recipe.known():
                found = recipe.find(name)
                print(f"{name:14} {found.title}, {found.steps} steps")
            return 0
        train(options, recipe.find(options.recipe).shortened(options.share))
    except (RecipeError, OSError) as problem:
        print(f"tests/testbed/train: {problem}", file=sys.stderr)
        return 2
    except Interrupted as interruption:
        print(f"tests/testbed/train: {interruption}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    # No progress output, no network, and the same CPU arithmetic on every machine.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(sys.argv[1:]))
