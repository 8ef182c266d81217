"""The installed package, as a user finds it with pkg-config and find_package. Base of the C and C++
package tests; arguments: BUILD SOURCE [SANITIZERS]."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(path) for path in sys.argv[1:3])
SANITIZE = [f"-fsanitize={sys.argv[3]}"] if sys.argv[3:] and sys.argv[3] else []


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    text = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{text}")
    return text


class InstalledPackage(unittest.TestCase):
    compiler = "cc"
    standard = "-std=c11"
    include_dirs = []

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
        strict = [self.standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
        folders = [flag for folder in self.include_dirs for flag in ("-I", folder)]
        run(self.compiler, *strict, *SANITIZE, "-g", *folders, source, "-o", program, *flags,
            env=self.environment)
        return program

    def project(self, name, text):
        """Configures and builds a CMake project that finds the package."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(text)
        run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder / "build")
        return folder / "build"
