#!/usr/bin/env python3
"""Load on `fasa serve`: times that clients see, a long prompt beside a stream, and a soak.

    bench/serve_load.py clients --model DIR...   TTFT, time between tokens, tokens a second with 1,
                                                 4 and 16 clients at once; with --llama the same
                                                 GGUF files on llama-cpp-python's server, by turns
    bench/serve_load.py intruder --model DIR     the effect of a long prompt on another stream
    bench/serve_load.py question --model DIR     the wait of a short question behind a long prompt
    bench/serve_load.py sessions --model DIR     the first token of a document's next question:
                                                 never seen, in memory, and on disk after a
                                                 restart, its pages in the system's cache and out
                                                 of it
    bench/serve_load.py soak --model DIR         thousands of requests with cancels, broken
                                                 connections and conversations: is memory flat, and
                                                 does a client get another's text

Needs the release build. For --llama: tools/python-env && tools/peers-env, then
    PYTHONPATH=build/peers build/venv/bin/python bench/serve_load.py clients --llama ...
Times are the clients'; --json FILE keeps all of them.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FASA = ROOT / "build/release/fasa"
TEXT = (ROOT / "models/texts/revelation.txt").read_text()
STARTED = re.compile(r"at http://127\.0\.0\.1:(\d+)")
ANSWER = 64  # tokens


class Server:
    """A process that speaks the API on a port of its own."""

    def __init__(self, command, port=None):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("FASA_")}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, env=variables)
        self.log = []
        self.port = port
        if port is None:
            for line in self.process.stderr:
                self.log.append(line)
                if found := STARTED.search(line):
                    self.port = int(found[1])
                    break
            else:
                sys.exit("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=self.drain, daemon=True).start()
        while not self.answers():
            if self.process.poll() is not None:
                sys.exit("the server did not start:\n" + "".join(self.log[-20:]))
            time.sleep(0.2)

    def drain(self):
        for line in self.process.stderr:
            self.log.append(line)

    def answers(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def memory(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def fasa(model, *flags):
    return Server([FASA, "serve", "--model", model, "--port", "0", *flags])


def llama(model, context):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Server([sys.executable, "-m", "llama_cpp.server", "--model", model, "--port", str(port),
                   "--n_ctx", str(context), "--flash_attn", "true", "--n_threads",
                   str(os.cpu_count()), "--interrupt_requests", "false"], port)


class Reply:
    """A streamed answer and when its pieces came, seconds since it was asked."""

    def __init__(self):
        self.pieces = []  # (seconds, text)
        self.status = None
        self.error = None

    text = property(lambda self: "".join(piece for _, piece in self.pieces))
    first = property(lambda self: self.pieces[0][0])
    gaps = property(lambda self: [b[0] - a[0] for a, b in zip(self.pieces, self.pieces[1:])])


def ask(server, prompt, tokens=ANSWER, stop_after=None, on_piece=None, **fields):
    """`stop_after` pieces the connection is broken."""
    reply = Reply()
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=900)
    begin = time.perf_counter()
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply.status = response.status
        if response.status != 200:
            reply.error = response.read().decode(errors="replace")
            return reply
        for line in response:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            choices = json.loads(line[6:]).get("choices")
            if not choices or not choices[0].get("text"):
                continue
            reply.pieces.append((time.perf_counter() - begin, choices[0]["text"]))
            if on_piece:
                on_piece()
            if stop_after is not None and len(reply.pieces) >= stop_after:
                break
    except OSError as error:
        reply.error = str(error)
    finally:
        connection.close()
    return reply


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run_clients(server, clients, rounds, characters):
    """Each client asks `rounds` times, one question after the other; no two share a prefix."""
    replies, lock = [], threading.Lock()

    def client(number):
        for turn in range(rounds):
            at = (number * 7919 + turn * 104729) % (len(TEXT) - characters - 64)
            reply = ask(server, f"[{number}.{turn}] " + TEXT[at:at + characters])
            with lock:
                replies.append(reply)

    begin = time.perf_counter()
    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    failed = [reply for reply in replies if reply.status != 200 or not reply.pieces]
    if failed:
        sys.exit(f"{len(failed)} of {len(replies)} requests failed: {failed[0].error}")
    gaps = [gap for reply in replies for gap in reply.gaps]
    firsts = [reply.first for reply in replies]
    return {"clients": clients, "requests": len(replies),
            "ttft_p50": statistics.median(firsts), "ttft_p99": percentile(firsts, 0.99),
            "gap_p50": statistics.median(gaps), "gap_p99": percentile(gaps, 0.99),
            "tokens_per_second": sum(len(reply.pieces) for reply in replies) / took}


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def clients_command(options):
    rows = []
    for model in options.model:
        ways = [("fasa", lambda: fasa(model, *options.flags))]
        if options.llama and model.endswith(".gguf"):
            ways.append(("llama.cpp", lambda: llama(model, options.llama_context)))
        for round_ in range(options.rounds):
            for name, start in ways if round_ % 2 == 0 else reversed(ways):
                server = start()
                run_clients(server, 1, 1, options.characters)  # pages of weights come in
                for count in options.clients:
                    row = run_clients(server, count, options.requests, options.characters)
                    rows.append({"model": pathlib.Path(model).name, "server": name,
                                 "round": round_, **row})
                    print(f"{rows[-1]['model'][:40]}, {name}, {count} clients: "
                          f"{row['tokens_per_second']:.0f} tokens/s", file=sys.stderr)
                server.stop()
    print("| model | server | clients | TTFT p50 / p99, ms | between tokens p50 / p99, ms "
          "| tokens/s |\n|---|---|---|---|---|---|")
    keys = sorted({(row["model"], row["server"], row["clients"]) for row in rows})
    for model, server, count in keys:
        same = [row for row in rows
                if (row["model"], row["server"], row["clients"]) == (model, server, count)]
        middle = {key: statistics.median(row[key] for row in same)
                  for key in ("ttft_p50", "ttft_p99", "gap_p50", "gap_p99", "tokens_per_second")}
        print(f"| {model} | {server} | {count} | {milliseconds(middle['ttft_p50'])} / "
              f"{milliseconds(middle['ttft_p99'])} | {milliseconds(middle['gap_p50'])} / "
              f"{milliseconds(middle['gap_p99'])} | {middle['tokens_per_second']:.0f} |")
    return rows


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


def tokens_of(server, text):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/tokenize", json.dumps({"content": text}))
    return json.loads(connection.getresponse().read())["tokens"]


def question_command(options):
    """Alone and together in turns: a prompt, and a question of 20 tokens that comes 2 s later."""
    server = fasa(options.model[0], "--max-step-ms", str(options.max_step_ms), *options.flags)
    tokens = tokens_of(server, TEXT)
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
            if requests % 100 == 0:
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
    parser.add_argument("--requests", type=int, default=4, help="requests per client")
    parser.add_argument("--rounds", type=int, default=1, help="servers take turns so often")
    parser.add_argument("--characters", type=int, default=1000, help="characters per prompt")
    parser.add_argument("--llama", action="store_true")
    parser.add_argument("--llama-context", type=int, default=8192)
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
