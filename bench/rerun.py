#!/usr/bin/env python3
"""Repeats the measurements of docs/results/decode.md and memory.md, and makes their tables.

    bench/rerun.py run --out DIR            all of it: some 40 minutes on two quiet cores
    bench/rerun.py run --out DIR --only decode kv_memory
    bench/rerun.py tables DIR               the tables of docs/results/decode.md
    bench/rerun.py tables bench/results     of the kept runs

Needs the release build with its benches (cmake --preset release && cmake --build --preset release)
and, for peers and transformers, tools/env python and tools/env peers. Stops where the machine is at
work already (a load above 0.3 a core), unless --busy: times of a shared machine say nothing. Every
file says processor, flags, commit, date and load; a tree with changes is refused.

A ratio comes from one case's own times: full attention is measured in the same steps as the
selection that it is compared with, and differs from case to case.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/release"
PYTHON = ROOT / "build/venv/bin/python"
CASES = [("16 FCs, bf16", "bf16", 16), ("16 FCs, int8", "int8", 16), ("32 FCs, int2", "int2", 32),
         ("64 FCs, int2 (default)", "int2", 64)]
LENGTHS = [(4096, "4k"), (8192, "8k"), (32768, "32k"), (131072, "128k"), (262144, "256k"),
           (1048576, "1M")]


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = {key: re.search(rf"^{key}\s*: (.*)$", text, re.M) for key in ("model name", "flags")}
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    flags = field["flags"].group(1).split() if field["flags"] else []
    return {"processor": field["model name"].group(1) if field["model name"] else "unknown",
            "cores": len(os.sched_getaffinity(0)),
            "flags": [flag for flag in wanted if flag in flags]}


def context():
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=True).stdout.strip()
    if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode != 0:
        sys.exit("rerun: the tree has changes; commit them, so that figures have a commit")
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {**processor(), "commit": commit, "date": now, "load": os.getloadavg()[0]}


def run(command, environment=None):
    print("rerun:", " ".join(map(str, command)), file=sys.stderr, flush=True)
    done = subprocess.run([str(part) for part in command], cwd=ROOT, text=True, check=False,
                          stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        sys.exit(f"rerun: {command[0]} ended with {done.returncode}")
    return done.stdout


def json_of(text):
    return json.loads(text[text.index("{"):text.rindex("}") + 1])


def decode():
    return {"benchmarks": json_of(run([BUILD / "bench/decode_attention",
                                       "--benchmark_format=json"]))["benchmarks"]}


def kv_memory():
    return {"fill": run([BUILD / "bench/kv_memory", "--alias", "1GiB"]),
            "growth": run([BUILD / "bench/kv_memory", "--growth"])}


def quality():
    """At the setting of the decode table's 8k row: what the same slices and k cost in answers."""
    results = {}
    for chunks in (32, 16):  # all FCs of the bundled model, and half of them
        found = {}
        for selection in ("full", "fasa"):
            for task in ("ppl", "needle"):
                found[f"{task}_{selection}"] = json_of(run(
                    [BUILD / "fasa", "eval", task, "--model", "models/needle-3m", "--context", 8000,
                     "--selection", selection, "--fac-tokens", 256, "--low-bit-tokens", 0,
                     "--slice-dtype", "int2", "--tip-chunks", chunks, "--examples", 8, "--results",
                     ROOT / f"build/rerun-quality-{chunks}", "--fresh", "--json"]))
        results[f"{chunks} of 32 FCs, int2, k = 256, 8000 tokens"] = found
    return results


def peers():
    path = ROOT / "build/rerun-peers.json"
    run([PYTHON, "bench/peers.py", "--rounds", 15, "--json", path],
        {"PYTHONPATH": f"{BUILD}/python:{ROOT}/build/peers"})
    return json.loads(path.read_text())


def transformers():
    lines = []
    for tokens in (32768, 65536, 131072):
        text = run([PYTHON, "bench/transformers_decode.py", "--tokens", tokens],
                   {"PYTHONPATH": f"{BUILD}/python"})
        lines += [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {"results": lines}


def binding():
    text = run([PYTHON, "bench/binding_overhead.py", "--layers", 32],
               {"PYTHONPATH": f"{BUILD}/python", "OMP_NUM_THREADS": "1"})
    return json_of(text)


PARTS = {"decode": decode, "kv_memory": kv_memory, "quality": quality, "peers": peers,
         "transformers": transformers, "binding": binding}


def measure(given):
    cores = len(os.sched_getaffinity(0))
    if os.getloadavg()[0] > 0.3 * cores and not given.busy:
        sys.exit(f"rerun: the load is {os.getloadavg()[0]:.2f}; times would say nothing (--busy)")
    given.out.mkdir(parents=True, exist_ok=True)
    for part in given.only or PARTS:
        found = {"context": context(), **PARTS[part]()}
        found["context"]["load_after"] = os.getloadavg()[0]
        (given.out / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")


def title(found):
    of = found["context"]
    cores = of.get("cores") or of.get("num_cpus")
    return (f"{of.get('processor') or of.get('hardware') or 'unknown processor'}, {cores} cores, "
            f"commit {of.get('commit') or 'unknown'}, {of['date'][:10]}, load "
            f"{of.get('load', (of.get('load_avg') or ['unknown'])[0])}")


def decode_tables(found):
    """A cell: the selection's time and its own full attention's, medians of the same steps, and the
    median of their ratio."""
    cases = {re.sub(r"/iterations.*", "", one["name"]): one for one in found["benchmarks"]}
    for k in (256, 2048):
        rows = []
        for tokens, name in LENGTHS:
            cells = []
            for _, dtype, chunks in CASES:
                one = cases.get(
                    f"decode_attention/tokens:{tokens}/k:{k}/slice:{dtype}/fcs:{chunks}")
                cells.append("" if one is None else
                             f"{one['median_ms']:.2f} of {one['full_ms']:.2f} "
                             f"({one['ratio_to_full']:.1f}x)")
            if any(cells):
                rows.append(f"| {name} | " + " | ".join(cells) + " |")
        if rows:
            print(f"\n{title(found)}; k = {k}, ms:\n")
            print("| tokens | " + " | ".join(name for name, _, _ in CASES) + " |")
            print("|---" * (len(CASES) + 1) + "|")
            print("\n".join(rows))


def peers_table(found):
    print(f"\n{found['processor']}, {found['threads']} threads, k = {found['k']}, "
          f"{found['date'][:10]}:\n")
    ways = ["full", "fasa", "rows_alone", "rows_alone_32", "sdpa_folded", "sdpa_gqa", "llama_cpp"]
    print("| tokens | " + " | ".join(ways) + " |\n" + "|---" * (len(ways) + 1) + "|")
    for one in found["results"]:
        cells = [f"{one['ms'][way]['median']:.2f} ({one['ms'][way]['p10']:.2f} to "
                 f"{one['ms'][way]['p90']:.2f})" if way in one["ms"] else "" for way in ways]
        print(f"| {one['tokens'] // 1024}k | " + " | ".join(cells) + " |")


def tables(given):
    for path in sorted(given.folder.glob("*.json")):
        found = json.loads(path.read_text())
        if "benchmarks" in found:
            print(f"\n## {path.name}")
            decode_tables(found)
        elif "results" in found and "rounds" in found:
            print(f"\n## {path.name}")
            peers_table(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="measure")
    one.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    one.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    one.add_argument("--busy", action="store_true", help="ignore the load")
    one.set_defaults(work=measure)
    one = commands.add_parser("tables", help="print what files of results say")
    one.add_argument("folder", type=pathlib.Path, metavar="DIR")
    one.set_defaults(work=tables)
    given = parser.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
