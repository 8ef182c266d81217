"""The C package as a user has it: installed somewhere, found by pkg-config and by find_package, its
programs compiled as C11 and run, the example of docs/c.md among them.

  c_package_test.py BUILD SOURCE [SANITIZERS]
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(path) for path in sys.argv[1:3])
SANITIZE = [f"-fsanitize={sys.argv[3]}"] if sys.argv[3:] and sys.argv[3] else []
HERE = pathlib.Path(__file__).parent
PROGRAMS = ["doors", "bad_calls"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
set(CMAKE_C_STANDARD 11)
find_package(fasa 0.1 REQUIRED)
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{text}")
    return text


def documented_programs():
    text = (SOURCE / "docs/c.md").read_text(encoding="utf-8")
    return re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.folder_object.name)
        cls.prefix = cls.folder / "anywhere"
        run("cmake", "--install", BUILD, "--component", "fasa_c", "--prefix", cls.prefix)
        cls.library = next(cls.prefix.glob("lib*/**/libfasa.so"))
        cls.environment = os.environ | {
            "PKG_CONFIG_PATH": str(next(cls.prefix.glob("lib*/**/pkgconfig"))),
            "LD_LIBRARY_PATH": str(cls.library.parent)}

    @classmethod
    def tearDownClass(cls):
        cls.folder_object.cleanup()

    def compile(self, source, name):
        flags = run("pkg-config", "--cflags", "--libs", "fasa", env=self.environment).split()
        program = self.folder / name
        run("cc", *STRICT, *SANITIZE, "-g", "-I", HERE, source, "-o", program, *flags,
            env=self.environment)
        return program

    def test_programs_through_pkg_config(self):
        for name in PROGRAMS:
            with self.subTest(name):
                program = self.compile(HERE / f"{name}.c", name)
                self.assertIn(name, run(program, env=self.environment))

    def test_programs_through_find_package(self):
        project = self.folder / "project"
        project.mkdir()
        lines = [PROJECT]
        if SANITIZE:
            lines.append(f"add_compile_options({SANITIZE[0]})\nadd_link_options({SANITIZE[0]})\n")
        for name in PROGRAMS:
            lines.append(f"add_executable({name} {HERE}/{name}.c)\n"
                         f"target_link_libraries({name} PRIVATE fasa::fasa)\n")
        (project / "CMakeLists.txt").write_text("".join(lines))
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", project / "build")
        for name in PROGRAMS:  # no LD_LIBRARY_PATH: the target knows where its library is
            self.assertIn(name, run(project / "build" / name))

    def test_the_documented_program(self):
        programs = documented_programs()
        self.assertEqual(len(programs), 1)
        source = self.folder / "documented.c"
        source.write_text(programs[0])
        output = run(self.compile(source, "documented"), env=self.environment)
        shown = re.search(r"^It prints\n\n```\n(.*?)^```$",
                          (SOURCE / "docs/c.md").read_text(encoding="utf-8"), re.M | re.S)
        self.assertEqual(output, shown.group(1))

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
        project = self.folder / "older"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT.replace("fasa 0.1", "fasa 0.2"))
        with self.assertRaisesRegex(AssertionError, "fasa"):
            run("cmake", "-S", project, "-B", project / "build",
                f"-DCMAKE_PREFIX_PATH={self.prefix}")

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
