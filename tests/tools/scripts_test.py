"""The scripts beside the command, as far as a test can run them."""
import json
import os
import runpy
import shutil
import subprocess
import sys

from support import FASA, SOURCE, CommandTest, main


def script(name, *arguments, **options):
    return subprocess.run([str(SOURCE / "tools" / name), *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


class Setup(CommandTest):
    def with_packages(self, status):
        """A dpkg-query that knows one answer, found before the real one; an apt-get that would
        leave a file."""
        folder = self.folder / f"bin-{status.replace(' ', '-')}"
        folder.mkdir()
        for name, text in (("dpkg-query", f"#!/bin/sh\nprintf '%s' '{status}'\n"),
                           ("apt-get", f"#!/bin/sh\ntouch {self.folder}/changed\n"),
                           ("sudo", f"#!/bin/sh\ntouch {self.folder}/changed\n")):
            path = folder / name
            path.write_text(text)
            path.chmod(0o755)
        return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_check_names_what_is_missing_and_changes_nothing(self):
        done = script("setup", "--check", env=self.with_packages("config-files"))
        self.assertEqual(done.returncode, 1)
        for package in (b"cmake", b"libdnnl-dev", b"libtomlplusplus-dev", b"libbenchmark-dev"):
            self.assertIn(package, done.stdout)
        self.assertFalse((self.folder / "changed").exists())

    def test_check_is_content_when_all_is_there(self):
        done = script("setup", "--check", env=self.with_packages("installed"))
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"everything is installed", done.stdout)

    def test_without_check_it_installs(self):
        done = script("setup", env=self.with_packages("not-installed"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "changed").exists())

    def test_unknown_arguments(self):
        self.assertEqual(script("setup", "--chek").returncode, 2)
        for argument in ("--fast", "--all=9/8", "--all=10/9", "--all=3"):
            self.assertEqual(script("test", argument).returncode, 2)
        self.assertEqual(script("env", "peers", "--fast").returncode, 2)

    def test_the_long_run_says_its_parts(self):
        lines = script("test", "--parts").stdout.decode().splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         [f"--all={i}/9" for i in range(1, 10)])


class Configure(CommandTest):
    def test_a_build_without_the_python_package_says_so(self):
        done = subprocess.run(
            ["cmake", "-S", SOURCE, "-B", self.folder / "build", "-G", "Ninja", "-DFASA_PYTHON=OFF",
             "-DFASA_TESTS=OFF", "-DFASA_BENCH=OFF"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"The Python package is not built", done.stdout)
        self.assertIn(b"tools/env python", done.stdout)


class Checks(CommandTest):
    def test_the_include_rule(self):
        self.assertEqual(script("check-includes", "--self-test").returncode, 0)
        done = script("check-includes")
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_the_include_rule_finds_a_breach(self):
        (self.folder / "kernels").mkdir()
        self.write("kernels/a.h", '#include "offload/device.h"\n')
        done = script("check-includes", self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"kernels/a.h:1", done.stdout)


class KernelsFromPtx(CommandTest):
    """The reports over what executed PTX, without nvcc."""

    def coverage(self, architecture, kernel, body, bits):
        entry = f"_ZN10run_kernelIN4fasa4cuda{len(kernel)}{kernel}E"
        folder = self.folder / "ptx" / architecture
        folder.mkdir(parents=True, exist_ok=True)
        runs = self.folder / "runs"
        runs.mkdir(exist_ok=True)
        (folder / "append.ptx").write_text(
            f".visible .entry {entry}(\n\t.param .b8 p[8]\n)\n{{\n{body}\n}}\n")
        for i, line in enumerate(bits):
            (runs / f"{architecture}-{i}").write_text(f"{entry} {line}\n")
        return script("ptx-coverage", self.folder / "ptx", runs, "--missing")

    def test_instructions_of_all_runs_count(self):
        done = self.coverage("90", "AppendKernel", "ret;", ["1100", "0100", "0010"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.decode(), r"append +90 +1 +1 +0 +75%")

    def test_kernels_that_did_not_run_are_named(self):
        self.coverage("90", "AppendKernel", "ret;", ["1"])
        done = self.coverage("90", "GatherKernel", "ret;", [])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.decode(), r"not executed: .*GatherKernel")

    def test_traps_count_but_in_what_old_gpus_never_launch(self):
        done = self.coverage("90", "AppendKernel", "trap;", ["1"])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.decode(), r"has a trap: .*AppendKernel")
        self.coverage("90", "AppendKernel", "ret;", ["1"])
        self.assertEqual(
            self.coverage("75", "ProjectTileKernel", "trap;", ["1"]).returncode, 0)
        self.assertEqual(self.coverage("75", "AppendKernel", "trap;", ["1"]).returncode, 1)

    def test_usage(self):
        self.assertEqual(script("ptx-coverage").returncode, 2)
        self.assertEqual(script("ptx-mutants", "norm").returncode, 2)
        self.assertEqual(script("test-ptx", "norm").returncode, 2)

    def test_each_mutation_changes_one_line(self):
        code = runpy.run_path(str(SOURCE / "tools/ptx-mutants"))
        for mutation, text, expected in (
                ("removed", "bar.sync \t0;", "// removed;"),
                ("removed", "mov.b32 \t%r1, %r2;", None),
                ("inverted", "setp.lt.s32 \t%p1, %r1, 4;", "setp.ge.s32 \t%p1, %r1, 4;"),
                ("exchanged", "add.s32 \t%r1, %r2, 3;", "sub.s32 \t%r1, %r2, 3;"),
                ("shifted", "ld.shared.b32 \t%r1, [%r2+8];", "ld.shared.b32 \t%r1, [%r2+12];"),
                ("shifted", "ld.shared.v4.b32 \t{%r1, %r2, %r3, %r4}, [%r5];", None),
                ("choice_swapped", "selp.b32 \t%r1, %r2, 5, %p1;", "selp.b32 \t%r1, 5, %r2, %p1;"),
                ("fused_swapped", "fma.rn.f32 \t%r1, %r2, %r3, %r4;",
                 "fma.rn.f32 \t%r1, %r4, %r3, %r2;"),
                ("other_mask", "bar.warp.sync \t-1;", "bar.warp.sync \t65535;"),
                ("guard_negated", "@%p1 bra \t$L__BB0_2;", "@!%p1 bra \t$L__BB0_2;")):
            self.assertEqual(code[mutation](text), expected, mutation)

    def test_the_lines_that_ran(self):
        code = runpy.run_path(str(SOURCE / "tools/ptx-mutants"))
        runs = self.folder / "runs"
        runs.mkdir()
        (runs / "90-1").write_text("other 1\nkernel 1011\n")
        text = [".visible .entry kernel(", ")", "{", "\t.reg .b32 \t%r<3>;", "\tmov.b32 \t%r1, 5;",
                "$L__BB0_1:", "\tadd.s32 \t%r1, %r1, 1; // twice", "\t{cvt.rn.f16.f32 a, b;}",
                "\tret;", "}"]
        self.assertEqual(code["executed_lines"](text, runs), [4, 8])


class Naming(CommandTest):
    """tools/check-naming in a small tree with its own cache."""

    def setUp(self):
        super().setUp()
        for name in ("tools/check-naming", "tools/recent_changes.py", "cmake/unity_groups.py",
                     ".clang-tidy"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE / name, self.folder / name)
        (self.folder / "runtime").mkdir()
        (self.folder / "build").mkdir()
        self.write("runtime/name.h", "inline int good_name() { return 1; }\n")
        self.write("runtime/name.cc",
                   '#include "runtime/name.h"\nint other() { return good_name(); }\n')
        self.write("runtime/apart.cc", "int apart() { return 2; }\n")
        flags = f"env A=b ccache c++ -I{self.folder} -include none.h -Winvalid-pch"
        self.write("build/compile_commands.json", json.dumps([
            {"directory": str(self.folder / "build"),
             "file": str(self.folder / f"runtime/{name}.cc"),
             "command": f"{flags} -o {name}.o -c {self.folder}/runtime/{name}.cc"}
            for name in ("name", "apart")]))

    def check(self, *flags):
        done = subprocess.run([str(self.folder / "tools/check-naming"), *flags, "build"],
                              cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False,
                              env=os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache")})
        return done.returncode, done.stdout

    def test_what_passed_is_known_until_it_changes(self):
        status, text = self.check()
        self.assertEqual(status, 0, text)
        self.assertIn("2 sources", text)
        self.assertIn("(0 of them known", text)
        self.assertIn("(2 of them known", self.check()[1])
        self.write("runtime/name.h", "inline int good_name() { return 2; }\n")
        self.assertIn("(1 of them known", self.check()[1])

    def test_a_bad_name_is_found_again_and_again(self):
        self.write("runtime/name.h", "inline int BadName() { return 1; }\n")
        self.write("runtime/name.cc",
                   '#include "runtime/name.h"\nint other() { return BadName(); }\n')
        for _ in range(2):
            status, text = self.check()
            self.assertEqual(status, 1)
            self.assertIn("runtime/name.h:1", text)
            self.assertIn("BadName", text)


    def commit(self, date):
        identity = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER")
                    for what, text in (("NAME", "n"), ("EMAIL", "n@localhost"), ("DATE", date))}
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "tests: names"]):
            subprocess.run(["git", *words], cwd=self.folder, check=True,
                           env=os.environ | identity)

    def test_recent_takes_what_changed_in_the_last_hours(self):
        self.commit("2026-01-01T00:00:00Z")
        self.write("runtime/apart.cc", "int apart() { return 3; }\n")
        self.commit("2026-01-01T08:00:00Z")
        self.assertIn("1 sources", self.check("--recent")[1])
        self.write("runtime/name.h", "inline int BadName() { return 1; }\n")
        status, text = self.check("--recent")
        self.assertEqual(status, 1)
        self.assertIn("runtime/name.h:1", text)


class Fuzz(CommandTest):
    """tools/fuzz --least with programs that end at once, two processors and a build that does
    nothing."""

    def setUp(self):
        super().setUp()
        for name in ("tools", "bin", "tests/m", "build/fuzz/tests/m", "cache/fasa/fuzz"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(SOURCE / "tools/fuzz", self.folder / "tools/fuzz")
        self.write("build/fuzz/build.ninja", "")
        self.program("bin/clang++", "")
        self.program("bin/nproc", "echo 2")
        self.program("bin/cmake", "")
        for seconds, name in enumerate("hgfedcba"):
            self.write(f"tests/m/fuzz_{name}.cc", "")
            self.program(f"build/fuzz/tests/m/fuzz_{name}",
                         "echo stat::number_of_executed_units: 7")
            if seconds > 0:
                self.write(f"cache/fasa/fuzz/fuzz_{name}.runs", f"100 {seconds} abc\n100 5 abc\n")

    def program(self, name, text):
        self.write(name, f"#!/bin/sh\n{text}\n").chmod(0o755)

    def fuzz(self, *arguments):
        done = subprocess.run(
            [self.folder / "tools/fuzz", *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, check=False, timeout=60,
            env=os.environ | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                              "XDG_CACHE_HOME": str(self.folder / "cache")})
        return done.returncode, done.stdout

    def test_the_targets_that_ran_least_are_taken_and_counted(self):
        status, text = self.fuzz("--least", "7")
        self.assertEqual(status, 0, text)
        self.assertIn("6 targets, 2 s each", text)
        ran = {line[5] for line in text.splitlines() if line.endswith("s of processor time")}
        self.assertEqual(ran, set("hgfedc"))
        runs = (self.folder / "cache/fasa/fuzz/fuzz_g.runs").read_text().splitlines()
        self.assertEqual([line.split()[0] for line in runs], ["100", "100", "7"])

    def test_a_failing_target_is_the_status(self):
        self.program("build/fuzz/tests/m/fuzz_h", "exit 77")
        self.assertEqual(self.fuzz("--least", "7")[0], 1)

    def test_a_build_that_takes_too_long_is_left(self):
        self.program("bin/cmake", "sleep 30")
        self.assertEqual(self.fuzz("--least", "2")[0], 3)

    def test_bad_arguments(self):
        for arguments in (["--least", "soon"], ["--least", "9", "fuzz_a"], ["0"]):
            self.assertEqual(self.fuzz(*arguments)[0], 2)


class Report(CommandTest):
    JUNIT = """<testsuite>
<testcase name="golden_test" status="run"><system-out>a_test.cc:7: Skipped
a small machine
</system-out></testcase>
<testcase name="gpu_test" status="notrun"><skipped message="no GPU"/></testcase>
<testcase name="eval_test" status="{status}"><system-out>skipped Eval.x: no jieba
SKIPPED [2] models_test.py:3: no torch
</system-out></testcase>
</testsuite>"""

    def report(self, status):
        self.write("0-release.xml", self.JUNIT.format(status=status))
        self.write("left-out", "the long run: hours\n")
        return subprocess.run([sys.executable, str(SOURCE / "tools/test_report.py"),
                               str(self.folder)],
                              stdout=subprocess.PIPE, text=True, check=False)

    def test_skips_are_named_and_the_count_comes_last(self):
        done = self.report("run")
        self.assertEqual(done.returncode, 0)
        for line in ("1 of golden_test (release): a small machine",
                     "1 of gpu_test (release): no GPU", "1 of eval_test (release): no jieba",
                     "2 of eval_test (release): models_test.py:3: no torch", "the long run: hours"):
            self.assertIn(line, done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed")

    def test_a_failure_is_its_status(self):
        done = self.report("fail")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed")


class Demo(CommandTest):
    def test_the_bundled_models_part(self):
        text = self.assert_done("demo", "--quick").stdout.decode()
        for part in ("fasa eval needle", "a whole step", "KV cache on the device", "16 of 16",
                     "Next:"):
            self.assertIn(part, text)


if __name__ == "__main__":
    main()
