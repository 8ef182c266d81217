#include "runtime/llm/weights/safetensors.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  entries_ = parse_safetensors_header(file_.bytes(), file_.bytes().size(), path, &data_begin_);
}

RawTensor SafetensorsFile::raw(const std::string& name) const {
  file_.require_whole();
  const SafetensorsEntry& entry = entries_.at(name);
  file_.require_whole();
  return {entry.dtype, entry.shape, file_.bytes().data() + data_begin_ + entry.begin};
}

WeightView SafetensorsFile::view(const std::string& name) const {
  file_.require_whole();
  const SafetensorsEntry& entry = entries_.at(name);
  WeightView view;
  if (entry.dtype == "F32") {
    view.dtype = DType::kF32;
  } else if (entry.dtype == "F16") {
    view.dtype = DType::kF16;
  } else if (entry.dtype == "BF16") {
    view.dtype = DType::kBF16;
  } else {
    throw InputError(fmt::format("{}: tensor {} has dtype {}; allowed: F32, F16, BF16", path_, name,
                                 entry.dtype));
  }
  view.shape = entry.shape;
  view.data = file_.bytes().data() + data_begin_ + entry.begin;
  return view;
}

}  // namespace fasa
