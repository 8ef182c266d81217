"""The examples in C and C++, compiled against the installed package and run.

  example_programs_test.py BUILD SOURCE [SANITIZERS]
"""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "bindings"))
from installed_package import SOURCE, InstalledPackage, run  # pylint: disable=wrong-import-position


class CExample(InstalledPackage):
    def test_shared_prompt(self):
        program = self.compile(SOURCE / "examples/shared_prompt.c", "shared_prompt")
        output = run(program, env=self.environment)
        self.assertIn("out[0][0] = 1.000, both sequences have 4097 tokens", output)


class CppExample(InstalledPackage):
    compiler = "c++"
    standard = "-std=c++20"

    def test_decode(self):
        program = self.compile(SOURCE / "examples/decode.cc", "decode")
        self.assertIn("4112 tokens, 16 decode steps", run(program, env=self.environment))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
