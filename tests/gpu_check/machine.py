"""Runs programs on the GPU machine until one deadline, and observes the GPU meanwhile."""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from gpu_check.report import note


def smi(fields):
    """The line of nvidia-smi's answer; "unknown" without one."""
    try:
        answer = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={fields}",
                                 "--format=csv,noheader,nounits"], capture_output=True, text=True,
                                timeout=20)
        return answer.stdout.strip() if answer.returncode == 0 else "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def meminfo():
    """Bytes by name, for the lines that say what can be pinned and in which pages."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemFree", "MemAvailable", "Hugepagesize"):
            values[name] = int(value.split()[0]) << 10
        elif name.startswith("HugePages_"):
            values[name] = int(value)
    return values


class Observer:
    """Clocks and power twice a second, by one nvidia-smi, so that throttling shows."""

    NUMBERS = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu"]
    REASONS = "clocks_throttle_reasons.active"  # not every driver has this name

    def __init__(self):
        self.samples = []  # (time, values)
        self.process = None
        self.fields = [*self.NUMBERS, self.REASONS]
        if smi(",".join(self.fields)) == "unknown":
            self.fields = self.NUMBERS
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(self.fields)}",
                 "--format=csv,noheader,nounits", "-lms", "500"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
        except OSError:
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.samples.append((time.monotonic(), [word.strip() for word in line.split(",")]))

    def between(self, begin, end):
        """Least, median and most of each number, and the reasons for which clocks were low."""
        taken = [values for when, values in list(self.samples) if begin <= when <= end
                 and len(values) == len(self.fields)]
        found = {}
        for i, field in enumerate(self.NUMBERS):
            numbers = []
            for values in taken:
                try:
                    numbers.append(float(values[i]))
                except ValueError:
                    pass
            if numbers:
                found[field] = [min(numbers), statistics.median(numbers), max(numbers)]
        if taken and self.REASONS in self.fields:
            found["throttle_reasons"] = sorted({values[-1] for values in taken})
        return found

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Ran:
    """What a program left behind. status None: it was stopped, by its own limit or the call's."""

    def __init__(self, status, seconds, out, log, late):
        self.status = status
        self.seconds = seconds
        self.out = out
        self.log = log  # both outputs
        self.late = late  # the call's time was over, not the program's

    def outcome(self, skips=None):
        """In words. `skips`: reasons for exit statuses that are no failure."""
        if self.status is None:
            return "out of time" if self.late else f"timed out after {self.seconds:.0f} s"
        if self.status == 0:
            return "passed"
        reason = (skips or {}).get(self.status)
        return f"skipped: {reason}" if reason else f"failed (exit {self.status})"


def cublas_folder():
    """Where pip has put cuBLASLt, as beside PyTorch; None: elsewhere or nowhere."""
    for place in map(Path, filter(None, sys.path)):
        for found in sorted(place.glob("nvidia/*/lib/libcublasLt.so.*"), reverse=True):
            return found.parent
    return None


class Machine:
    def __init__(self, root, report, limit, host_memory):
        self.root = root
        self.data = Path(os.environ.get("FASA_TEST_DATA") or root / "data")
        self.report = report
        self.deadline = time.monotonic() + limit
        self.host_memory = host_memory
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.process = None
        self.loader = []
        self.environment = dict(os.environ, FASA_REQUIRE_GPU="1", FASA_TEST_DATA=str(self.data))
        folder = cublas_folder()
        if folder is not None:  # behind the user's own and the packed one
            paths = [self.environment.get("LD_LIBRARY_PATH"), str(folder)]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        if subprocess.run([root / "bin" / "gpu_bench", "--help"],
                          capture_output=True).returncode != 0:
            note("this machine's C library is too old for the programs: using the packed one")
            paths = [f"{root}/lib", f"{root}/libc",
                     *self.environment.get("LD_LIBRARY_PATH", "").split(":"),
                     "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
            self.loader = [f"{root}/libc/ld-linux-x86-64.so.2", "--library-path",
                           ":".join(path for path in paths if path)]

    def left(self):
        return self.deadline - time.monotonic()

    def command(self, program, *words):
        return [*self.loader, str(self.root / "bin" / program), *map(str, words)]

    def run(self, title, most, command, environment=None):
        """Runs a command for `most` seconds, or what is left of the call's time."""
        limit = min(most, self.left() - 2)
        begin = time.monotonic()
        self.report.log(f"\n=== {title}: {' '.join(map(str, command))}\n")
        if limit <= 0:
            return Ran(None, 0.0, "", "", late=True)
        with tempfile.TemporaryFile(dir=self.work) as out, \
                tempfile.TemporaryFile(dir=self.work) as errors:
            self.process = subprocess.Popen(command, env=environment or self.environment,
                                            stdout=out, stderr=errors, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
            try:
                status = self.process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self.stop()
                texts = []
                for file in (out, errors):
                    file.seek(0)
                    texts.append(file.read().decode(errors="replace"))
                self.report.log("".join(texts))
        return Ran(status, time.monotonic() - begin, texts[0], "".join(texts), late=limit < most)

    def stop(self):
        """Ends the running program and all that it started."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None

    def close(self):
        self.stop()
        shutil.rmtree(self.work, ignore_errors=True)
