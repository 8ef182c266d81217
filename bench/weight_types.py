#!/usr/bin/env python3
"""Tokens a second of GGUF files in several types, beside llama.cpp, on this CPU.

A llama of Llama-3.2-1B's widths and fewer layers with random weights, all of them in one type but
the head in Q6_K. Ways take turns in processes of their own, round by round; medians of the rounds.
--processor-time divides by the processor's time instead of wall time, for machines that do other
work too; one thread then, because threads that wait for each other spin.

    tools/env python && tools/env peers
    PYTHONPATH=build/peers build/venv/bin/python bench/weight_types.py --json FILE
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import whole_model

TYPES = ("Q4_K", "IQ4_NL", "IQ4_XS", "Q3_K", "Q2_K", "Q6_K")
# Hidden, intermediate, layers, query heads, KV heads, head_dim, vocabulary.
SHAPE = (2048, 8192, 8, 32, 8, 64, 32000)
TOKENS = 256  # of context
STEPS = 24
# Steps of fasa, whose processor time is that of a long answer less that of a short one.
TIMED_STEPS = 240
FASA_WAYS = {"fasa": (), "fasa, int8 activations": ("--activations", "int8")}


def run(command):
    """(output, processor's seconds)"""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{command}: exit code {process.returncode}")
        out.seek(0)
        return out.read().decode(), usage.ru_utime + usage.ru_stime


def run_fasa(arguments, file, flags):
    """Seconds a token."""
    def generate(steps):
        return run([arguments.fasa, "generate", "--model", file, "--dtype", "bf16", "--device",
                    "cpu", "--threads", arguments.threads, "--random-context", TOKENS,
                    "--random-prompt", 1, "--max-tokens", steps + 1, "--json", *flags])
    if not arguments.processor_time:
        return statistics.median(json.loads(generate(STEPS)[0])["decode"]["step_ms"]) / 1e3
    return (generate(TIMED_STEPS)[1] - generate(0)[1]) / TIMED_STEPS


def run_llama(arguments, file):
    """Seconds a token."""
    return float(run([sys.executable, __file__, "--child", file, "--threads", arguments.threads,
                      *(["--processor-time"] if arguments.processor_time else [])])[0])


def llama_child(arguments):
    import llama_cpp
    import peer_llama
    llama_cpp.llama_log_set(peer_llama._quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        os.fsencode(arguments.child), llama_cpp.llama_model_default_params())
    context = peer_llama.Context(model, 1, arguments.threads)
    context.token_seconds()  # starts the threads
    clock = time.process_time if arguments.processor_time else time.perf_counter
    times = []
    for _ in range(STEPS):
        begin = clock()
        context.token_seconds()
        times.append(clock() - begin)
    print(statistics.median(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(whole_model.ROOT / "build/release/fasa"))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--files", type=pathlib.Path,
                        default=whole_model.ROOT / "build/weight_types",
                        help="folder of the random files, 2.1 GB, made where they are missing")
    parser.add_argument("--json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.processor_time:
        arguments.threads = 1
    if arguments.child:
        return llama_child(arguments)
    arguments.files.mkdir(parents=True, exist_ok=True)
    files = {kind: arguments.files / f"{kind}.gguf" for kind in arguments.types}
    for kind, file in files.items():
        if not file.exists():
            whole_model.write_random_gguf(file, SHAPE, kind, kind, "Q6_K")
    ways = {name: lambda file, flags=flags: run_fasa(arguments, file, flags)
            for name, flags in FASA_WAYS.items()}
    ways["llama.cpp"] = lambda file: run_llama(arguments, file)
    times = {kind: {name: [] for name in ways} for kind in files}
    for _ in range(arguments.rounds):
        for kind, file in files.items():
            for name, measure in ways.items():
                times[kind][name].append(measure(file))
                print(kind, name, times[kind][name][-1], file=sys.stderr, flush=True)
    print("| tokens a second | " + " | ".join(files) + " |\n|---" + "|---" * len(files) + "|")
    print("| MB of the file | " +
          " | ".join(f"{file.stat().st_size / 1e6:.0f}" for file in files.values()) + " |")
    for name in ways:
        cells = (f"{1 / statistics.median(times[kind][name]):.1f}" for kind in files)
        print(f"| {name} | " + " | ".join(cells) + " |")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(times, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
