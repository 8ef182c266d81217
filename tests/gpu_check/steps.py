"""The steps of a check, in order: first whether results are right, then what is worth most a
second."""

import csv
import io
import json
import os
import shutil
import statistics
import subprocess
from pathlib import Path

from gpu_check.machine import smi
from gpu_check.report import note

GIB = 1 << 30
BUDGET_EXIT = 4  # of fasa, gpu_bench and gpu_model: a memory limit is too small
DOES_NOT_FIT = {BUDGET_EXIT: "does not fit"}
NO_TIME = "no time left"  # of gpu_bench and gpu_model, for a case
DEFAULT_CASES = ["k320+all", "full/"]  # what runs by default, and its baseline
FASA_M = "fasa-m/int2x64/131072/k320+all"
CONTEXT = 131000


class Step:
    def __init__(self, name, group, least, most, run):
        self.name = name
        self.group = group
        self.least = least  # seconds without which it is not begun
        self.most = most    # and after which it is stopped, or continues when others had their turn
        self.run = run  # takes (machine, step); writes the outcome


def finish(machine, step, ran, outcome=None, **values):
    machine.report.outcome(step.name, outcome or ran.outcome(DOES_NOT_FIT), ran.seconds, ran.log,
                           **values)


# --- tests ---


def tests(program, gtest_filter):
    def run(machine, step):
        finish(machine, step, machine.run(step.name, step.most, machine.command(
            program, f"--gtest_filter={gtest_filter}")))
    return run


def sanitizer_program():
    for path in (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer",
                 "/usr/local/cuda/compute-sanitizer/compute-sanitizer"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def sanitizer(flags, program, gtest_filter):
    def run(machine, step):
        tool = sanitizer_program()
        if tool is None:
            machine.report.outcome(step.name,
                                   "skipped: compute-sanitizer is not installed on this machine")
            return
        # Some sandboxes deny this program the device: that is no failure of the kernels.
        probe = machine.run("sanitizer probe", 60, [
            tool, "--tool", "memcheck", "--error-exitcode", "77",
            *machine.command("gpu_kernels_test", "--gtest_filter=*SmallRestore*")])
        if probe.status is None:
            finish(machine, step, probe)
        elif probe.status not in (0, 77) or "ERROR SUMMARY" not in probe.log:
            finish(machine, step, probe, "skipped: compute-sanitizer cannot run on this machine")
        else:
            finish(machine, step, machine.run(step.name, step.most, [
                tool, *flags, "--error-exitcode", "1",
                *machine.command(program, f"--gtest_filter={gtest_filter}")]))
    return run


# --- benchmarks that continue from their results ---


def continued(machine, step, program, *words):
    """Runs a benchmark on the results of earlier calls. Returns (the run, all results, the number
    of new ones)."""
    file = machine.work / f"{step.name.replace(' ', '-')}.json"
    earlier = machine.report.values.get("results", {}).get(step.name, {})
    if earlier:
        file.write_text(json.dumps(earlier))
    # The program must have time to end the case that it is in.
    seconds = max(1, min(step.most, machine.left()) - step.least)
    if machine.host_memory:
        words = (*words, "--host-memory", machine.host_memory)
    ran = machine.run(step.name, step.most, machine.command(
        program, "--seconds", f"{seconds:.0f}", "--json", file, *words))
    found = json.loads(file.read_text()) if file.is_file() else {}
    machine.report.values.setdefault("results", {})[step.name] = found
    return ran, found, len(found.get("results", {})) - len(earlier.get("results", {}))


def finish_continued(machine, step, ran, found, new):
    """The step is done once no case was left out for want of time, or a call brought nothing."""
    waiting = [name for name, why in found.get("skipped", {}).items() if why == NO_TIME]
    if ran.status == 0 and waiting:
        outcome = f"out of time: {len(waiting)} cases left"
    elif ran.status is None and new > 0:
        outcome = f"out of time: stopped after {ran.seconds:.0f} s"
    else:
        outcome = None
    finish(machine, step, ran, outcome)


def bench(*words):
    def run(machine, step):
        ran, found, new = continued(machine, step, "gpu_bench", *words)
        print_kernels(found)
        print_projections(found)
        finish_continued(machine, step, ran, found, new)
    return run


def print_kernels(results):
    rows = [(case, kernel, times["kernels_us"][kernel], floor)
            for case, times in results.get("results", {}).items()
            for kernel, floor in times.get("kernel_floors_us", {}).items()
            if kernel in times["kernels_us"]]
    if rows:
        print(f"{'case':32}  {'kernel':12}{'us a layer':>12}{'floor, us':>12}{'share':>8}")
    for case, kernel, us, floor in rows:
        print(f"{case:32}  {kernel:12}{us:12.1f}{floor:12.1f}{floor / us if us else 0:8.2f}")


def print_projections(results):
    rows = results.get("projections", {})
    if rows:
        print(f"{'packed weights / rows':32}{'us':>12}{'floor, us':>12}{'share':>8}")
    for name, times in rows.items():
        print(f"{name:32}{times['us']:12.1f}{times['floor_us']:12.1f}{times['share']:8.2f}")


# --- a whole model ---

# Bytes of weights in bf16 (embeddings stay on the host), largest first.
MODELS = [("Llama-3.1-8B", 14 * GIB), ("Llama-3.2-3B", 6 * GIB), ("Llama-3.2-1B", 2 * GIB)]


def chosen_model():
    """The largest geometry whose weights, slices and a chunk of prompt fit, with a tenth left
    over; None: there is none."""
    text = smi("memory.free")
    free = int(text) << 20 if text.isdigit() else 0
    for name, weights in MODELS:
        slices = CONTEXT * 9216 * weights // (14 * GIB)  # int2 over all FCs, 8 B: 9 KiB a token
        if free == 0 or 1.1 * (weights + slices + 1.5 * GIB) < free:
            return name
    return None


def model(machine, step):
    name = chosen_model()
    if name is None:
        machine.report.outcome(step.name, "skipped: no geometry fits the free memory")
        return
    ran, found, new = continued(machine, step, "gpu_model", "--geometry", name, "--tokens",
                                CONTEXT, "--trace", machine.report.folder / "trace.json")
    # The notice that cuBLASLt is missing.
    found.setdefault("projections",
                     "our kernels" if "libcublasLt" in ran.log else "cuBLASLt")
    for case, result in found.get("results", {}).items():
        prompt = result.get("prompt")
        first = f", first token after {prompt['ttft_s']:.1f} s" if prompt else ""
        print(f"{case:32}{result['graphs']['tpot_ms']:8.2f} ms a token, "
              f"{result['enqueued']['tpot_ms']:.2f} without graphs{first}")
        if "trace" in result:
            print(f"{'':32}{result['trace']['verdict']}")
    finish_continued(machine, step, ran, found, new)


# --- answers on the GPU beside those of the processor ---

# The needle model computes in f32 on both, and sums in another order: single tokens differ, means
# hardly do.
MAX_PERPLEXITY = 0.005  # relative difference
MAX_KL = 0.002          # nats, between the two mean differences from full attention
MAX_ACCURACY = 0.1      # of the questions


def evaluate(machine, step, device, task, words):
    data = machine.data / "models"
    ran = machine.run(f"{step.name}: {task} on {device}", step.most, machine.command(
        "fasa", "eval", task, "--model", data / "needle-3m", "--text", data / "texts" / "ruth.txt",
        "--device", device, "--selections", "fasa,full", "--budgets", "64+256", "--results",
        machine.work / f"{task}-{device}", "--fresh", "--json", *words))
    if ran.status != 0:
        return ran, {}
    values = {}
    for method in json.loads(ran.out)["methods"]:
        against = method["tasks"][0].get("against_full", {})
        found = {"perplexity": method.get("perplexity"), "accuracy": method.get("accuracy"),
                 "kl": against.get("kl", {}).get("mean")}
        values[f"{task} {method['method']}"] = {
            name: value for name, value in found.items() if value is not None}
    return ran, values


def answers(machine, step):
    tasks = {"ppl": ["--context", 2048, "--examples", 1],
             "needle": ["--context", 2048, "--examples", 4]}
    found = {"cuda:0": {}, "cpu": {}}
    log, seconds = "", 0.0
    for device, values in found.items():
        for task, words in tasks.items():
            ran, new = evaluate(machine, step, device, task, words)
            log += ran.log
            seconds += ran.seconds
            if ran.status != 0:
                finish(machine, step, ran, answers=found)
                return
            values.update(new)
    wrong = differences(found["cuda:0"], found["cpu"])
    outcome = f"failed: {'; '.join(wrong)}" if wrong else "passed"
    machine.report.outcome(step.name, outcome, seconds, log, answers=found)


def differences(gpu, cpu):
    wrong = []
    if not cpu or gpu.keys() != cpu.keys():
        wrong.append("the devices ran different methods")
    for method in gpu.keys() & cpu.keys():
        for name, ours in gpu[method].items():
            theirs = cpu[method].get(name, float("inf"))
            most = {"perplexity": MAX_PERPLEXITY * theirs, "kl": MAX_KL,
                    "accuracy": MAX_ACCURACY}[name]
            if not abs(ours - theirs) <= most:
                wrong.append(f"{method}: {name} {ours:.6g} on the GPU, {theirs:.6g} on the cpu")
    return sorted(wrong)


# --- other programs ---


def brought_packages(machine):
    """A folder with the packages of gpu-check/wheels, or None."""
    wheels = sorted((machine.root / "wheels").glob("*.whl"))
    if not wheels:
        return None
    target = machine.work / "packages"
    ran = machine.run("packages", 120, [
        "python3", "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile",
        "--target", target, *wheels])
    if ran.status != 0:
        note(f"the packages in {machine.root / 'wheels'} cannot be installed")
        return None
    return str(target)


def peer(machine, step):
    """Dense attention of other libraries, in the machine's own Python."""
    environment = dict(os.environ)  # with the machine's own libraries
    packages = brought_packages(machine)
    if packages:
        environment["PYTHONPATH"] = packages
    file = machine.work / "peer.json"
    ran = machine.run(step.name, step.most, [shutil.which("python3"),
                                             machine.root / "gpu_peer.py", "--json", file],
                      environment)
    found = json.loads(file.read_text()) if file.is_file() else {}
    machine.report.values.setdefault("results", {})[step.name] = found
    finish(machine, step, ran, ran.outcome({5: "no PyTorch with CUDA on this machine"}))


METRICS = ["gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
           "sm__inst_executed.avg.per_cycle_active", "l1tex__data_bank_conflicts_pipe_lsu.sum"]


# Kernels of a decode step: the context before is filled by others (append, write back).
DECODE_KERNELS = (".*(Score|Finish|TakeOut|Resolve|Fetch|ClaimSlots|Gather|Attend)"
                  "[A-Za-z]*Kernel.*")
WARM_UP = 60  # launches of three steps over two layers


def profile(machine, step):
    """Each kernel of a layer by itself: a timeline has one entry for a select of five kernels.
    Without graphs, and without the kernels that a device runs when it is opened."""
    tool = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not os.access(tool, os.X_OK):
        machine.report.outcome(step.name, "skipped: ncu is not installed on this machine")
        return
    ran = machine.run(step.name, step.most, [
        tool, "--clock-control", "none", "--target-processes", "all", "--metrics",
        ",".join(METRICS), "--kernel-name-base", "demangled", "-k", f"regex:{DECODE_KERNELS}",
        "-s", str(WARM_UP), "-c", "60", "--csv",
        *machine.command("gpu_bench", "--tokens", 131072, "--budgets", 256, "--steps", 8,
                         "--layers", 2, "--no-copies", "--no-kernel-times", "--no-graphs",
                         "--cases", FASA_M)])
    kernels = kernel_metrics(ran.out)
    machine.report.values.setdefault("results", {})[step.name] = kernels
    for name, values in kernels.items():
        print(f"{name[:60]:62}{values}")
    if ran.status == 0 and not kernels:
        finish(machine, step, ran, "skipped: ncu read no counters on this machine")
    elif ran.status not in (0, None) and "ERR_NVGPUCTRPERM" in ran.log:
        finish(machine, step, ran, "skipped: ncu may not read counters on this machine")
    else:
        finish(machine, step, ran)


def kernel_metrics(text):
    """Median of each metric by kernel, from ncu's CSV lines."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return {}
    values = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[begin:]))):
        try:
            number = float(row["Metric Value"].replace(",", ""))
            key = f"{row['Metric Name']} [{row['Metric Unit']}]"
            values.setdefault(row["Kernel Name"], {}).setdefault(key, []).append(number)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return {kernel: {metric: statistics.median(numbers) for metric, numbers in metrics.items()}
            for kernel, metrics in values.items()}


BENCH_128K = ["--tokens", 131072, "--budgets", 256, "--steps", 10]

STEPS = [
    Step("default scorer", "correctness", 10, 60,
         tests("gpu_kernels_test", "*DefaultScorer:*SmallCodedSelect:*LowBitSelectByDefault")),
    Step("kernels", "correctness", 15, 120, tests("gpu_kernels_test", "*")),
    Step("device contract", "correctness", 10, 60, tests("device_contract_test", "Gpu/*")),
    Step("pipeline", "correctness", 10, 60, tests("cuda_pipeline_test", "*OnGpu*")),
    Step("graphs", "correctness", 10, 60, tests("cuda_graphs_test", "*OnGpu*")),
    Step("logits", "correctness", 10, 60, tests("cuda_model_test", "*OnGpu*")),
    Step("kernel times", "micro", 15, 70, bench(*BENCH_128K, "--cases", *DEFAULT_CASES)),
    Step("model", "model", 60, 240, model),
    Step("dense peer", "peer", 15, 60, peer),
    Step("kernel counters", "profile", 20, 60, profile),
    Step("answers", "correctness", 15, 60, answers),
    Step("one head group", "micro", 10, 40,
         bench(*BENCH_128K, "--no-copies", "--head-groups", 1, "--cases", FASA_M)),
    Step("small pages", "micro", 15, 40, bench(*BENCH_128K, "--small-pages", "--cases", FASA_M)),
    Step("racecheck", "sanitizers", 30, 300,
         sanitizer(["--tool", "racecheck"], "gpu_kernels_test", "*Small*")),
    Step("synccheck", "sanitizers", 30, 200,
         sanitizer(["--tool", "synccheck"], "gpu_kernels_test", "*Small*")),
    Step("memcheck", "sanitizers", 30, 300,
         sanitizer(["--tool", "memcheck", "--track-stream-ordered-races", "all"],
                   "cuda_pipeline_test", "*OnGpu*")),
    Step("benchmarks", "bench", 20, 500, bench("--no-copies")),
]
GROUPS = list(dict.fromkeys(step.group for step in STEPS))


def choose(names):
    """The steps of these names or groups; all without names. ValueError: no such step."""
    known = {*GROUPS, *(step.name for step in STEPS)}
    for name in names:
        if name not in known:
            raise ValueError(f"{name}: allowed: {', '.join(GROUPS)}; or a step: "
                             f"{', '.join(step.name for step in STEPS)}")
    return [step for step in STEPS if not names or step.name in names or step.group in names]
