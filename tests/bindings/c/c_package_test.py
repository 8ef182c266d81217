"""The installed C package, as a user finds it with pkg-config and find_package: programs in C11 are
compiled and run.

c_package_test.py BUILD SOURCE [SANITIZERS]
"""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from installed_package import (  # pylint: disable=wrong-import-position
    SANITIZE, InstalledPackage, run)

PROGRAMS = ["apis", "bad_calls"]

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
set(CMAKE_C_STANDARD 11)
find_package(fasa 0.1 REQUIRED)
"""


class Package(InstalledPackage):
    include_dirs = [HERE]

    def test_programs_through_pkg_config(self):
        for name in PROGRAMS:
            with self.subTest(name):
                program = self.compile(HERE / f"{name}.c", name)
                self.assertIn(name, run(program, env=self.environment))

    def test_programs_through_find_package(self):
        lines = [PROJECT]
        if SANITIZE:
            lines.append(f"add_compile_options({SANITIZE[0]})\nadd_link_options({SANITIZE[0]})\n")
        for name in PROGRAMS:
            lines.append(f"add_executable({name} {HERE}/{name}.c)\n"
                         f"target_link_libraries({name} PRIVATE fasa::fasa)\n")
        build = self.project("project", "".join(lines))
        for name in PROGRAMS:  # no LD_LIBRARY_PATH: the target knows where its library is
            self.assertIn(name, run(build / name))

    def test_it_exports_the_functions_of_the_header_and_nothing_else(self):
        header = (self.prefix / "include/fasa/fasa.h").read_text()
        declared = set(re.findall(r"FASA_API[^;]*?\b(fasa_\w+)\(", header, re.S))
        self.assertGreater(len(declared), 40)
        symbols = run("nm", "-D", "--defined-only", self.library).split("\n")
        exported = {line.split()[2].split("@")[0] for line in symbols if " T " in line}
        others = [line for line in symbols if line and " T " not in line and " A " not in line]
        self.assertEqual(exported, declared)
        self.assertEqual(others, [])

    def test_its_name_carries_the_interface_version(self):
        dynamic = run("readelf", "-d", self.library)
        self.assertRegex(dynamic, r"soname: \[libfasa\.so\.0\.1\]")

    def test_another_minor_version_is_not_found(self):
        with self.assertRaisesRegex(AssertionError, "fasa"):
            self.project("older", PROJECT.replace("fasa 0.1", "fasa 0.2"))

    def test_the_header_is_cpp_too(self):
        source = self.folder / "header.cc"
        source.write_text("#include <fasa/fasa.h>\n"
                          "int main() { fasa_options o = FASA_OPTIONS_INIT;"
                          " return o.struct_size == sizeof(o) ? 0 : 1; }\n")
        flags = run("pkg-config", "--cflags", "fasa", env=self.environment).split()
        run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-c", source, "-o",
            self.folder / "header.o", *flags)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
