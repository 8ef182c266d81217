// Python names and docstrings of Geometry, Runtime and Sequence.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "bindings/python/core/json_value.h"
#include "bindings/python/core/kv_report.h"
#include "bindings/python/core/runtime.h"
#include "runtime/base/error.h"

namespace fasa::python {
namespace {

RotaryLayout layout_of(const std::string& name) {
  if (name == "half") return RotaryLayout::kHalf;
  if (name == "interleaved") return RotaryLayout::kInterleaved;
  throw UsageError(fmt::format("rotary_layout = \"{}\": allowed: half, interleaved", name));
}

Geometry make_geometry(int layers, int kv_heads, int query_heads, int head_dim,
                       std::optional<int> value_dim, std::optional<int> rotary_dims,
                       const std::string& layout, std::optional<double> scale, double score_cap) {
  Geometry geometry;
  geometry.layers = layers;
  geometry.kv_heads = kv_heads;
  geometry.query_heads = query_heads;
  geometry.key_dim = head_dim;
  geometry.value_dim = value_dim.value_or(head_dim);
  geometry.rotary_dims = rotary_dims.value_or(head_dim);
  geometry.rotary_layout = layout_of(layout);
  geometry.scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(std::max(1, head_dim))));
  geometry.score_cap = static_cast<float>(score_cap);
  geometry.validate();
  return geometry;
}

void add_geometry(nb::module_& module) {
  nb::class_<Geometry>(module, "Geometry", "Geometry of a model's attention.")
      .def(
          "__init__",
          [](Geometry* self, int layers, int kv_heads, int query_heads, int head_dim,
             std::optional<int> value_dim, std::optional<int> rotary_dims,
             const std::string& layout, std::optional<double> scale, double score_cap) {
            new (self) Geometry(make_geometry(layers, kv_heads, query_heads, head_dim, value_dim,
                                              rotary_dims, layout, scale, score_cap));
          },
          nb::kw_only(), nb::arg("layers"), nb::arg("kv_heads"), nb::arg("query_heads"),
          nb::arg("head_dim"), nb::arg("value_dim") = nb::none(),
          nb::arg("rotary_dims") = nb::none(), nb::arg("rotary_layout") = "half",
          nb::arg("scale") = nb::none(), nb::arg("score_cap") = 0.0,
          "Defaults: value_dim = rotary_dims = head_dim, scale = 1/sqrt(head_dim). score_cap: a "
          "scaled score s becomes cap * tanh(s / cap); 0 = no cap.")
      .def_ro("layers", &Geometry::layers)
      .def_ro("kv_heads", &Geometry::kv_heads)
      .def_ro("query_heads", &Geometry::query_heads)
      .def_ro("head_dim", &Geometry::key_dim)
      .def_ro("value_dim", &Geometry::value_dim)
      .def_ro("rotary_dims", &Geometry::rotary_dims)
      .def_ro("scale", &Geometry::scale)
      .def_ro("score_cap", &Geometry::score_cap)
      .def_prop_ro(
          "chunks",
          [](const Geometry& self) {
            nb::list pairs;
            for (int chunk = 0; chunk < self.chunks(); ++chunk) {
              const Geometry::Pair pair = self.chunk_dims(chunk);
              pairs.append(nb::make_tuple(pair.first, pair.second));
            }
            return pairs;
          },
          nb::sig("def chunks(self) -> list[tuple[int, int]]"),
          "The two key dimensions of each frequency chunk.");
}

template <typename Result, typename Action>
Result without_gil(const Action& action) {
  const nb::gil_scoped_release release;
  return action();
}

void add_steps(nb::class_<PyRuntime>& cls) {
  cls.def("begin_step", &PyRuntime::begin_step, nb::arg("parts"),
          nb::sig("def begin_step(self, parts: list[Sequence | tuple[Sequence, int] | "
                  "tuple[Sequence, int, str]]) -> None"),
          "Begins a step. Only this call can raise BudgetError. Without a mode, a sequence with "
          "one token decodes, and one with more tokens prefills.");
  cls.def("append", &PyRuntime::append, nb::arg("layer"), nb::arg("k").none(), nb::arg("v").none(),
          nb::arg("stream").none() = nb::none(),
          "Stores k [tokens, kv_heads, head_dim], rotated, and v [tokens, kv_heads, value_dim] of "
          "all new tokens of the step.");
  cls.def("attend", &PyRuntime::attend, nb::arg("layer"), nb::arg("q").none(),
          nb::arg("out").none() = nb::none(), nb::arg("lse") = false,
          nb::arg("stream").none() = nb::none(),
          "Attention of q [tokens, query_heads, head_dim], rotated. Returns [tokens, query_heads, "
          "value_dim], in `out` or a new float32 array; with lse, a pair of that and the "
          "log-sum-exp [tokens, query_heads].");
  cls.def(
      "end_step", &PyRuntime::end_step, nb::arg("kept") = std::vector<int>(),
      "Ends the step. Of the tokens of its sequence i the first kept[i] stay, 1 or more, and the "
      "others leave no trace; without `kept` all stay. Where some do not, the sequence decodes "
      "at most Sequence.max_drafted tokens.");
  cls.def("abort_step", &PyRuntime::abort_step, "Ends the step and discards its tokens.");
  cls.def_prop_ro("in_step", [](const PyRuntime& self) { return self.engine()->in_step(); });
  cls.def("read", &PyRuntime::read, nb::arg("sequence"), nb::arg("layer"), nb::arg("first") = 0,
          nb::arg("tokens") = nb::none(),
          "The stored keys and values of committed tokens, each float32 [tokens, kv_heads, dim].");
  // Calls by address. `stream` is a number; below 0, the runtime's own stream.
  cls.def("_read_layer", [](const PyRuntime& self, const PySequence& sequence, int layer,
                            int64_t first, const nb::tuple& k, const nb::tuple& v, int64_t stream) {
    self.read_layer(sequence, layer, first, k, v, stream_at(stream));
  });
  // `lse`: the address of [tokens, query_heads] in float32; 0: not requested.
  cls.def(
      "_step_layer",
      [](PyRuntime& self, int layer, const nb::tuple& k, const nb::tuple& v, const nb::tuple& q,
         const nb::tuple& out, int64_t stream,
         uintptr_t lse) { self.step_layer(layer, k, v, q, out, lse, stream_at(stream)); },
      nb::arg("layer"), nb::arg("k"), nb::arg("v"), nb::arg("q"), nb::arg("out"),
      nb::arg("stream") = -1, nb::arg("lse") = 0);
  cls.def("_step_layer_at",
          [](PyRuntime& self, int layer, uintptr_t k, uintptr_t v, uintptr_t q, uintptr_t out,
             const StepLayout& layout, int64_t stream, uintptr_t lse) {
            self.step_layer_at(layer, {k, v, q, out, lse}, layout, stream_at(stream));
          });
}

void add_runtime_class(nb::module_& module) {
  nb::class_<PyRuntime> cls(module, "Runtime",
                            "A KV cache in tiers for many sequences, and attention over it.");
  cls.def(nb::init<const Geometry&, const PyConfig*, const std::string&, const nb::object&,
                   const nb::object&, int64_t>(),
          nb::arg("geometry"), nb::arg("config").none() = nb::none(), nb::kw_only(),
          nb::arg("row_dtype") = "bf16", nb::arg("fc_map").none() = nb::none(),
          nb::arg("slice_dims").none() = nb::none(), nb::arg("max_context") = 0,
          nb::sig("def __init__(self, geometry: Geometry, config: Config | None = None, *, "
                  "row_dtype: str = 'bf16', fc_map: FcMap | None = None, "
                  "slice_dims: object | None = None, max_context: int = 0) -> None"),
          "slice_dims: int16 [layers, kv_heads, 2 x chunks], instead of fc_map. max_context: "
          "tokens of the longest sequence expected, 0 = unknown.");
  add_steps(cls);
  cls.def(
      "sequence",
      [](PyRuntime& self) {
        return PySequence(self.engine(),
                          self.engine()->with([](Runtime& runtime) { return runtime.create(); }));
      },
      "Creates an empty sequence.");
  cls.def_prop_ro("geometry", &PyRuntime::geometry, nb::rv_policy::copy);
  cls.def_prop_ro("device", [](const PyRuntime& self) { return self.engine()->device().name(); });
  cls.def(
      "memory",
      [](PyRuntime& self) {
        const auto memory = without_gil<KvMemory>([&] {
          return self.engine()->with([](const Runtime& runtime) { return runtime.memory(); });
        });
        return nb::cast<nb::dict>(to_python(memory_json(memory)));
      },
      "Bytes of the cache, by purpose.");
  cls.def(
      "metrics",
      [](PyRuntime& self) {
        const auto metrics = without_gil<FetchMetrics>([&] {
          return self.engine()->with([](Runtime& runtime) { return runtime.metrics(); });
        });
        return nb::cast<nb::dict>(to_python(metrics_json(metrics)));
      },
      "Fetches since the last reset_metrics().");
  cls.def("reset_metrics", [](PyRuntime& self) {
    const nb::gil_scoped_release release;
    self.engine()->with([](Runtime& runtime) { runtime.reset_metrics(); });
  });
}

void add_sequence(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PySequence>(module, "Sequence",
                         "The keys and values of one sequence. They are freed with the object, or "
                         "before it by free().")
      .def("fork", &PySequence::fork, nb::arg("tokens") = nb::none(), Release(),
           "Creates a sequence that shares the first tokens of this one; by default all of them.")
      .def("truncate", &PySequence::truncate, nb::arg("tokens"), Release())
      .def(
          "reserve", &PySequence::reserve, nb::arg("tokens"), nb::arg("step_tokens") = 1, Release(),
          "Reserves memory for that many tokens in total, and for steps of step_tokens new tokens.")
      .def("free", &PySequence::free, Release())
      .def_prop_ro("length", &PySequence::length, Release())
      .def_prop_ro("max_drafted", &PySequence::max_drafted, Release(),
                   "The most tokens of its next decode step of which end_step() may keep a part.")
      .def("__len__", &PySequence::length, Release());
}

}  // namespace

void add_runtime(nb::module_& module) {
  add_geometry(module);
  add_sequence(module);
  nb::class_<StepLayout>(module, "_StepLayout")
      .def(nb::init<const nb::tuple&, const nb::tuple&, const nb::tuple&, const nb::tuple&>());
  add_runtime_class(module);
}

}  // namespace fasa::python
