"""The fake CUDA runtime inside the package under test (fake_gpu/fake_gpu.cc): memory that counts as
a GPU's, and streams whose work runs only when a caller waits for it."""
import ctypes

import numpy as np

from fasa import _core

_library = ctypes.CDLL(_core.__file__)
for name, result, arguments in [
    ("allocate", ctypes.c_void_p, [ctypes.c_uint64]),
    ("stream", ctypes.c_void_p, []),
    ("destroy_stream", ctypes.c_int, [ctypes.c_void_p]),
    ("synchronize", ctypes.c_int, [ctypes.c_void_p]),
    ("upload", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]),
    ("elsewhere", None, [ctypes.c_void_p, ctypes.c_uint64]),
    ("foreign_stream", None, [ctypes.c_void_p]),
    ("serve_host_tensors", None, [ctypes.c_int]),
    ("calls", ctypes.c_int64, [ctypes.c_char_p]),
]:
    function = getattr(_library, f"fake_gpu_{name}")
    function.restype, function.argtypes = result, arguments

stream = _library.fake_gpu_stream
destroy_stream = _library.fake_gpu_destroy_stream
foreign_stream = _library.fake_gpu_foreign_stream
serve_host_tensors = _library.fake_gpu_serve_host_tensors


def synchronize(number):
    assert _library.fake_gpu_synchronize(number) == 0


def calls(method):
    return _library.fake_gpu_calls(method.encode())


def empty(shape, dtype=np.float32):
    """GPU memory filled with nonsense; host code may read it after waiting for its streams."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_uint8 * count).from_address(_library.fake_gpu_allocate(count))
    array = np.frombuffer(memory, dtype=np.uint8)
    array[:] = 0x55
    return array.view(dtype).reshape(shape)


def coming(values, on):
    """GPU memory that holds `values` once the stream has copied them."""
    values = np.ascontiguousarray(values)
    there = empty(values.shape, values.dtype)
    status = _library.fake_gpu_upload(there.ctypes.data, values.ctypes.data, values.nbytes, on)
    assert status == 0
    return there


def elsewhere(array):
    """Assigns the memory to another GPU from now on."""
    _library.fake_gpu_elsewhere(array.ctypes.data, array.nbytes)
    return array
