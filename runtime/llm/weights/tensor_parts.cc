#include "runtime/llm/weights/tensor_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"

namespace fasa {
namespace {

bool is_one_of(std::string_view dtype, std::string_view dtypes) {
  while (!dtypes.empty()) {
    const size_t end = std::min(dtypes.find(' '), dtypes.size());
    if (dtypes.substr(0, end) == dtype) return true;
    dtypes.remove_prefix(std::min(end + 1, dtypes.size()));
  }
  return false;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::vector<std::string> lengths;
  for (const int64_t length : shape) lengths.push_back(length < 0 ? "any" : std::to_string(length));
  return fmt::format("[{}]", fmt::join(lengths, ", "));
}

}  // namespace

void TensorParts::fail(std::string_view suffix, std::string_view what) const {
  throw InputError(fmt::format("{}: {}", describe(suffix), what));
}

std::string TensorParts::describe(std::string_view suffix) const {
  return fmt::format("{}: tensor {}{}", files_.source(), stem_, suffix);
}

void TensorParts::check_groups(std::string_view suffix, int64_t inputs, int64_t groups,
                               int64_t group) const {
  const int64_t wanted = group == 0 ? 1 : (inputs + group - 1) / group;
  if (groups == wanted) return;
  fail(suffix, fmt::format("has {} groups, but {} inputs in groups of {} need {}", groups, inputs,
                           group == 0 ? inputs : group, wanted));
}

RawTensor TensorParts::any(std::string_view suffix, std::string_view dtypes) const {
  if (!has(suffix)) fail(suffix, "is missing, but the quantised matrix needs it");
  const RawTensor tensor = files_.raw(stem_ + std::string(suffix));
  if (!is_one_of(tensor.dtype, dtypes)) {
    fail(suffix, fmt::format("has dtype {}; allowed: {}", tensor.dtype, dtypes));
  }
  return tensor;
}

RawTensor TensorParts::raw(std::string_view suffix, std::string_view dtypes,
                           std::initializer_list<int64_t> shape) const {
  const RawTensor tensor = any(suffix, dtypes);
  const auto fits = [](int64_t length, int64_t wanted) { return wanted < 0 || length == wanted; };
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end(), fits)) {
    fail(suffix, fmt::format("has shape {}, but the matrix needs {}", shape_text(tensor.shape),
                             shape_text({shape.begin(), shape.size()})));
  }
  return tensor;
}

WeightView TensorParts::numbers(std::string_view suffix,
                                std::initializer_list<int64_t> shape) const {
  const RawTensor tensor = raw(suffix, "F32 F16 BF16", shape);
  WeightView view;
  view.dtype =
      tensor.dtype == "F32" ? DType::kF32 : (tensor.dtype == "F16" ? DType::kF16 : DType::kBF16);
  view.shape = tensor.shape;
  view.data = tensor.data;
  return view;
}

}  // namespace fasa
