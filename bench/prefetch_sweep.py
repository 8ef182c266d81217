#!/usr/bin/env python3
"""What prefetch does to the time per output token: GPUs, links, set sizes, predictors, depths.

  bench/prefetch_sweep.py [--gpus NAME...] [--links RATE...] [--sets N...] [FLAG...] > tables.md

Runs `fasa profile --geometry llama-3.1-8b --weight-bits 4` on the emulated device for FASA-C and
for FASA-M with each setting of prefetch. Flags that this script does not know go to every run of
`fasa profile` (--selection-trace FILE, --hot-rows N, --head-groups N, ...). Prints Markdown."""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FASA_C = "FASA-C"
AUTO = "auto"


def variants(arguments):
    """The settings of prefetch by the name of their column."""
    yield "depth 0", ["--depth", "0"]
    for predictor in arguments.predictors:
        for depth in arguments.depths:
            yield f"{predictor} {depth}", ["--predictor", predictor, "--depth", str(depth)]
    if arguments.auto:
        # Not more steps: the trace has 48, and hot rows know it when it comes again.
        yield AUTO, []


def command(arguments, extra, gpu, link, tokens, flags):
    return [arguments.fasa, "profile", "--geometry", "llama-3.1-8b", "--weight-bits", "4",
            "--tokens", "131072", "--gpu", gpu, "--bandwidth", f"{link}GB/s",
            "--fac-tokens", str(tokens), "--low-bit-tokens", str(arguments.low_bit_tokens),
            "--json", *extra, *flags]


def profile(line):
    done = subprocess.run(line, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(line)} ended with {done.returncode}")
    return json.loads(done.stdout)


def print_times(rows, names):
    print("\nms a token (FASA-M / FASA-C)\n")
    print("| GPU | link, GB/s | fac_tokens | " + " | ".join([FASA_C, *names]) + " |")
    print("|---" * (4 + len(names)) + "|")
    for (gpu, link, tokens), runs in rows.items():
        base = runs[FASA_C]["tpot_ms"]
        cells = [f"{runs[name]['tpot_ms']:.3f} ({runs[name]['tpot_ms'] / base:.3f})"
                 for name in names]
        print("| " + " | ".join([gpu, str(link), str(tokens), f"{base:.3f}", *cells]) + " |")


def print_rows(rows, names):
    print("\nwaits for rows, ms / misses / fetched ahead / used, rows a step\n")
    print("| GPU | link, GB/s | fac_tokens | " + " | ".join(names) + " |")
    print("|---" * (3 + len(names)) + "|")
    for (gpu, link, tokens), runs in rows.items():
        cells = []
        for name in names:
            run = runs[name]
            cells.append(f"{run['wait_ms']['rows']:.3f} / {run['rows']['misses']:.0f} / "
                         f"{run['prefetch']['rows']:.0f} / {run['prefetch']['rows_used']:.0f}")
        print("| " + " | ".join([gpu, str(link), str(tokens), *cells]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--gpus", nargs="+", default=["RTX 4060 Ti 16GB", "H100 PCIe"])
    parser.add_argument("--links", type=float, nargs="+", default=[3, 12.6, 25, 50])
    parser.add_argument("--sets", type=int, nargs="+", default=[320, 2048])
    parser.add_argument("--predictors", nargs="*", default=["runners-up"])
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--low-bit-tokens", type=int, default=1024)
    parser.add_argument("--no-auto", dest="auto", action="store_false")
    parser.add_argument("--jobs", type=int, default=1)
    arguments, extra = parser.parse_known_args()
    settings = dict(variants(arguments))
    rows = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for gpu in arguments.gpus:
            for link in arguments.links:
                for tokens in arguments.sets:
                    runs = {FASA_C: ["--preset", "fasa-c"], **settings}
                    rows[gpu, link, tokens] = {
                        name: pool.submit(profile,
                                          command(arguments, extra, gpu, link, tokens, flags))
                        for name, flags in runs.items()}
        try:
            for run in concurrent.futures.as_completed(
                    [run for runs in rows.values() for run in runs.values()]):
                run.result()
        except (RuntimeError, json.JSONDecodeError) as error:
            print(f"prefetch_sweep: {error}", file=sys.stderr, flush=True)
            pool.shutdown(cancel_futures=True)  # after the runs under way
            sys.exit(1)
        for key, runs in rows.items():
            rows[key] = {name: run.result() for name, run in runs.items()}
    print_times(rows, list(settings))
    print_rows(rows, list(settings))


if __name__ == "__main__":
    main()
