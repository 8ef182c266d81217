"""`pip install .` builds a wheel whose core needs NumPy alone."""
import os
import subprocess
import sys
import zipfile

from conftest import ROOT

CHECK = """
import sys, fasa, numpy
assert "torch" not in sys.modules and "transformers" not in sys.modules
geometry = fasa.Geometry(layers=1, kv_heads=1, query_heads=1, head_dim=16)
runtime = fasa.Runtime(geometry, row_dtype="f32")
sequence = runtime.sequence()
runtime.begin_step([(sequence, 3)])
ones = numpy.ones((3, 1, 16), numpy.float32)
runtime.append(0, ones, ones)
assert (runtime.attend(0, ones) == 1).all()
runtime.end_step()
print(fasa.__file__)
"""


def test_the_wheel(tmp_path):
    # Reuses the compiler cache of this tree's build. That needs the same compiler settings and
    # CMake's name of the compiler; Python's build would use another one.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.setdefault("CXX", "c++")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps",
         "--no-build-isolation", "-w", str(tmp_path), "-C", f"build-dir={ROOT}/build/wheel",
         str(ROOT)],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-4000:]
    (wheel,) = tmp_path.glob("fasa-*.whl")
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(unpacked)
    assert {"fasa/py.typed", "fasa/_core.pyi", "fasa/_studies.pyi", "fasa/__init__.py",
            "fasa/transformers/__init__.py", "fasa/vllm/__init__.py",
            "fasa_metrics/__main__.py"} <= set(names)
    (entries,) = [name for name in names if name.endswith("/entry_points.txt")]
    assert "fasa.vllm:register" in (unpacked / entries).read_text()  # vLLM looks for it there
    assert not [name for name in names if not name.startswith("fasa")]
    done = subprocess.run([sys.executable, "-c", CHECK],
                          env={**environment, "PYTHONPATH": str(unpacked)},
                          cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert str(unpacked) in done.stdout
