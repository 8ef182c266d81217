"""tools/gpu-check as on a GPU machine, over stand-in programs that only report their arguments."""
import json
import os
import shutil
import subprocess
import time

from support import SOURCE, CommandTest, main

PROGRAM = '''#!/usr/bin/env -S python3 -IS
import json, os, pathlib, sys
name = pathlib.Path(sys.argv[0]).name
words = sys.argv[1:]
call = " ".join([name, *words])
report = pathlib.Path(os.environ["OUT"]) / "report.json"
steps = json.loads(report.read_text())["steps"] if report.is_file() else {}
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps({"call": call, "steps": list(steps), "gpu": os.environ.get("FASA_REQUIRE_GPU"),
                      "libraries": os.environ.get("LD_LIBRARY_PATH", "")}), file=calls)
for part, status in json.loads(os.environ.get("FAILS", "{}")).items():
    if part in call:
        print("what is wrong", file=sys.stderr)
        sys.exit(status)
if os.environ.get("HANGS", "\\0") in call:
    os.execlp("sleep", "sleep", "600")
if name == "nvidia-smi":
    print(os.environ["FREE_MIB"] if "memory.free" in call else "1")
elif name == "compute-sanitizer":
    print("========= ERROR SUMMARY: 0 errors")
elif "--probe" in words:
    print("some GPU")
elif "--json" in words and name == "gpu_bench":
    result = {"kernels_us": {"select": 20.0}, "kernel_floors_us": {"select": 5.0}}
    pathlib.Path(words[words.index("--json") + 1]).write_text(
        json.dumps({"results": {"fasa-m/int2x64/131072/k320+1024": result}}))
elif name == "fasa":
    print(json.dumps({"prefill": {"seconds": 3.0},
                      "decode": {"step_ms": [100.0] * 128 + [5.0] * 127 + [9.0]}}))
elif name == "gpu_peer.py":
    pathlib.Path(words[words.index("--json") + 1]).write_text("{}")
'''


class GpuCheck(CommandTest):
    def setUp(self):
        super().setUp()
        self.pack = self.folder / "gpu-check"
        self.tools = self.folder / "tools"
        (self.pack / "bin").mkdir(parents=True)
        self.tools.mkdir()
        shutil.copy(SOURCE / "tools/gpu-check", self.pack)
        (self.pack / "packed").write_text("0123abc\n")
        tests = ("device_contract", "cuda_pipeline", "cuda_graphs", "gpu_kernels", "cuda_model")
        for name in (*(f"{test}_test" for test in tests), "fasa", "gpu_bench"):
            self.program(self.pack / "bin" / name)
        self.program(self.pack / "gpu_peer.py")
        for name in ("nvidia-smi", "compute-sanitizer"):
            self.program(self.tools / name)

    def program(self, path):
        path.write_text(PROGRAM)
        path.chmod(0o755)

    def check(self, *arguments, free_mib=140000, **variables):
        out = self.folder / "out"
        calls = self.folder / "calls"
        environment = os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}", "OUT": str(out),
                                    "CALLS": str(calls), "FREE_MIB": str(free_mib), **variables}
        done = subprocess.run([str(self.pack / "gpu-check"), "--out", str(out), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                              check=False)
        self.calls = [json.loads(line) for line in calls.read_text().splitlines()]
        self.report = json.loads((out / "report.json").read_text())
        self.out = out
        return done

    def outcomes(self):
        return {step: entry["outcome"] for step, entry in self.report.get("steps", {}).items()}

    def called(self, part):
        return [call for call in self.calls if part in call["call"]]

    def test_one_complete_answer(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(list(self.outcomes()), [
            "default scorer", "kernels", "device contract", "pipeline", "graphs", "kernel times",
            "models", "racecheck", "synccheck", "memcheck", "Llama-3.1-8B 131000",
            "Llama-3.1-8B 131000 without graphs", "Llama-3.1-8B 131000 without prefetch",
            "dense peer", "benchmarks"])
        # The first steps of a run measure and capture: the speed is that of the last 128.
        self.assertEqual(self.report["steps"]["Llama-3.1-8B 131000"]["tpot_ms"], 5.0)
        self.assertEqual(self.report["commit"], "0123abc")
        self.assertIn("k320+1024", done.stdout.decode())
        self.assertIn("0.25", done.stdout.decode())  # of the floor
        for step in ("racecheck", "synccheck", "memcheck"):
            self.assertTrue((self.out / "logs" / f"{step}.log").is_file())
        self.assertEqual(len(self.called("--tool racecheck")), 1)
        for flag in ("--graphs off", "--depth 0", "--preset fasa-m"):
            self.assertTrue(self.called(flag), flag)

    def test_each_step_finds_the_report_of_those_before(self):
        self.check()
        bench = self.called("gpu_bench --seconds")[-1]
        self.assertIn("dense peer", bench["steps"])
        self.assertEqual(self.called("DefaultScorer")[0]["steps"], [])

    def test_libraries_are_for_its_own_programs_alone(self):
        self.check()
        for call in self.calls:
            mine = call["call"].split()[0] not in ("nvidia-smi", "gpu_peer.py")
            self.assertEqual(f"{self.pack}/lib" in call["libraries"], mine, call["call"])

    def test_failures_do_not_end_the_run(self):
        done = self.check(FAILS='{"cuda_graphs_test": 1}')
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.outcomes()["graphs"], "failed (exit 1)")
        self.assertEqual(self.outcomes()["benchmarks"], "passed")
        self.assertIn(b"what is wrong", done.stderr)
        self.assertIn("what is wrong", (self.out / "logs/graphs.log").read_text())

    def test_what_does_not_fit_is_no_failure(self):
        done = self.check(FAILS='{"fasa generate": 4}')
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.outcomes()["Llama-3.1-8B 131000"], "skipped: does not fit")

    def test_the_geometry_fits_the_free_memory(self):
        for free_mib, name in ((140000, "Llama-3.1-8B"), (15300, "Llama-3.2-3B"),
                               (7000, "Llama-3.2-1B"), (2000, None)):
            with self.subTest(free_mib=free_mib):
                (self.folder / "calls").unlink(missing_ok=True)
                done = self.check(free_mib=free_mib)
                self.assertEqual(done.returncode, 0)
                runs = self.called("fasa generate")
                if name is None:
                    self.assertEqual(runs, [])
                    self.assertIn("skipped", self.outcomes()["model 131000"])
                    continue
                words = runs[0]["call"].split()
                self.assertEqual(words[words.index("--geometry") + 1], name)
                limit = int(words[words.index("--device-memory") + 1])
                self.assertLess(limit, free_mib << 20)

    def test_a_sanitizer_that_is_refused_the_device(self):
        done = self.check(FAILS='{"compute-sanitizer": 1}')
        self.assertEqual(done.returncode, 0)
        for step in ("racecheck", "synccheck", "memcheck"):
            self.assertEqual(self.outcomes()[step],
                             "skipped: compute-sanitizer cannot run on this machine")

    def test_the_limit_holds_for_all_steps(self):
        begin = time.monotonic()
        done = self.check("--limit", "15s", HANGS="DefaultScorer")
        self.assertLess(time.monotonic() - begin, 60)  # not the 600 s that it hangs for
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.outcomes()["default scorer"], "out of time")
        self.assertEqual(self.outcomes()["benchmarks"], "out of time")

    def test_no_gpu(self):
        done = self.check(FAILS='{"--probe": 1}')
        self.assertEqual(done.returncode, 5)
        self.assertIsNone(self.report["gpu"])
        self.assertIn(b"what is wrong", done.stderr)

    def test_limits_that_are_none(self):
        done = subprocess.run([str(self.pack / "gpu-check"), "--limit", "9h"],
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"allowed: 540s, 9min", done.stderr)


if __name__ == "__main__":
    main()
