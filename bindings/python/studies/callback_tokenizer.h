// A tokenizer implemented in Python: encode(bytes) -> ids, decode(ids) -> bytes. Callers hold the
// GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::python {

namespace nb = nanobind;

class CallbackTokenizer final : public text::TextCoder {
 public:
  CallbackTokenizer(nb::object encode, nb::object decode)
      : encode_(std::move(encode)), decode_(std::move(decode)) {}

  std::vector<int32_t> encode(std::string_view bytes) const override {
    return nb::cast<std::vector<int32_t>>(encode_(nb::bytes(bytes.data(), bytes.size())));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    const auto bytes = nb::cast<nb::bytes>(decode_(std::vector<int32_t>(ids.begin(), ids.end())));
    return {bytes.c_str(), bytes.size()};
  }

 private:
  nb::object encode_, decode_;
};

}  // namespace fasa::python
