#include "bindings/python/core/tensors.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bindings/python/core/results.h"
#include "runtime/base/error.h"

namespace fasa::python {
namespace {

constexpr uint8_t kBfloatCode = 4;  // DLPack's type code

[[noreturn]] void fail(const char* name, const std::string& given, const char* expected) {
  throw UsageError(fmt::format("{} {}; expected {}", name, given, expected));
}

std::string class_name(nb::handle object) { return nb::inst_name(object).c_str(); }

bool is_numpy_bfloat16(nb::handle object) {
  if (!nb::hasattr(object, "__array_interface__") || !nb::hasattr(object, "dtype")) return false;
  const nb::object dtype = object.attr("dtype");
  return nb::hasattr(dtype, "name") && dtype.attr("name").equal(nb::str("bfloat16"));
}

std::optional<DType> dtype_from(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  if (dtype == nb::dtype<float>()) return DType::kF32;
  if (dtype.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && dtype.bits == 16) {
    return DType::kF16;
  }
  if (dtype.code == kBfloatCode && dtype.bits == 16) return DType::kBF16;
  return std::nullopt;
}

std::string dtype_text(nb::dlpack::dtype dtype) {
  constexpr const char* kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const char* name = dtype.code < std::size(kNames) ? kNames[dtype.code] : "dtype code ";
  return fmt::format("has dtype {}{}", name, dtype.bits);
}

std::string device_text(int type) {
  if (type == nb::device::cuda::value) return "is in the memory of a GPU";
  return fmt::format("is on a device of DLPack type {}", type);
}

// Imports the object with nanobind; nullopt if that fails.
template <typename Array>
std::optional<Array> import(nb::handle object) {
  Array array;
  if (nb::try_cast(object, array, false)) return array;
  PyErr_Clear();
  return std::nullopt;
}

}  // namespace

BorrowedTensor BorrowedTensor::from(const Device& device, nb::handle object, const char* name,
                                    bool writable) {
  BorrowedTensor tensor;
  const bool brain = is_numpy_bfloat16(object);
  // NumPy has no bfloat16 type and exports none: exported as uint16.
  const nb::object source = brain ? object.attr("view")("uint16") : nb::borrow(object);
  const auto array = import <nb::ndarray<nb::ro>>(source);
  if (!array) {
    fail(name, fmt::format("is of type {}", class_name(object)),
         "a NumPy array, or a tensor that exports DLPack (detached from a graph)");
  }
  if (writable && !import <nb::ndarray<>>(source)) fail(name, "is read-only", "a writable tensor");
  if (takes_host_memory(device) && array->device_type() != nb::device::cpu::value) {
    fail(name, device_text(array->device_type()),
         "one in this process's host memory (tensor.cpu() copies it there)");
  }
  if (array->ndim() != 3) {
    fail(name, fmt::format("has {} dimensions", array->ndim()), "[tokens, heads, dim]");
  }
  const auto dtype = brain ? std::optional(DType::kBF16) : dtype_from(array->dtype());
  if (!dtype) fail(name, dtype_text(array->dtype()), "float32, float16 or bfloat16");
  if (array->shape(2) > 1 && array->stride(2) != 1) {
    fail(name, fmt::format("has stride {} in its last dimension", array->stride(2)), "stride 1");
  }
  tensor.owner_ = *array;
  tensor.view_ = {.data = const_cast<void*>(array->data()),
                  .dtype = *dtype,
                  .tokens = static_cast<int64_t>(array->shape(0)),
                  .heads = static_cast<int64_t>(array->shape(1)),
                  .dim = static_cast<int64_t>(array->shape(2)),
                  .token_stride = array->stride(0),
                  .head_stride = array->stride(1)};
  return tensor;
}

void require_own_results(const Device& device, bool out_given, bool lse) {
  if (takes_host_memory(device) || (out_given && !lse)) return;
  if (!out_given) {
    throw UsageError(
        fmt::format("out = None: not supported on {}; give a tensor in its memory", device.name()));
  }
  throw UsageError(fmt::format("lse = True: not supported on {}; allowed: False", device.name()));
}

TensorView view_of_parts(const nb::tuple& parts) {
  constexpr size_t kParts = 7;
  if (parts.size() != kParts) {
    throw UsageError(fmt::format("a tensor of {} parts; expected {}", parts.size(), kParts));
  }
  const auto part = [&](size_t i) { return nb::cast<int64_t>(parts[i]); };
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  const auto dtype = static_cast<size_t>(part(1));
  if (dtype >= std::size(kTypes)) throw UsageError(fmt::format("dtype {}; expected 0 to 2", dtype));
  return {.data = reinterpret_cast<void*>(static_cast<uintptr_t>(nb::cast<uint64_t>(parts[0]))),
          .dtype = kTypes[dtype],
          .tokens = part(2),
          .heads = part(3),
          .dim = part(4),
          .token_stride = part(5),
          .head_stride = part(6)};
}

}  // namespace fasa::python
