#!/usr/bin/env python3
"""Load on `fasa serve`: times that clients see, a long prompt beside a stream, and a soak.

    bench/serve_load.py clients --model DIR...   TTFT, time between tokens, tokens a second with 1,
                                                 4 and 16 clients at once, beside the bound of the
                                                 model's step times (target step_times), and where
                                                 the server's time went; with --llama the same GGUF
                                                 files on llama-cpp-python's server, by turns
    bench/serve_load.py intruder --model DIR     the effect of a long prompt on another stream
    bench/serve_load.py question --model DIR     the wait of a short question behind a long prompt
    bench/serve_load.py sessions --model DIR     the first token of a document's next question:
                                                 never seen, in memory, and on disk after a
                                                 restart, its pages in the system's cache and out
                                                 of it
    bench/serve_load.py soak --model DIR         thousands of requests with cancels, broken
                                                 connections and conversations: is memory flat, and
                                                 does a client get another's text

Needs the release build. For --llama: tools/env python && tools/env peers, then
    PYTHONPATH=build/peers build/venv/bin/python bench/serve_load.py clients --llama ...
Times are the clients'; --json FILE keeps all of them.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile
import threading
import time

from serve_load_clients import clients_command
from serve_load_server import ROOT, TEXT, ask, fasa, milliseconds, percentile


def intruder_command(options):
    server = fasa(options.model[0], "--allow-long", "--max-context",
                  str(options.prompt_tokens + 1024), *options.flags)
    alone = ask(server, TEXT[:200], options.stream_tokens)
    prompt = (TEXT * (options.prompt_tokens // len(TEXT) + 1))[:options.prompt_tokens]
    intruder = {}
    started, moments = threading.Event(), []

    def intrude():
        started.wait()
        intruder["from"] = time.perf_counter()
        intruder["reply"] = ask(server, prompt, 1)
        intruder["to"] = time.perf_counter()

    def piece():
        moments.append(time.perf_counter())
        if len(moments) == 50:
            started.set()

    thread = threading.Thread(target=intrude)
    thread.start()
    # It goes on for as long as the prompt takes.
    while "to" not in intruder:
        ask(server, TEXT[:200], options.stream_tokens, on_piece=piece)
    thread.join()
    server.stop()
    beside = [b - a for a, b in zip(moments, moments[1:])
              if a >= intruder["from"] and b <= intruder["to"] and b - a < 5]
    result = {"prompt_tokens": options.prompt_tokens,
              "prefill_seconds": intruder["to"] - intruder["from"],
              "alone_p50": statistics.median(alone.gaps), "alone_p99": percentile(alone.gaps, 0.99),
              "beside_p50": statistics.median(beside), "beside_p99": percentile(beside, 0.99)}
    if intruder["reply"].status != 200:
        sys.exit(f"the long prompt failed: {intruder['reply'].error}")
    print(f"a prompt of {options.prompt_tokens} tokens took {result['prefill_seconds']:.1f} s "
          f"beside a stream\nbetween the stream's tokens, p50 / p99: alone "
          f"{milliseconds(result['alone_p50'])} / {milliseconds(result['alone_p99'])} ms, beside "
          f"it {milliseconds(result['beside_p50'])} / {milliseconds(result['beside_p99'])} ms "
          f"({result['beside_p99'] / result['alone_p99']:.2f} times)")
    return result


def question_command(options):
    """Alone and together in turns: a prompt, and a question of 20 tokens that comes 2 s later."""
    server = fasa(options.model[0], "--max-step-ms", str(options.max_step_ms), *options.flags)
    tokens = server.tokens_of(TEXT)
    length = options.prompt_tokens
    if length + 100 * options.rounds > len(tokens):
        sys.exit(f"the text has {len(tokens)} tokens: fewer --prompt-tokens or --rounds")
    rows = []

    def timed(*arguments):
        begin = time.perf_counter()
        reply = ask(server, *arguments)
        if reply.status != 200 or not reply.pieces:
            sys.exit(f"a request failed: {reply.error}")
        return reply, time.perf_counter() - begin

    for round_ in range(options.rounds):
        # No two prompts begin alike.
        prompts = [tokens[100 * round_ + 50 * i:][:length] for i in range(2)]
        questions = [tokens[-40 * round_ - 20 * i - 20:][:20] for i in range(2)]
        alone, question_seconds = timed(questions[0], 16)
        _, prompt_seconds = timed(prompts[0], 1)
        together = {}
        thread = threading.Thread(
            target=lambda: together.update(seconds=timed(prompts[1], 1)[1]))
        thread.start()
        time.sleep(2)
        beside, _ = timed(questions[1], 16)
        thread.join()
        rows.append({"alone_first": alone.first, "first": beside.first, "gaps": beside.gaps,
                     "alone_gaps": alone.gaps,
                     "prompt_alone": prompt_seconds, "prompt": together["seconds"],
                     "chunk": prompt_seconds / (length / 512),
                     "later": together["seconds"] / (prompt_seconds + question_seconds) - 1})
    server.stop()
    gaps = [gap for row in rows for gap in row["gaps"]]
    alone_gaps = [gap for row in rows for gap in row["alone_gaps"]]
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]
              if not key.endswith("gaps")}
    aim = 3 * middle["alone_first"] + middle["chunk"]
    print(f"a question of 20 tokens, 2 s into a prompt of {length} tokens, {len(rows)} rounds:\n"
          f"first token {milliseconds(middle['first'])} ms (worst "
          f"{milliseconds(max(row['first'] for row in rows))}); alone "
          f"{milliseconds(middle['alone_first'])}; a chunk {milliseconds(middle['chunk'])}; three "
          f"times alone and a chunk {milliseconds(aim)}\n"
          f"between its 16 tokens p50 / p99 {milliseconds(statistics.median(gaps))} / "
          f"{milliseconds(percentile(gaps, 0.99))} ms; alone "
          f"{milliseconds(statistics.median(alone_gaps))} / "
          f"{milliseconds(percentile(alone_gaps, 0.99))}; --max-step-ms {options.max_step_ms}\n"
          f"the prompt {middle['prompt']:.2f} s; alone {middle['prompt_alone']:.2f}; "
          f"{100 * middle['later']:+.1f} % beside its and the question's own time")
    return rows


def drop_from_cache(folder):
    """The files' pages leave the system's cache."""
    for path in pathlib.Path(folder).iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sessions_command(options):
    prompt = (TEXT * (options.prompt_tokens // len(TEXT) + 1))[:options.prompt_tokens]
    times = {"never seen": [], "in memory": [], "on disk, cached": [], "on disk, cold": []}
    disk = 0
    for round_ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            flags = ("--allow-long", "--max-context", str(options.prompt_tokens + 1024),
                     "--sessions-dir", folder + "/sessions", *options.flags)

            def first_token(server, question):
                reply = ask(server, f"[{round_}] " + prompt + question, 4)
                if reply.status != 200:
                    sys.exit(f"the prompt failed: {reply.error}")
                return reply.first
            server = fasa(options.model[0], *flags)
            times["never seen"].append(first_token(server, ""))
            times["in memory"].append(first_token(server, " Who was it?"))
            server.stop()
            disk = sum(path.stat().st_size for path in pathlib.Path(folder, "sessions").iterdir())
            for name in ("on disk, cached", "on disk, cold"):
                if name.endswith("cold"):
                    drop_from_cache(folder + "/sessions")
                server = fasa(options.model[0], *flags)
                times[name].append(first_token(server, f" And why, {name}?"))
                server.stop()
    print(f"a document of {options.prompt_tokens} characters, {disk / 2**20:.0f} MiB on disk; "
          f"time to the first token, median of {options.rounds}:")
    for name, seconds in times.items():
        print(f"| {name} | {milliseconds(statistics.median(seconds))} ms | "
              f"{milliseconds(min(seconds))} to {milliseconds(max(seconds))} |")
    return {"times": times, "disk_bytes": disk}


class Soak:
    """Clients that ask, leave early, break off and come back with a longer history. Each
    conversation has a secret in its prompt; no other may ever see it."""

    def __init__(self, server, options):
        self.server = server
        self.options = options
        self.lock = threading.Lock()
        self.left = {"short": options.short, "long": options.long}
        self.done = {"answered": 0, "broken off": 0, "refused": 0, "foreign": 0}
        self.samples = []  # (requests, resident bytes)
        self.between = max((options.short + options.long) // 200, 1)

    def take(self):
        with self.lock:
            kinds = [kind for kind, count in self.left.items() for _ in range(min(count, 1))]
            if not kinds:
                return None
            total = sum(self.left.values())
            kind = "long" if random.random() < self.left["long"] / total else "short"
            self.left[kind] -= 1
            return kind

    def count(self, what):
        with self.lock:
            self.done[what] += 1
            requests = sum(self.done.values())
            if requests % self.between == 0:
                self.samples.append((requests, self.server.memory()))
                if requests % 1000 == 0:
                    print(f"{requests} requests, {self.samples[-1][1] / 2**20:.1f} MiB",
                          file=sys.stderr)

    def client(self, number):
        chance = random.Random(number)
        history, secret = "", ""
        while kind := self.take():
            if not history or len(history) > 1500 or kind == "long" or chance.random() < 0.3:
                secret = f"{chance.getrandbits(40):010x}"
                at = chance.randrange(len(TEXT) - 9000)
                length = 7900 if kind == "long" else chance.randrange(20, 400)
                history = f"The secret is {secret}. " + TEXT[at:at + length]
            leave = chance.randrange(1, 8) if chance.random() < 0.15 else None
            reply = ask(self.server, history, chance.randrange(4, 24), stop_after=leave,
                        n=2 if leave is None and chance.random() < 0.05 else 1)
            if reply.status != 200:
                self.count("refused")
                continue
            others = set(re.findall(r"secret is ([0-9a-f]{10})", reply.text)) - {secret}
            if others:
                self.count("foreign")
            self.count("answered" if leave is None else "broken off")
            history = "" if kind == "long" else history + reply.text

    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,))
                   for i in range(self.options.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def slope(points):
    """Slope of the least-squares line, and its standard error."""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    square = sum((x - mean_x) ** 2 for x in xs)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points) / square
    rest = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in points)
    return rise, (rest / max(1, len(points) - 2) / square) ** 0.5


def soak_command(options):
    server = fasa(options.model[0], *options.flags)
    soak = Soak(server, options)
    begin = time.perf_counter()
    soak.run()
    steady = soak.samples[len(soak.samples) // 2:]  # budgets are full by then
    rise, error = slope(steady) if len(steady) > 2 else (float("nan"), float("nan"))
    result = {**soak.done, "seconds": time.perf_counter() - begin, "bytes_per_request": rise,
              "error": error, "samples": soak.samples}
    server.stop()
    print(f"{options.short} short and {options.long} long requests, {options.at_once} at once, in "
          f"{result['seconds']:.0f} s: "
          + ", ".join(f"{count} {what}" for what, count in soak.done.items())
          + f"\nresident memory over the second half: {rise:+.0f} bytes a request (standard error "
          f"{error:.0f}), {steady[0][1] / 2**20:.1f} to {steady[-1][1] / 2**20:.1f} MiB")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("clients", "intruder", "question", "sessions", "soak"))
    parser.add_argument("--model", nargs="+", default=[str(ROOT / "models/needle-3m")])
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[],
                        help="flags of fasa serve; all that follow")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--requests", type=int, default=10, help="requests per client")
    parser.add_argument("--prompts", nargs="+", type=int, default=[20, 250],
                        help="clients: tokens per prompt")
    parser.add_argument("--answers", nargs="+", type=int, default=[64, 256],
                        help="clients: tokens per answer")
    parser.add_argument("--rounds", type=int, default=1, help="servers take turns so often")
    parser.add_argument("--llama", metavar="PROGRAM",
                        help="clients: llama.cpp's server, with as many slots as clients")
    parser.add_argument("--prompt-tokens", type=int, default=100_000,
                        help="intruder, sessions: bytes")
    parser.add_argument("--max-step-ms", type=float, default=100, help="question: of the server")
    parser.add_argument("--stream-tokens", type=int, default=1000)
    parser.add_argument("--dir", help="sessions: where their folder is made")
    parser.add_argument("--short", type=int, default=20_000)
    parser.add_argument("--long", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    result = {"clients": clients_command, "intruder": intruder_command,
              "question": question_command, "sessions": sessions_command,
              "soak": soak_command}[options.command](options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
