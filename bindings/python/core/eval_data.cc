#include <nanobind/ndarray.h>

#include <memory>
#include <span>

#include "bindings/python/core/eval_tasks.h"
#include "runtime/eval/data_sets.h"
#include "runtime/eval/longbench_task.h"
#include "runtime/eval/math_task.h"
#include "runtime/llm/sampler.h"

namespace fasa::python {
namespace {

class PyLongBench {
 public:
  PyLongBench(std::unique_ptr<CallbackTokenizer> tokenizer, const std::string& folder,
              const std::string& dataset, int64_t context)
      : tokenizer_(std::move(tokenizer)), task_(folder, dataset, *tokenizer_, context) {}

  const LongBenchTask& task() const { return task_; }
  // The prompt's tokens, leaving space for the answer and `reserved` more tokens.
  std::vector<int32_t> example(size_t index, int64_t reserved) const {
    return task_.prompt(index, reserved);
  }
  nb::object record(size_t index, size_t tokens, const nb::bytes& prediction) const {
    return to_python(task_.record(index, tokens, {prediction.c_str(), prediction.size()}));
  }

 private:
  std::unique_ptr<CallbackTokenizer> tokenizer_;
  LongBenchTask task_;
};

class PyMath {
 public:
  PyMath(std::unique_ptr<CallbackTokenizer> tokenizer, const std::string& path,
         const MathOptions& options, int64_t max_positions)
      : tokenizer_(std::move(tokenizer)),
        task_((options.validate(max_positions), path), *tokenizer_, options) {}

  const MathTask& task() const { return task_; }
  std::string example(size_t index) const { return task_.prompt(index); }
  nb::object record(size_t index, size_t tokens, const std::vector<nb::bytes>& predictions) const {
    nlohmann::json texts = nlohmann::json::array();
    for (const nb::bytes& one : predictions) texts.push_back(std::string(one.c_str(), one.size()));
    return to_python(task_.record(index, tokens, texts));
  }

 private:
  std::unique_ptr<CallbackTokenizer> tokenizer_;
  MathTask task_;
};

template <typename Task>
void add_data_members(nb::class_<Task>& cls) {
  add_task_members(cls);
  cls.def_prop_ro("problems", [](const Task& self) { return self.task().problems(); });
  cls.def("record", &Task::record);
}

void add_files(nb::module_& module) {
  nb::class_<PyLongBench> longbench(module, "_LongBench");
  longbench.def(
      "__init__",
      [](PyLongBench* self, nb::object encode, nb::object decode, const std::string& folder,
         const std::string& dataset, int64_t context) {
        new (self)
            PyLongBench(std::make_unique<CallbackTokenizer>(std::move(encode), std::move(decode)),
                        folder, dataset, context);
      },
      nb::arg("encode"), nb::arg("decode"), nb::arg("folder"), nb::arg("dataset"), nb::kw_only(),
      nb::arg("context"));
  add_data_members(longbench);
  longbench.def("example", &PyLongBench::example, nb::arg("index"), nb::arg("reserved") = 0);
  longbench.def_prop_ro("answer_tokens",
                        [](const PyLongBench& self) { return self.task().answer_tokens(); });

  nb::class_<PyMath> math(module, "_Math");
  math.def(
      "__init__",
      [](PyMath* self, nb::object encode, nb::object decode, const std::string& path,
         int64_t max_positions, int64_t context, int samples, int pass_k, float temperature,
         float top_p, uint64_t seed) {
        MathOptions options{.context = context, .samples = samples, .pass_k = pass_k};
        options.sampling = {.temperature = temperature, .top_p = top_p, .seed = seed};
        new (self) PyMath(std::make_unique<CallbackTokenizer>(std::move(encode), std::move(decode)),
                          path, options, max_positions);
      },
      nb::arg("encode"), nb::arg("decode"), nb::arg("path"), nb::arg("max_positions"),
      nb::kw_only(), nb::arg("context"), nb::arg("samples"), nb::arg("pass_k"),
      nb::arg("temperature"), nb::arg("top_p"), nb::arg("seed"));
  add_data_members(math);
  math.def("example", &PyMath::example, nb::arg("index"));

  module.def(
      "data_sets",
      [](const std::string& task, const std::string& folder,
         const std::vector<std::string>& asked) {
        return data_sets(
            task, folder, asked,
            task == "longbench" ? longbench_names() : std::span<const std::string_view>{});
      },
      nb::arg("task"), nb::arg("folder"), nb::arg("asked"));
}

void add_sampler(nb::module_& module) {
  nb::class_<Sampler>(module, "_Sampler")
      .def(
          "__init__",
          [](Sampler* self, float temperature, float top_p, uint64_t seed) {
            new (self) Sampler({.temperature = temperature, .top_p = top_p, .seed = seed});
          },
          nb::arg("temperature") = 0, nb::arg("top_p") = 1, nb::arg("seed") = 0)
      .def("next",
           [](Sampler& self, const nb::ndarray<const float, nb::ndim<1>, nb::c_contig>& logits) {
             return self.next({logits.data(), logits.size()});
           });
}

}  // namespace

void add_data_tasks(nb::module_& module) {
  add_files(module);
  add_sampler(module);
}

}  // namespace fasa::python
