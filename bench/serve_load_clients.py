"""Many clients at once: what each waits, what all get, and the bound of the model's step times.

n clients that ask all the time get at most n answers in the time in which n prompts are read and
as many steps of n rows are made as an answer has tokens behind its first.
"""
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

from serve_load_server import ROOT, TEXT, ask, fasa, llama, milliseconds, percentile

STEP_TIMES = ROOT / "build/release/bench/step_times"
OTHER_TEXT = (ROOT / "models/texts/ruth.txt").read_text()
ENGINE = {"decode": "fasa_decode_step_seconds", "prompts": "fasa_prefill_step_seconds",
          "between": "fasa_between_decode_steps_seconds"}


def make_prompts(server, cases, rounds, requests):
    """For each round and case, texts of about so many tokens; no two begin alike, so that no
    server finds one in its cache."""
    tokens, made = server.tokens_of(TEXT), 0

    def prompt(length):
        nonlocal made
        made += 1
        head = server.tokens_of(f"{made}: ")
        at = made * 7919 % (len(tokens) - length)
        return server.text_of(head + tokens[at:at + max(0, length - len(head))])
    return [{case: [prompt(case[0]) for _ in range(case[2] * requests)] for case in cases}
            for _ in range(rounds)]


def step_times(model, prompt, answer, clients):
    """Milliseconds, and of processor time, that a prompt alone takes and a decode step by its rows;
    {}: not built."""
    if not STEP_TIMES.exists():
        print("no bound: build the target step_times", file=sys.stderr)
        return {}
    command = [STEP_TIMES, model, "--json", "--context", prompt + answer // 2, "--repeat", 7,
               "--chunks", prompt, "--sequences", *clients]
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE,
                                     text=True).stdout)


def bound_ms(times, prompt, answer, clients, kind):
    """The fewest milliseconds a token, by step times of that kind."""
    if not times:
        return float("nan")
    whole = (clients * times["prefill" + kind][str(prompt)] +
             (answer - 1) * times["decode" + kind][str(clients)])
    return whole / (clients * answer)


def engine_times(server):
    """Seconds of the server's work so far, by kind, and its decode steps."""
    times = {kind: server.metrics(name + "_sum") for kind, name in ENGINE.items()}
    return {**times, "steps": server.metrics(ENGINE["decode"] + "_count")}


def run_clients(server, prompts, clients, answer):
    """Each client asks for its share of the prompts, one after the other."""
    replies, lock = [], threading.Lock()

    def client(number):
        for prompt in prompts[number::clients]:
            reply = ask(server, prompt, answer, ignore_eos=True)
            with lock:
                replies.append(reply)

    begin, own, served = time.perf_counter(), time.process_time(), server.cpu_seconds()
    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    own, served = time.process_time() - own, server.cpu_seconds() - served
    failed = [reply for reply in replies if reply.status != 200 or not reply.pieces]
    if failed:
        sys.exit(f"{len(failed)} of {len(replies)} requests failed: {failed[0].error}")
    gaps = [gap for reply in replies for gap in reply.gaps]
    firsts = [reply.first for reply in replies]
    tokens = sum(reply.usage.get("completion_tokens", len(reply.pieces)) for reply in replies)
    cached = sum(reply.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
                 for reply in replies)
    return {"requests": len(replies), "tokens": tokens, "seconds": took, "cached_tokens": cached,
            "prompt_tokens": sum(reply.usage.get("prompt_tokens", 0) for reply in replies),
            "ttft_p50": statistics.median(firsts), "ttft_p99": percentile(firsts, 0.99),
            "gap_p50": statistics.median(gaps), "gap_p99": percentile(gaps, 0.99),
            "clients_cpu": own / took, "server_cpu_ms": 1e3 * served / tokens,
            "tokens_per_second": tokens / took}


def run_row(server, name, prompts, clients, answer):
    before = engine_times(server) if name == "fasa" else {}
    row = run_clients(server, prompts, clients, answer)
    if before:
        after = engine_times(server)
        spent = {key: after[key] - before[key] for key in before}
        row["rows_per_step"] = (row["tokens"] - row["requests"]) / spent["steps"]
        row["step_ms"] = 1e3 * spent["decode"] / spent["steps"]
        row |= {kind: spent[kind] / row["seconds"] for kind in ENGINE}
    return row


def run_cases(model, options, round_, texts):
    servers = [("fasa", lambda: fasa(model, *options.flags))]
    if options.llama and model.endswith(".gguf"):
        slots, context = max(options.clients), max(options.prompts) + max(options.answers) + 64
        servers.append(("llama.cpp", lambda: llama(options.llama, model, slots, context)))
    times = {kind: step_times(model, *kind, options.clients) for kind in
             itertools.product(options.prompts, options.answers)}
    for name, start in servers if round_ % 2 == 0 else reversed(servers):
        server = start()
        ask(server, OTHER_TEXT[:500], 8)  # pages of weights come in
        for (prompt, answer, clients), prompts in texts.items():
            steps = times[prompt, answer]
            row = {"model": pathlib.Path(model).name, "prompt": prompt, "answer": answer,
                   "clients": clients, "server": name, "round": round_, "step_times": steps,
                   "bound": 1e3 / bound_ms(steps, prompt, answer, clients, "_ms"),
                   "bound_cpu_ms": bound_ms(steps, prompt, answer, clients, "_cpu_ms"),
                   "bound_step_ms": steps.get("decode_ms", {}).get(str(clients), float("nan")),
                   **run_row(server, name, prompts, clients, answer)}
            print(f"{row['model'][:40]}, {name}, {prompt} + {answer} tokens, {clients} clients: "
                  f"{row['tokens_per_second']:.0f} tokens/s, bound {row['bound']:.0f}",
                  file=sys.stderr)
            yield row
        server.stop()


KEYS = ("model", "prompt", "answer", "clients", "server")


def print_tables(rows):
    cases = {}
    for row in rows:
        cases.setdefault(tuple(row[key] for key in KEYS), []).append(row)
    middles = {case: {key: statistics.median(row[key] for row in same)
                      for key, value in same[0].items() if isinstance(value, (int, float))}
               for case, same in cases.items()}
    print("| model | prompt, answer | clients | server | tokens/s | beside the fewest clients "
          "| of the bound | TTFT p50 / p99, ms | between tokens p50 / p99, ms "
          "| clients' processor time |\n|---|---|---|---|---|---|---|---|---|---|")
    for case, row in sorted(middles.items()):
        model, prompt, answer, clients, server = case
        rates = [one["tokens_per_second"] for one in cases[case]]
        spread = f" ({min(rates):.0f} to {max(rates):.0f})" if len(rates) > 1 else ""
        fewest = min(other for other in middles if (*other[:3], other[4]) == (
            model, prompt, answer, server))
        times = row["tokens_per_second"] / middles[fewest]["tokens_per_second"]
        print(f"| {model} | {prompt}, {answer} | {clients} | {server} "
              f"| {row['tokens_per_second']:.0f}{spread} | {times:.2f} "
              f"| {row['tokens_per_second'] / row['bound']:.2f} of {row['bound']:.0f} "
              f"| {milliseconds(row['ttft_p50'])} / {milliseconds(row['ttft_p99'])} "
              f"| {milliseconds(row['gap_p50'])} / {milliseconds(row['gap_p99'])} "
              f"| {100 * row['clients_cpu']:.0f} % |")
    print("\n| model | prompt, answer | clients | rows a step | step, ms | T(clients), ms "
          "| decode steps | prompts | between steps | rest | processor time a token, ms "
          "| of the steps alone |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    for case, row in sorted(middles.items()):
        if "step_ms" not in row:
            continue
        shares = [row[kind] for kind in ENGINE]
        print(f"| {case[0]} | {case[1]}, {case[2]} | {case[3]} | {row['rows_per_step']:.1f} "
              f"| {row['step_ms']:.1f} | {row['bound_step_ms']:.1f} | "
              + " | ".join(f"{100 * share:.0f} %" for share in [*shares, 1 - sum(shares)])
              + f" | {row['server_cpu_ms']:.1f} | {row['bound_cpu_ms']:.1f} |")
    if cached := sum(row["cached_tokens"] for row in rows):
        prompt_tokens = sum(row["prompt_tokens"] for row in rows)
        print(f"\n{cached} of {prompt_tokens} prompt tokens were cached")


def clients_command(options):
    cases = list(itertools.product(options.prompts, options.answers, options.clients))
    rows = []
    for model in options.model:
        server = fasa(model)
        texts = make_prompts(server, cases, options.rounds, options.requests)
        server.stop()
        for round_ in range(options.rounds):
            rows += run_cases(model, options, round_, texts[round_])
    print_tables(rows)
    return rows
