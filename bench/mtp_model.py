#!/usr/bin/env python3
"""Writes a model of Qwen3.5-0.8B's shape with random weights in bf16 and a head of multi-token
prediction, for bench/scripted_drafts.

    build/venv/bin/python bench/mtp_model.py FOLDER [--layers 24]
"""
import argparse
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "golden"))

import mtp_head  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="bench/mtp_model.py",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=24)
    arguments = parser.parse_args()
    config = transformers.Qwen3_5TextConfig(
        hidden_size=1024, intermediate_size=3584, num_hidden_layers=arguments.layers,
        num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_value_heads=16,
        tie_word_embeddings=True)
    torch.manual_seed(1)
    model = transformers.Qwen3_5ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(arguments.folder)

    def randomise(head, generator):
        for parameter in head.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02, generator=generator)

    model = model.to(torch.float32)
    mtp_head.add_head(arguments.folder, model, "qwen", torch.bfloat16, randomise,
                      torch.Generator().manual_seed(1))


if __name__ == "__main__":
    main()
