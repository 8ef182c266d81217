"""The scripts beside the command, as far as they can run within a test."""
import os
import subprocess

from support import FASA, SOURCE, CommandTest, main


def script(name, *arguments, **options):
    return subprocess.run([str(SOURCE / "tools" / name), *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


class Setup(CommandTest):
    def with_packages(self, status):
        """A dpkg-query that knows one answer, before the real one; apt-get would leave a trace."""
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
        self.assertIn(b"everything is there", done.stdout)

    def test_without_check_it_installs(self):
        done = script("setup", env=self.with_packages("not-installed"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "changed").exists())

    def test_unknown_arguments(self):
        self.assertEqual(script("setup", "--chek").returncode, 2)
        self.assertEqual(script("test", "--fast").returncode, 2)
        self.assertEqual(script("peers-env", "--fast").returncode, 2)


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


class Demo(CommandTest):
    def test_ends_with_the_table(self):
        done = subprocess.run(["python3", str(SOURCE / "tools/demo.py"), "--fasa", FASA, "--texts",
                               "1k"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        text = done.stdout.decode()
        for part in ("KV bytes on the device", "time per output token", "rows fetched per step",
                     "hit rate", "right answers", "4 of 4"):
            self.assertIn(part, text)


if __name__ == "__main__":
    main()
