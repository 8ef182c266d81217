"""The installed C++ API, as a user has it: programs compiled against the header.

cpp_package_test.py BUILD SOURCE [SANITIZERS]
"""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from installed_package import (  # pylint: disable=wrong-import-position
    SANITIZE, InstalledPackage, run)

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(fasa 0.1 REQUIRED)
"""


class CppPackage(InstalledPackage):
    compiler = "c++"
    standard = "-std=c++20"

    def test_apis_through_pkg_config(self):
        program = self.compile(HERE / "apis.cc", "apis")
        self.assertIn("apis", run(program, env=self.environment))

    def test_apis_through_find_package(self):
        lines = [PROJECT]
        if SANITIZE:
            lines.append(f"add_compile_options({SANITIZE[0]})\nadd_link_options({SANITIZE[0]})\n")
        lines.append(f"add_executable(apis {HERE}/apis.cc)\n"
                     "target_link_libraries(apis PRIVATE fasa::fasa)\n")
        self.assertIn("apis", run(self.project("project", "".join(lines)) / "apis"))

    def test_the_header_pulls_in_few_others(self):
        source = self.folder / "header.cc"
        source.write_text("#include <fasa/fasa.hpp>\n")
        flags = run("pkg-config", "--cflags", "fasa", env=self.environment).split()
        rule = run("c++", self.standard, "-MM", source, *flags).replace("\\\n", " ").split()[2:]
        pulled = {path for path in map(pathlib.Path, rule) if path.name != "fasa.hpp"}
        self.assertIn("fasa.h", {path.name for path in pulled})
        self.assertLessEqual(len(pulled), 8)
        self.assertEqual({path.parent.name for path in pulled}, {"fasa"})

    def test_every_header_compiles_by_itself(self):
        flags = run("pkg-config", "--cflags", "fasa", env=self.environment).split()
        headers = sorted((self.prefix / "include/fasa").glob("*.hpp"))
        self.assertGreater(len(headers), 5)
        for header in headers:
            source = self.folder / "alone.cc"
            source.write_text(f"#include <fasa/{header.name}>\n")
            run("c++", self.standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", source,
                *flags)

    def test_two_units_may_include_it(self):
        other = self.folder / "other.cc"
        other.write_text("#include <fasa/fasa.hpp>\nfasa::Config made() { return {}; }\n")
        main = self.folder / "main.cc"
        main.write_text("#include <fasa/fasa.hpp>\n#include \"other.cc.h\"\n"
                        "int main() { return made().json().empty() ? 1 : 0; }\n")
        (self.folder / "other.cc.h").write_text("fasa::Config made();\n")
        flags = run("pkg-config", "--cflags", "--libs", "fasa", env=self.environment).split()
        program = self.folder / "two"
        run("c++", self.standard, "-Wall", "-Werror", *SANITIZE, "-I", self.folder, main, other,
            "-o", program, *flags)
        run(program, env=self.environment)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
