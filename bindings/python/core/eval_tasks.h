// Common code of the evaluation tasks' bindings.
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

#include "bindings/python/core/json_value.h"
#include "runtime/eval/eval_task.h"
#include "runtime/text/tokenizer.h"

namespace fasa::python {

namespace nb = nanobind;

// A tokenizer implemented in Python: encode(bytes) -> ids, decode(ids) -> bytes. Callers hold the
// GIL.
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

template <typename Task>
void add_task_members(nb::class_<Task>& cls) {
  cls.def_prop_ro("name", [](const Task& self) { return self.task().name(); });
  cls.def_prop_ro("metric",
                  [](const Task& self) { return std::string(metric_name(self.task().metric())); });
  cls.def_prop_ro("setup", [](const Task& self) { return to_python(self.task().setup()); });
  cls.def_prop_ro("examples", [](const Task& self) { return self.task().examples(); });
  cls.def("id", [](const Task& self, size_t index) { return self.task().id(index); });
}

}  // namespace fasa::python
