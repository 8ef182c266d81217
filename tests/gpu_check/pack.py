"""Builds the programs in a repository and packs what a GPU machine needs."""

import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from gpu_check.report import note

TESTS = ["device_contract_test", "cuda_pipeline_test", "cuda_graphs_test", "gpu_kernels_test",
         "cuda_model_test"]
PROGRAMS = [*TESTS, "fasa", "gpu_bench", "gpu_model"]
C_LIBRARY = re.compile(r"^(ld-linux|libc\.so|libm\.so|libpthread|libdl\.so|librt\.so|libresolv)")
DRIVERS = re.compile(r"^(libcuda\.so|libnvidia-)")
MIB = 1 << 20
# What a GPU machine may accept: of the pack, and of the repository's tree with it.
MAX_PACK = 30 * MIB
MAX_ALL = 64 * MIB


def build(root, architectures, lines):
    log = root / "build" / "gpu-check.log"
    log.parent.mkdir(exist_ok=True)
    note(f"building (preset cuda, log in {log.relative_to(root)})")
    wanted = ";".join(f"{one}-real" for one in architectures)
    # Old-style search paths apply to the libraries' own libraries, too.
    configure = ["cmake", "--preset", "cuda", "-DFASA_UNITY=ON",
                 f"-DCMAKE_CUDA_FLAGS={'-lineinfo' if lines else ''}",
                 f"-DCMAKE_CUDA_ARCHITECTURES={wanted}", "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib",
                 "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags"]
    with log.open("wb") as out:
        for command in (configure,
                        ["cmake", "--build", "--preset", "cuda", "--target", *PROGRAMS]):
            if subprocess.run(command, cwd=root, stdout=out, stderr=out).returncode != 0:
                sys.stderr.write("".join(log.open(errors="replace").readlines()[-40:]))
                note("the build failed")
                sys.exit(1)


def commit(root):
    def git(*words):
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout

    dirty = "-dirty" if git("status", "--porcelain", "--untracked-files=no").strip() else ""
    return (git("rev-parse", "HEAD").strip() or "unknown") + dirty


def program_in(root, name):
    for path in (root / "build" / "cuda").rglob(name):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    note(f"build/cuda has no {name}")
    sys.exit(1)


def install_libraries(program, target):
    """Shared libraries beside the program; the C library's apart, for machines whose own is too
    old. The driver's own are the GPU machine's."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in sorted(set(re.findall(r"/[^ \n]*", listed))):
        name = Path(path).name
        if not DRIVERS.match(name):
            folder = target / ("libc" if C_LIBRARY.match(name) else "lib")
            if not (folder / name).exists():
                shutil.copy(path, folder / name)


def copy_data(root, target):
    """The files of the repository that the steps read."""
    (target / "tests").mkdir(parents=True)
    (target / "models" / "texts").mkdir(parents=True)
    shutil.copytree(root / "tests" / "golden", target / "tests" / "golden")
    shutil.copytree(root / "models" / "needle-3m", target / "models" / "needle-3m")
    shutil.copy(root / "models" / "texts" / "ruth.txt", target / "models" / "texts")


def assemble(root, target, cublas, data):
    shutil.rmtree(target, ignore_errors=True)
    for folder in ("bin", "lib", "libc"):
        (target / folder).mkdir(parents=True)
    for name in PROGRAMS:
        built = program_in(root, name)
        shutil.copy(built, target / "bin" / name)
        subprocess.run(["strip", target / "bin" / name], check=False)
        install_libraries(built, target)
    if cublas:
        found = sorted(Path("/usr/local/cuda/lib64").glob("libcublasLt.so.*"))
        if not found:
            note("libcublasLt was not found in /usr/local/cuda/lib64")
            sys.exit(1)
        shutil.copy(found[0].resolve(), target / "lib" / found[0].name)
    if data:
        copy_data(root, target / "data")
    shutil.copy(root / "bench" / "gpu_peer.py", target)
    shutil.copy(root / "tools" / "gpu-check", target)
    shutil.copytree(root / "tests" / "gpu_check", target / "gpu_check",
                    ignore=shutil.ignore_patterns("__pycache__"))
    (target / "packed").write_text(commit(root) + "\n")


def write_archive(folder, file):
    """Every program contains the same kernels: the window spans them all, so that they are stored
    once."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6,
                "dict_size": min(max(size, 8 * MIB), 512 * MIB)}]
    with lzma.open(file, "wb", filters=filters) as stream, \
            tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(folder, arcname="gpu-check")


def tree_bytes(root):
    """Of the repository's files that are checked out."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    return sum((root / name).lstat().st_size for name in filter(None, listed.stdout.split("\0"))
               if (root / name).is_file())


def pack(root, folder, file):
    """True if the archive is small enough, alone and beside the repository."""
    write_archive(folder, file)
    size = file.stat().st_size
    tree = tree_bytes(root)
    note(f"{file}: {size / MIB:.1f} MiB, allowed: {MAX_PACK / MIB:g}; with the repository's tree "
         f"({tree / MIB:.1f}) {(size + tree) / MIB:.1f} MiB, allowed: {MAX_ALL / MIB:g}")
    fits = size <= MAX_PACK and size + tree <= MAX_ALL
    if not fits:
        note("smaller with --no-data, without --lines, with fewer --arch, or beside a sparse "
             "checkout")
    note(f"on the GPU machine: python3 -m tarfile -e {file.name} . && gpu-check/gpu-check "
         "--out DIR")
    return fits
