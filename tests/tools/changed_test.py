"""tools/test --changed in a small project of its own: two libraries, a program of two tests and one
of a single test, built by ninja."""
import re
import shutil
import subprocess

from support import SOURCE, CommandTest, main

FILES = {
    "CMakePresets.json": """{"version": 5, "configurePresets": [
 {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}",
  "cacheVariables": {"CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}},
 {"name": "asan", "inherits": "release"}]}""",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
enable_testing()
include_directories(.)
add_library(deep STATIC lib/deep.cc)
add_library(upper STATIC lib/upper.cc)
target_link_libraries(upper PUBLIC deep)
add_executable(pair_tests tests/main.cc tests/first_test.cc tests/second_test.cc)
target_link_libraries(pair_tests PRIVATE upper)
add_executable(deep_test tests/deep_test.cc)
target_link_libraries(deep_test PRIVATE deep)
foreach(name first second)
  add_test(NAME ${name}_test COMMAND pair_tests --only=${name}_test)
endforeach()
add_test(NAME deep_test COMMAND deep_test)
add_test(NAME script_test COMMAND true ${CMAKE_SOURCE_DIR}/tests/script_test.py)
set_tests_properties(script_test PROPERTIES LABELS tools)
""",
    "lib/deep.h": "int deep();\n",
    "lib/deep.cc": '#include "lib/deep.h"\nint deep() { return 0; }\n',
    "lib/upper.h": "int upper();\n",
    "lib/upper.cc": '#include "lib/deep.h"\n#include "lib/upper.h"\n'
                    "int upper() { return deep(); }\n",
    "tests/main.cc": "int first();\nint second();\nint main() { return first() + second(); }\n",
    "tests/first_test.cc": '#include "lib/upper.h"\nint first() { return upper(); }\n',
    "tests/second_test.cc": "int second() { return 0; }\n",
    "tests/deep_test.cc": '#include "lib/deep.h"\nint main() { return deep(); }\n',
    "tests/script_test.py": "",
    "tools/script": "",
    ".gitignore": "build/\n",
}


class Changed(CommandTest):
    def setUp(self):
        super().setUp()
        for name, text in FILES.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            self.write(name, text)
        shutil.copy(SOURCE / "tools/test-changed", self.folder / "tools/test-changed")
        self.git("init", "-q", "-b", "main")
        self.commit()
        self.git("checkout", "-q", "-b", "change")
        for command in (["cmake", "--preset", "release"], ["ninja", "-C", "build/release"]):
            subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
                       cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A change")

    def append(self, name, text="\n"):
        self.write(name, FILES.get(name, "") + text)

    def changed(self, *arguments):
        """(exit status, tests in the order in which they ran, all output)"""
        done = subprocess.run([self.folder / "tools/test-changed", *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              cwd=self.folder)
        return done.returncode, re.findall(r"Start +\d+: (\w+)", done.stdout), done.stdout

    def order(self, *arguments):
        status, ran, text = self.changed(*arguments, "--preset", "release")
        self.assertEqual(status, 0, text)
        return ran

    def test_the_nearest_tests_come_first(self):
        self.assertIn("nothing changed since main", self.changed()[2])
        # Its own source, then the program that it is linked into.
        self.append("tests/second_test.cc")
        self.assertEqual(self.order(), ["second_test", "first_test"])
        self.commit()  # committed or not, it differs from main
        self.assertEqual(self.order(), ["second_test", "first_test"])
        self.assertIn("nothing changed since HEAD", self.changed("HEAD")[2])
        # A test that includes a changed header, then one that is linked with it.
        self.append("lib/upper.h")
        self.assertEqual(self.order("HEAD"), ["first_test", "second_test"])
        self.commit()
        # A library: the nearer it is in the link line, the sooner.
        self.append("lib/deep.cc")
        self.assertEqual(self.order("HEAD"), ["deep_test", "first_test", "second_test"])
        self.commit()
        # What is not compiled has a label, or is named by the test's command.
        self.append("tools/script")
        self.assertEqual(self.order("HEAD"), ["script_test"])
        self.commit()
        self.append("tests/script_test.py")
        self.assertEqual(self.order("HEAD"), ["script_test"])
        self.commit()
        self.write("tests/notes.txt", "nothing depends on it\n")
        self.assertEqual(self.order("HEAD"), [])

    def test_all_presets_run_and_the_rest_is_listed(self):
        self.append("tests/deep_test.cc")
        text = self.changed("--seconds", "0.001")[2]
        self.assertIn("not known: 3 tests of asan, whose programs were never built", text)
        subprocess.run(["ninja", "-C", "build/asan"], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        status, ran, text = self.changed("--seconds", "0.001")
        self.assertEqual((status, ran), (0, []), text)
        self.assertIn("  not reached: deep_test (release)\n  not reached: deep_test (asan)\n", text)
        self.assertIn("0 passed, 0 failed, 2 not reached", text)
        status, ran, text = self.changed("--seconds", "0")
        self.assertEqual((status, ran), (0, ["deep_test"] * 2), text)
        self.assertIn("2 passed, 0 failed, 0 not reached", text)

    def test_a_failure_is_the_status(self):
        self.write("lib/deep.cc", "int deep() { return 1; }\n")
        self.write("tests/second_test.cc", "no C++\n")
        status, ran, text = self.changed("--preset", "release")
        self.assertEqual((status, ran), (1, ["deep_test"]), text)
        self.assertIn("0 passed, 3 failed, 0 not reached", text)


if __name__ == "__main__":
    main()
