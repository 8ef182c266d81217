"""tools/gpu-check as on a GPU machine, over stand-in programs that only report their arguments."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from support import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tests"))
from gpu_check import pack, steps  # noqa: E402

# Answers as the programs do. Environment: FAILS: exit statuses by part of a call; HANGS: part of a
# call; CASES: cases that a benchmark measures in one call; CASE_SECONDS: how long each takes.
PROGRAM = '''#!/usr/bin/env -S python3 -IS
import json, os, pathlib, sys, time
name = pathlib.Path(sys.argv[0]).name
words = sys.argv[1:]
call = " ".join([name, *words])
if "--help" in words:
    sys.exit(0)
for _ in range(6000 if "-lms" in words else 0):
    print("1500, 2600, 300.5, 40, 0x4", flush=True)
    time.sleep(0.01)
report = pathlib.Path(os.environ["OUT"]) / "report.json"
steps = json.loads(report.read_text())["steps"] if report.is_file() else {}
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps({"call": call, "steps": list(steps), "gpu": os.environ.get("FASA_REQUIRE_GPU"),
                      "libraries": os.environ.get("LD_LIBRARY_PATH", ""),
                      "packages": os.environ.get("PYTHONPATH", ""),
                      "data": os.environ.get("FASA_TEST_DATA", "")}), file=calls)
for part, status in json.loads(os.environ.get("FAILS", "{}")).items():
    if part in call:
        print("what is wrong", file=sys.stderr)
        sys.exit(status)
if os.environ.get("HANGS", "\\0") in call:
    print("begun", flush=True)
    os.execlp("sleep", "sleep", "600")
after = lambda flag: words[words.index(flag) + 1]
if name == "nvidia-smi":
    print(os.environ["FREE_MIB"] if "memory.free" in call else "1")
elif name == "compute-sanitizer":
    print("========= ERROR SUMMARY: 0 errors")
elif name == "ncu":
    print('==PROF== Connected')
    print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
    for value in ("1,000", "3,000", "2,000"):
        print(f'"0","SelectScan","gpu__time_duration.sum","nsecond","{value}"')
elif "--probe" in words:
    print("link 25.0 GB/s; launch 2.5 us")
    print(os.environ.get("GPU", "some GPU"))
elif name in ("gpu_bench", "gpu_model") and "--json" in words:
    file = pathlib.Path(after("--json"))
    found = json.loads(file.read_text()) if file.is_file() else {"results": {}}
    found["skipped"] = {}
    times = {"kernels_us": {"select": 20.0}, "kernel_floors_us": {"select": 5.0},
             "graphs": {"tpot_ms": 5.0}, "enqueued": {"tpot_ms": 6.0}, "prompt": {"ttft_s": 3.0},
             "trace": {"verdict": "Transfers are 91 % hidden."}}
    left = int(os.environ.get("CASES", "9"))
    for case in ("fasa-m/int2x64/131072/k320+all", "full/131072"):
        if case in found["results"]:
            continue
        if left == 0:
            found["skipped"][case] = "no time left"
            continue
        left -= 1
        time.sleep(float(os.environ.get("CASE_SECONDS", "0")))
        found["results"][case] = times
        file.write_text(json.dumps(found))
    file.write_text(json.dumps(found))
elif name == "fasa":
    kl = float(os.environ.get("GPU_KL", "0.001")) if "cuda:0" in words else 0.001
    method = {"method": "fasa 64", "tasks": [{}]}
    if words[1] == "ppl":
        method.update(perplexity=3.5, tasks=[{"against_full": {"kl": {"mean": kl}}}])
    else:
        method.update(accuracy=0.9)
    print(json.dumps({"methods": [method]}))
elif name == "gpu_peer.py":
    pathlib.Path(after("--json")).write_text('{"tokens": {}}')
'''
NAMES = [step.name for step in steps.STEPS]


class GpuCheck(CommandTest):
    def setUp(self):
        super().setUp()
        self.pack = self.folder / "gpu-check"
        self.tools = self.folder / "tools"
        (self.pack / "bin").mkdir(parents=True)
        self.tools.mkdir()
        shutil.copy(SOURCE / "tools/gpu-check", self.pack)
        shutil.copytree(SOURCE / "tests/gpu_check", self.pack / "gpu_check")
        (self.pack / "packed").write_text("0123abc\n")
        (self.pack / "data").mkdir()
        tests = ("device_contract", "cuda_pipeline", "cuda_graphs", "gpu_kernels", "cuda_model")
        for name in (*(f"{test}_test" for test in tests), "fasa", "gpu_bench", "gpu_model"):
            self.program(self.pack / "bin" / name)
        self.program(self.pack / "gpu_peer.py")
        for name in ("nvidia-smi", "compute-sanitizer", "ncu"):
            self.program(self.tools / name)
        self.out = self.folder / "out"
        self.calls_file = self.folder / "calls"

    def program(self, path):
        path.write_text(PROGRAM)
        path.chmod(0o755)

    def start(self, *arguments, free_mib=140000, **variables):
        self.calls_file.unlink(missing_ok=True)
        environment = os.environ | {
            "PATH": f"{self.tools}:{os.environ['PATH']}", "OUT": str(self.out),
            "CALLS": str(self.calls_file), "FREE_MIB": str(free_mib)}
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "FASA_TEST_DATA"):
            environment.pop(name, None)
        environment.update(variables)
        return subprocess.Popen([str(self.pack / "gpu-check"), "--out", str(self.out), *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def check(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        out, errors = process.communicate()
        self.status = process.returncode
        self.printed, self.errors = out.decode(), errors.decode()
        self.read()

    def read(self):
        lines = self.calls_file.read_text().splitlines() if self.calls_file.is_file() else []
        self.calls = [json.loads(line) for line in lines]
        self.report = json.loads((self.out / "report.json").read_text())
        self.log = (self.out / "all.log").read_text()

    def outcomes(self):
        return {step: entry["outcome"] for step, entry in self.report.get("steps", {}).items()}

    def called(self, part):
        return [call for call in self.calls if part in call["call"]]

    def test_one_complete_answer_in_two_files(self):
        self.check(CASE_SECONDS="0.3")  # long enough to be observed
        self.assertEqual(self.status, 0, self.errors)
        self.assertEqual(self.outcomes(), dict.fromkeys(NAMES, "passed"))
        self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                         ["all.log", "report.json"])
        self.assertEqual(self.report["commit"], "0123abc")
        self.assertGreater(self.report["machine"]["memory"]["MemTotal"], 0)
        self.assertIn("k320+all", self.printed)
        self.assertIn("0.25", self.printed)  # of the floor
        self.assertIn("Transfers are 91 % hidden.", self.printed)
        self.assertEqual(self.report["results"]["kernel counters"],
                         {"SelectScan": {"gpu__time_duration.sum [nsecond]": 2000.0}})
        self.assertEqual(self.report["results"]["dense peer"], {"tokens": {}})
        for name in NAMES:  # each program's output, behind its name
            self.assertIn(f"=== {name}", self.log)
        for flag in ("--trace", "--head-groups 1", "--small-pages", "--tool racecheck"):
            self.assertTrue(self.called(flag), flag)
        self.assertEqual(self.report["steps"]["model"]["gpu"]["power.draw"], [300.5] * 3)
        self.assertEqual(self.report["measured"], ["link 25.0 GB/s; launch 2.5 us"])
        self.assertIn("launch 2.5 us", self.errors)
        # Right results first; each step finds the report of those before it.
        self.assertEqual(list(self.outcomes()), NAMES)
        self.assertEqual(NAMES[:10], [
            "default scorer", "kernels", "device contract", "pipeline", "graphs", "logits",
            "kernel times", "model", "dense peer", "kernel counters"])
        self.assertEqual(NAMES[-4:], ["racecheck", "synccheck", "memcheck", "benchmarks"])
        self.assertEqual(self.called("gpu_peer")[0]["steps"], NAMES[:8])

    def test_what_tells_most_fits_in_15_minutes_even_if_each_step_takes_all_it_may(self):
        most = {step.name: step.most for step in steps.STEPS}
        self.assertLessEqual(sum(most[name] for name in NAMES[:6]), 7 * 60)
        self.assertLessEqual(sum(most[name] for name in NAMES[:9]), 14 * 60)

    def test_counters_are_those_of_decode_steps(self):
        self.check("--only", "kernel counters")
        call = self.called("ncu ")[0]["call"]
        for words in ("--no-kernel-times", "--no-graphs", "--kernel-name-base demangled"):
            self.assertIn(words, call)
        wanted = re.compile(call.split(" -k regex:")[1].split()[0])
        inner = "void fasa::cuda::run_kernel<fasa::cuda::{}>(T1)"
        for kernel in ("ScoreKernel", "FinishKernel", "TakeOutKernel", "ResolveKernel",
                       "FetchKernel", "ClaimSlotsKernel", "AttendPartialsKernel<(int)1>",
                       "AttendFoldKernel"):
            self.assertTrue(wanted.fullmatch(inner.format(kernel)), kernel)
        for kernel in ("AppendKernel", "WriteBackKernel", "PrefillTileKernel<(int)64>"):
            self.assertFalse(wanted.search(inner.format(kernel)), kernel)
        # Every launch of a decode step's select has a name that is known here.
        source = (SOURCE / "kernels/cuda/select/select_inl.h").read_text()
        for kernel in re.findall(r"(\w+Kernel)\{", source):
            self.assertTrue(wanted.fullmatch(inner.format(kernel)), kernel)

    def test_finished_steps_are_not_repeated(self):
        self.check("--only", "default scorer,peer")
        self.assertEqual(list(self.outcomes()), ["default scorer", "dense peer"])
        self.check("--only", "correctness")
        self.assertFalse(self.called("DefaultScorer"))
        self.assertTrue(self.called("cuda_graphs_test"))
        self.assertFalse(self.called("gpu_model"))
        self.check("--only", "default scorer", "--again")
        self.assertTrue(self.called("DefaultScorer"))
        self.assertEqual(self.outcomes()["graphs"], "passed")  # the others stay
        self.assertEqual(self.log.count("=== graphs"), 1)

    def test_results_of_another_gpu_or_commit_are_not_continued(self):
        self.check("--only", "peer")
        self.check("--only", "peer", GPU="another GPU")
        self.assertTrue(self.called("gpu_peer"))
        self.assertEqual(self.report["gpu"], "another GPU")
        (self.pack / "packed").write_text("4567def\n")
        self.check("--only", "graphs", GPU="another GPU")
        self.assertEqual(list(self.outcomes()), ["graphs"])

    def test_benchmarks_continue_where_they_were(self):
        self.change('"model", "model", 60', '"model", "model", 9')
        self.check("--only", "model", "--limit", "10s", CASES="1", CASE_SECONDS="1.5")
        self.assertEqual(self.status, 3)
        self.assertEqual(self.outcomes()["model"], "out of time: 1 cases left")
        self.check("--only", "model", CASES="1")
        self.assertEqual(self.status, 0, self.errors)
        self.assertEqual(len(self.report["results"]["model"]["results"]), 2)

    def test_a_step_at_its_own_limit_continues_after_the_others(self):
        self.change('"model", "model", 60, 240', '"model", "model", 1, 4')
        self.check("--only", "model,peer", "--limit", "60s", CASES="1")
        self.assertEqual(self.status, 0, self.errors)
        self.assertEqual(len(self.report["results"]["model"]["results"]), 2)
        self.assertEqual([call["call"].split()[0] for call in self.calls
                          if re.match("gpu_model --s|gpu_peer", call["call"])],
                         ["gpu_model", "gpu_peer.py", "gpu_model"])

    def test_a_longer_call_gives_each_step_more(self):
        for limit, seconds in (("15m", "180"), ("60m", "900")):
            self.check("--only", "model", "--again", "--limit", limit)
            words = self.called("gpu_model")[0]["call"].split()
            self.assertEqual(words[words.index("--seconds") + 1], seconds)

    def change(self, text, other):
        """In the packed steps."""
        file = self.pack / "gpu_check/steps.py"
        self.assertIn(text, file.read_text())
        file.write_text(file.read_text().replace(text, other))

    def test_a_benchmark_that_is_stopped_keeps_its_cases(self):
        self.change('"kernel times", "micro", 15', '"kernel times", "micro", 1')
        self.check("--only", "kernel times", "--limit", "12s", CASE_SECONDS="6")
        self.assertEqual(self.status, 3, self.errors)
        self.assertIn("out of time", self.outcomes()["kernel times"])
        self.assertEqual(len(self.report["results"]["kernel times"]["results"]), 1)

    def test_failures_do_not_end_the_run(self):
        self.check("--only", "graphs,logits", FAILS='{"cuda_graphs_test": 1}')
        self.assertEqual(self.status, 1)
        self.assertEqual(self.outcomes(), {"graphs": "failed (exit 1)", "logits": "passed"})
        self.assertIn("what is wrong", self.log)
        self.assertIn("what is wrong", self.report["steps"]["graphs"]["log"])

    def test_what_does_not_fit_is_no_failure(self):
        self.check("--only", "model", FAILS='{"gpu_model": 4}')
        self.assertEqual(self.status, 0)
        self.assertEqual(self.outcomes()["model"], "skipped: does not fit")

    def test_the_geometry_fits_the_free_memory(self):
        for free_mib, name in ((140000, "Llama-3.1-8B"), (15300, "Llama-3.2-3B"),
                               (7000, "Llama-3.2-1B"), (2000, None)):
            with self.subTest(free_mib=free_mib):
                self.check("--only", "model", "--again", free_mib=free_mib)
                self.assertEqual(self.status, 0)
                runs = self.called("gpu_model")
                if name is None:
                    self.assertEqual(runs, [])
                    self.assertIn("skipped", self.outcomes()["model"])
                    continue
                words = runs[0]["call"].split()
                self.assertEqual(words[words.index("--geometry") + 1], name)

    def test_host_memory_is_the_machines_and_not_what_is_free(self):
        self.check("--only", "model")
        words = self.called("gpu_model")[0]["call"].split()
        with open("/proc/meminfo", encoding="ascii") as file:
            total = int(file.readline().split()[1]) << 10
        self.assertEqual(int(words[words.index("--host-memory") + 1]),
                         max(1 << 30, total - (4 << 30)))
        self.check("--only", "model", "--again", "--host-memory", "100GiB")
        for program in ("gpu_bench --probe", "gpu_model"):
            self.assertIn(f"--host-memory {100 << 30}", self.called(program)[0]["call"])

    def test_answers_on_both_devices(self):
        self.check("--only", "answers")
        self.assertEqual(self.report["steps"]["answers"]["answers"]["cuda:0"]["ppl fasa 64"],
                         {"perplexity": 3.5, "kl": 0.001})
        self.check("--only", "answers", "--again", GPU_KL="0.01")
        self.assertEqual(self.status, 1)
        self.assertEqual(self.outcomes()["answers"],
                         "failed: ppl fasa 64: kl 0.01 on the GPU, 0.001 on the cpu")

    def test_nothing_changes_the_libraries_of_other_programs(self):
        self.check("--only", "correctness,peer,sanitizers")
        self.assertEqual({call["libraries"] for call in self.calls}, {""})

    def test_cublas_of_the_machines_own_packages(self):
        folder = self.folder / "site/nvidia/cu13/lib"
        folder.mkdir(parents=True)
        (folder / "libcublasLt.so.13").write_bytes(b"")
        self.check("--only", "logits,peer", PYTHONPATH=str(self.folder / "site"),
                   LD_LIBRARY_PATH="/own")
        self.assertEqual(self.called("cuda_model_test")[0]["libraries"], f"/own:{folder}")
        self.assertEqual(self.called("gpu_peer")[0]["libraries"], "/own")

    def test_a_pack_without_data(self):
        (self.pack / "data").rmdir()
        process = self.start("--only", "logits")
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 2)
        self.assertIn("FASA_TEST_DATA", errors.decode())
        self.check("--only", "logits,answers", FASA_TEST_DATA=str(SOURCE))
        self.assertEqual(self.status, 0, self.errors)
        self.assertEqual(self.called("cuda_model_test")[0]["data"], str(SOURCE))
        self.assertIn(f"--model {SOURCE}/models/needle-3m", self.called("fasa eval")[0]["call"])

    def test_a_sanitizer_that_is_refused_the_device(self):
        self.check("--only", "sanitizers", FAILS='{"compute-sanitizer": 1}')
        self.assertEqual(self.status, 0)
        for step in ("racecheck", "synccheck", "memcheck"):
            self.assertEqual(self.outcomes()[step],
                             "skipped: compute-sanitizer cannot run on this machine")

    def test_the_limit_holds_for_all_steps(self):
        begin = time.monotonic()
        self.check("--limit", "14s", HANGS="DefaultScorer")
        self.assertLess(time.monotonic() - begin, 60)  # not the 600 s that it hangs for
        self.assertEqual(self.status, 3)
        self.assertEqual(self.outcomes(), dict.fromkeys(NAMES, "out of time"))
        self.assertIn("begun", self.log)
        self.check("--only", "default scorer")  # the next call repeats it
        self.assertEqual(self.outcomes()["default scorer"], "passed")

    def test_a_step_that_takes_longer_than_it_may_is_neither_failed_nor_repeated(self):
        self.change('"graphs", "correctness", 10, 60', '"graphs", "correctness", 1, 2')
        self.check("--only", "graphs", HANGS="cuda_graphs_test")
        self.assertEqual(self.status, 4)
        self.assertEqual(self.outcomes()["graphs"], "timed out after 2 s")
        self.check("--only", "graphs")
        self.assertFalse(self.called("cuda_graphs_test"))

    def test_ending_it_ends_the_running_step(self):
        process = self.start(HANGS="DefaultScorer")
        while not (self.calls_file.is_file() and "DefaultScorer" in self.calls_file.read_text()):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 3)
        self.read()
        self.assertEqual(self.outcomes(), {})

    def test_packages_that_were_brought(self):
        self.check("--only", "peer")
        self.assertEqual(self.called("gpu_peer")[0]["packages"], "")
        (self.pack / "wheels").mkdir()
        (self.pack / "wheels/flashinfer-1-py3-none-any.whl").write_bytes(b"")
        self.program(self.tools / "python3")  # stands in for pip as well
        (self.tools / "python3").write_text(
            '#!/bin/bash\n[[ "$2" == pip ]] && echo "$@" >> "$OUT/pip" && exit 0\n'
            f'exec {sys.executable} "$@"\n')
        self.check("--only", "peer", "--again")
        self.assertIn("flashinfer-1", (self.out / "pip").read_text())
        self.assertIn("packages", self.called("gpu_peer")[0]["packages"])

    def test_no_gpu(self):
        self.check(FAILS='{"--probe": 1}')
        self.assertEqual(self.status, 5)
        self.assertIsNone(self.report["gpu"])
        self.assertIn("what is wrong", self.errors)
        self.check("--only", "peer")
        self.check(FAILS='{"--probe": 1}')  # earlier results stay
        self.assertEqual(self.outcomes(), {"dense peer": "passed"})

    def test_arguments_that_are_none(self):
        for words, text in ((["--limit", "9h"], "allowed: 540s, 9m"),
                            (["--host-memory", "9x"], "allowed: 100GiB"),
                            (["--only", "all"], "all: allowed: correctness, micro, model")):
            done = subprocess.run([str(self.pack / "gpu-check"), *words], stderr=subprocess.PIPE,
                                  check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr.decode())


class Pack(CommandTest):
    def test_the_size_is_checked(self):
        content = self.folder / "content"
        content.mkdir()
        noise = os.urandom(1 << 20)
        for name in ("a", "b"):  # stored once
            (content / name).write_bytes(noise)
        file = self.folder / "pack.tar.xz"
        self.assertTrue(pack.pack(self.folder, content, file))
        self.assertLess(file.stat().st_size, 1.1 * (1 << 20))
        for limit in ("MAX_PACK", "MAX_ALL"):
            with mock.patch.object(pack, limit, 1 << 20):
                self.assertFalse(pack.pack(self.folder, content, file), limit)

    def test_the_tree_travels_with_it(self):
        with mock.patch.object(pack, "write_archive",
                               lambda _, file: file.write_bytes(bytes(1 << 20))), \
                mock.patch.object(pack, "note") as note:
            pack.pack(SOURCE, self.folder, self.folder / "pack.tar.xz")
        tree = pack.tree_bytes(SOURCE)
        self.assertGreater(tree, 1 << 20)
        said = " ".join(call.args[0] for call in note.call_args_list)
        self.assertIn(f"1.0 MiB, allowed: 30; with the repository's tree ({tree / (1 << 20):.1f})",
                      said)
        self.assertIn("python3 -m tarfile -e pack.tar.xz", said)  # no program xz is needed
        self.assertLess(pack.MAX_PACK, pack.MAX_ALL)

    def test_data_is_left_out_on_demand(self):
        program = self.folder / "program"
        program.write_text(PROGRAM)
        with mock.patch.object(pack, "program_in", lambda *_: program), \
                mock.patch.object(pack, "install_libraries"):
            for data in (True, False):
                pack.assemble(SOURCE, self.folder / "pack", False, data)
                self.assertEqual((self.folder / "pack/data/models/texts/ruth.txt").is_file(), data)
                self.assertTrue((self.folder / "pack/gpu-check").is_file())

    def test_kernels_are_built_with_their_lines_on_demand(self):
        for lines, flags in ((True, "-lineinfo"), (False, "")):
            with mock.patch.object(pack.subprocess, "run") as run:
                run.return_value.returncode = 0
                pack.build(self.folder, ["90"], lines)
            self.assertIn(f"-DCMAKE_CUDA_FLAGS={flags}", run.call_args_list[0].args[0])


# gpu_bench on the emulated device, where this build has it.
BENCH = os.environ.get("FASA_GPU_BENCH", "")


@unittest.skipUnless(os.access(BENCH, os.X_OK), "gpu_bench is not built")
class Bench(CommandTest):
    def test_each_transfer_has_a_floor(self):
        file = self.folder / "results.json"
        cases = ["fasa-m/int2x64/2048/k320+all", "fasa-c/int2x64/2048/k320+1024"]
        subprocess.run([BENCH, "--device", "emulated", "--tokens", "2048", "--layers", "1",
                        "--steps", "2", "--budgets", "64", "--copy-bytes", "1048576",
                        "--no-copies", "--json", str(file), "--cases", *cases], check=True,
                       stdout=subprocess.DEVNULL)
        results = json.loads(file.read_text())["results"]
        self.assertEqual(list(results), sorted(cases))
        for case, found in results.items():
            for kernel in found["kernel_floors_us"]:
                self.assertIn(kernel, found["kernels_us"], case)
        self.assertIn("fetch", results[cases[0]]["kernel_floors_us"])
        self.assertGreater(results[cases[0]]["floor"]["transfer_share_of_h2d"], 0)
        self.assertNotIn("transfer_share_of_h2d", results[cases[1]]["floor"])

    def test_the_probe_prints_what_was_measured(self):
        done = subprocess.run([BENCH, "--device", "emulated", "--probe", "--no-kernel-times"],
                              check=True, stdout=subprocess.PIPE)
        self.assertRegex(done.stdout.decode(),
                         r"(?s)^link 25.0 GB/s; launch 2.7 us, .*\nemulated\n$")


if __name__ == "__main__":
    main()
