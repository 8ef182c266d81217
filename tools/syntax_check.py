"""Sources that another compiler understands, without building them.

  python3 tools/syntax_check.py BUILD K/N     every N-th source of BUILD/compile_commands.json
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def check(entry):
    """(source, the compiler's complaints)"""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    del words[at:at + 2]
    done = subprocess.run([*words, "-fsyntax-only"], cwd=entry["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return entry["file"], "" if done.returncode == 0 else done.stdout


def main(build, share):
    index, count = map(int, share.split("/"))
    entries = json.loads(
        (pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8"))
    by_source = {entry["file"]: entry for entry in entries if "/build/" not in entry["file"]}
    chosen = [by_source[source] for source in sorted(by_source)][index::count]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [text for _, text in pool.map(check, chosen) if text]
    print("\n".join(found) or f"syntax_check: {len(chosen)} sources compile")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
