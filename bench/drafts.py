#!/usr/bin/env python3
"""What drafts bring: tokens a second of answers with `--drafts lookup` or `mtp` over those without.

    bench/drafts.py --model FILE.gguf [--drafts mtp] [--rounds 5] [--fasa build/release/fasa]
                    [--json FILE]

Four answers of a chat model on the processor: code that is edited and lines that are copied
(greedy), prose about a text and prose about nothing (temperature 1). Both ways take turns, round by
round; a task's ratio is the median of the rounds' ratios, with the range. The texts must be
equal."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = '''def read_lines(path):
    count = 0
    lines = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line.rstrip("\\n"))
                count += 1
    print(f"read {count} lines from {path}")
    return lines, count


def write_lines(path, lines):
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\\n")
            count += 1
    print(f"wrote {count} lines to {path}")
    return count
'''


def tasks():
    """{name: (prompt, temperature)}. A small model repeats itself unless its tokens are drawn."""
    verses = (ROOT / "models/texts/ruth.txt").read_text(encoding="utf-8")[:1500]
    edit = "Repeat the following Python code exactly, with the variable `count` renamed to `total`:"
    story = "Write a short story about a lighthouse keeper who finds a letter."
    return {"edit code": (f"{edit}\n\n{CODE}", 0),
            "copy lines": (f"Repeat this text word for word:\n\n{verses}", 0),
            "prose about a text": (f"What happens in this text, and why?\n\n{verses}", 1),
            "prose": (story, 1)}


def answer(arguments, prompt, drafts, temperature):
    line = [arguments.fasa, "generate", "--model", arguments.model, "--device", "cpu", "--chat",
            "--prompt-file", prompt, "--temperature", str(temperature), "--seed", "1",
            "--max-tokens", str(arguments.tokens), "--drafts", drafts, "--json"]
    return json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)


def rounds_of(arguments, prompt, temperature):
    found = []
    for _ in range(arguments.rounds):
        plain, drafted = (answer(arguments, prompt, kind, temperature)
                          for kind in ("none", arguments.drafts))
        if plain["tokens"] != drafted["tokens"]:
            sys.exit("drafts changed the answer")
        found.append((plain["decode"], drafted["decode"]))
    return found


def measured(found):
    ratios = sorted(plain["tpot_ms"] / drafted["tpot_ms"] for plain, drafted in found)
    decode = found[-1][1]
    return {"answer_tokens": decode["tokens"],
            "tokens_a_second": 1e3 / statistics.median(plain["tpot_ms"] for plain, _ in found),
            "ratio": statistics.median(ratios), "range": [ratios[0], ratios[-1]],
            "tokens_a_step": decode["tokens"] / max(1, decode["steps"]),
            "drafted": decode["drafted_tokens"], "right": decode["right_drafts"]}


def main():
    parser = argparse.ArgumentParser(prog="bench/drafts.py", description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--drafts", default="lookup", choices=("lookup", "mtp"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    results = {}
    print("| task | tokens | tokens/s | with drafts, times | tokens a step | drafts right |")
    print("|---|---|---|---|---|---|")
    for name, (text, temperature) in tasks().items():
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as prompt:
            prompt.write(text)
            prompt.flush()
            row = measured(rounds_of(arguments, prompt.name, temperature))
        results[name] = row
        low, high = row["range"]
        print(f"| {name} | {row['answer_tokens']} | {row['tokens_a_second']:.1f} | "
              f"{row['ratio']:.2f} ({low:.2f} to {high:.2f}) | {row['tokens_a_step']:.2f} | "
              f"{row['right']} of {row['drafted']} |", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
