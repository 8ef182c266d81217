#!/usr/bin/env python3
"""Asks the bundled model for facts planted in long texts, with its KV cache in tiers (fasa-m on the
emulated device) and whole on the device (full), and compares the two. tools/demo runs it."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ANSWER_TOKENS = 6  # five digits and a full stop
TOKENS = 128       # tokens attended to per step, of up to 8000
RUNS = {
    "fasa-m": ["--preset", "fasa-m", "--fac-tokens", str(TOKENS), "--low-bit-tokens", "0",
               "--hot-rows", str(TOKENS)],
    "full": ["--preset", "full"],
}


def generate(fasa, model, prompt, flags):
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(prompt.encode())
        file.flush()
        command = [fasa, "generate", "--model", model, "--prompt-file", file.name, "--device",
                   "emulated", "--max-tokens", str(ANSWER_TOKENS), "--json", *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"tools/demo: {' '.join(command)} ended with code {done.returncode}")
    return json.loads(done.stdout)


class Totals:
    """The results of one configuration over all questions."""

    def __init__(self):
        self.right = self.asked = self.steps = 0
        self.seconds = self.rows = self.hits = 0.0
        self.largest = None  # the run with the longest context

    def add(self, result, right):
        self.asked += 1
        self.right += right
        steps = result["decode"]["tokens"]
        self.steps += steps
        self.seconds += result["decode"]["seconds"]
        self.rows += result["fetch"]["rows_per_step"] * steps
        self.hits += result["fetch"]["hit_rate"] * steps
        memory = result["memory"]
        if self.largest is None or memory["full_kv_bytes"] > self.largest["full_kv_bytes"]:
            self.largest = memory


def ask(arguments, totals):
    for name in arguments.texts:
        text = json.loads((ROOT / "models/texts" / f"facts-{name}.json").read_text())
        print(f"\n{len(text['text'].encode())} bytes: {text['source']}")
        for question in text["questions"]:
            prompt = text["text"] + question["prompt_suffix"]
            cells = []
            for run, flags in RUNS.items():
                result = generate(arguments.fasa, arguments.model, prompt, flags)
                answer = result["text"].split(".")[0]
                right = answer == question["answer"]
                totals[run].add(result, right)
                cells.append(f"{run}: {answer:<6} {'right' if right else 'wrong'}")
            print(f"  {question['prompt_suffix'].strip()}  planted {question['depth']:>4.0%} in   "
                  f"fact: {question['answer']}   {'   '.join(cells)}", flush=True)


def print_table(totals):
    tiered, full = totals["fasa-m"], totals["full"]
    kib = 1024
    rows = [
        ("KV bytes on the device, longest text",
         f"{tiered.largest['device_kv_bytes'] / kib:.1f} KiB",
         f"{full.largest['device_kv_bytes'] / kib:.1f} KiB"),
        ("KV bytes on the host, longest text",
         f"{tiered.largest['host_kv_bytes'] / kib:.1f} KiB",
         f"{full.largest['host_kv_bytes'] / kib:.1f} KiB"),
        ("time per output token (virtual clock)",
         f"{1e3 * tiered.seconds / max(1, tiered.steps):.3f} ms",
         f"{1e3 * full.seconds / max(1, full.steps):.3f} ms"),
        ("rows fetched per step", f"{tiered.rows / max(1, tiered.steps):.1f}",
         f"{full.rows / max(1, full.steps):.1f}"),
        ("hit rate", f"{100 * tiered.hits / max(1, tiered.steps):.1f} %",
         f"{100 * full.hits / max(1, full.steps):.1f} %"),
        ("right answers", f"{tiered.right} of {tiered.asked}", f"{full.right} of {full.asked}"),
    ]
    print(f"\n{'':<40}{'fasa-m, ' + str(TOKENS) + ' tokens':>20}{'full':>16}")
    for name, left, right in rows:
        print(f"{name:<40}{left:>20}{right:>16}")
    ratio = tiered.largest["full_kv_bytes"] / tiered.largest["device_kv_bytes"]
    print(f"\nFull KV in 2 bytes would take {tiered.largest['full_kv_bytes'] / kib:.1f} KiB there: "
          f"fasa-m holds {ratio:.1f}x less on the device.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--model", default=str(ROOT / "models/needle-3m"))
    parser.add_argument("--texts", nargs="+", default=["1k", "4k", "8k"],
                        choices=["1k", "4k", "8k"])
    arguments = parser.parse_args()
    totals = {run: Totals() for run in RUNS}
    ask(arguments, totals)
    print_table(totals)


if __name__ == "__main__":
    main()
