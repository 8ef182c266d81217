// Python names and docstrings of Paged.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/python/core/engine.h"
#include "bindings/python/core/json_value.h"
#include "bindings/python/core/kv_report.h"
#include "bindings/python/core/paged.h"
#include "bindings/python/core/results.h"

namespace fasa::python {
namespace {

nb::object prefill(PyPaged& self, int layer, nb::handle q, nb::handle table, nb::handle lengths,
                   nb::handle news, nb::object out, bool lse, StreamChoice stream) {
  const BorrowedTensor queries = BorrowedTensor::from(self.device(), q, "q", false);
  const PagedCall call(self.device(), table, lengths, news);
  return with_results(self.device(), self.geometry(), queries.view().tokens, std::move(out), lse,
                      [&](TensorView to, float* sums) {
                        self.attend(layer, queries.const_view(), call, to, sums, stream);
                      });
}

nb::object attend(PyPaged& self, int layer, nb::handle q, nb::handle table, nb::handle lengths,
                  nb::object out, bool lse, StreamChoice stream) {
  return prefill(self, layer, q, table, lengths, {}, std::move(out), lse, stream);
}

// Calls that take PyTorch tensors by address (view_of_parts); the caller keeps them alive. `stream`
// is a number; below 0, the object's own stream.
void add_calls_by_address(nb::class_<PyPaged>& cls) {
  cls.def("_append_at", [](PyPaged& self, int layer, const nb::tuple& k, const nb::tuple& v,
                           nb::handle slots, int64_t stream) {
    self.append(layer, view_of_parts(k), view_of_parts(v), slots, stream_at(stream));
  });
  cls.def("_attend_at", [](PyPaged& self, int layer, const nb::tuple& q, nb::handle table,
                           nb::handle lengths, const nb::tuple& out, int64_t stream) {
    self.attend(layer, view_of_parts(q), PagedCall(self.device(), table, lengths),
                view_of_parts(out), nullptr, stream_at(stream));
  });
  cls.def("_prefill_at",
          [](PyPaged& self, int layer, const nb::tuple& q, nb::handle table, nb::handle lengths,
             nb::handle news, const nb::tuple& out, int64_t stream) {
            self.attend(layer, view_of_parts(q), PagedCall(self.device(), table, lengths, news),
                        view_of_parts(out), nullptr, stream_at(stream));
          });
}

void add_calls(nb::class_<PyPaged>& cls) {
  cls.def(
      "append",
      [](PyPaged& self, int layer, nb::handle k, nb::handle v, nb::handle slots,
         StreamChoice stream) {
        self.append(layer, BorrowedTensor::from(self.device(), k, "k", false).const_view(),
                    BorrowedTensor::from(self.device(), v, "v", false).const_view(), slots, stream);
      },
      nb::arg("layer"), nb::arg("k").none(), nb::arg("v").none(), nb::arg("slots"),
      nb::arg("stream").none() = nb::none(),
      "Stores k [tokens, kv_heads, head_dim], rotated, and v [tokens, kv_heads, value_dim] in the "
      "given slots, int64 [tokens], each page * page_size + offset. Tokens with a negative slot "
      "are not stored.");
  cls.def("attend", attend, nb::arg("layer"), nb::arg("q").none(), nb::arg("block_table"),
          nb::arg("seq_lens"), nb::arg("out").none() = nb::none(), nb::arg("lse") = false,
          nb::arg("stream").none() = nb::none(),
          "Attention of the newest token of each sequence: q [sequences, query_heads, head_dim] "
          "over the first seq_lens tokens of the pages in each row of block_table (both int32). "
          "Returns [sequences, query_heads, value_dim], in `out` or a new float32 array; with lse, "
          "a pair of that and the log-sum-exp.");
  cls.def("prefill", prefill, nb::arg("layer"), nb::arg("q").none(), nb::arg("block_table"),
          nb::arg("seq_lens"), nb::arg("query_lens"), nb::arg("out").none() = nb::none(),
          nb::arg("lse") = false, nb::arg("stream").none() = nb::none(),
          "Exact causal attention of the newest query_lens tokens of each sequence, which must "
          "have been appended: q [sum of query_lens, query_heads, head_dim].");
  cls.def("read_tables", &PyPaged::read_tables, nb::arg("arrays"),
          nb::arg("stream").none() = nb::none(),
          "Reads slots, block tables and lengths from GPU memory, once for all layers of a step. "
          "Until the next read_tables, calls with one of these arrays, or a part of it, use the "
          "values read here and do not wait for the GPU.");
  add_calls_by_address(cls);
}

void add_pages(nb::class_<PyPaged>& cls) {
  cls.def_prop_ro("device", [](const PyPaged& self) { return self.device().name(); });
  cls.def("copy_pages", &PyPaged::copy_pages, nb::arg("pairs"),
          "Copies pages, for each (source, destination) in order. Allowed between steps only.");
  cls.def(
      "drop_pages",
      [](PyPaged& self, const std::vector<int64_t>& pages) {
        const nb::gil_scoped_release release;
        self.with([&](PagedRuntime& paged) { paged.drop_pages(pages); });
      },
      nb::arg("pages"), "Empties the pages.");
  cls.def(
      "held",
      [](PyPaged& self, int64_t page, int layer) {
        return self.with([&](const PagedRuntime& paged) { return paged.held(page, layer); });
      },
      nb::arg("page"), nb::arg("layer"), "The number of tokens of a layer stored in a page.");
  cls.def("read", &PyPaged::read, nb::arg("page"), nb::arg("layer"), nb::arg("first") = 0,
          nb::arg("tokens") = nb::none(),
          "The stored keys and values of a page, each float32 [tokens, kv_heads, dim].");
}

void add_reports(nb::class_<PyPaged>& cls) {
  cls.def_prop_ro("geometry", &PyPaged::geometry, nb::rv_policy::copy,
                  "The geometry of the part that is stored here.");
  cls.def_prop_ro("page_size", [](const PyPaged& self) { return self.shape().page_size; });
  cls.def_prop_ro("num_pages", [](const PyPaged& self) { return self.shape().num_pages; });
  cls.def(
      "memory",
      [](PyPaged& self) {
        return to_python(
            memory_json(self.with([](const PagedRuntime& paged) { return paged.memory(); })));
      },
      nb::sig("def memory(self) -> dict"), "Bytes of the cache, by purpose.");
  cls.def(
      "metrics",
      [](PyPaged& self) {
        return to_python(
            metrics_json(self.with([](PagedRuntime& paged) { return paged.metrics(); })));
      },
      nb::sig("def metrics(self) -> dict"),
      "Fetches since the last reset_metrics(). Each attend of layer 0 counts as a decode step.");
  cls.def("reset_metrics",
          [](PyPaged& self) { self.with([](PagedRuntime& paged) { paged.reset_metrics(); }); });
}

nb::object sizes(const Geometry& geometry, const PyConfig* config, int page_size, int max_sequences,
                 int64_t max_context, int step_tokens, const std::string& row_dtype,
                 const nb::object& fc_map, const nb::object& slice_dims, const Part& layers,
                 const Part& kv_heads) {
  const PagedOpening opening(geometry, config, row_dtype, fc_map, slice_dims, layers, kv_heads);
  const auto device = open_tensor_device(opening.config);
  const PagedSizes sizes =
      PagedRuntime::sizes(*device, opening.config, opening.geometry, opening.row_dtype,
                          {.page_size = page_size, .num_pages = 1, .max_sequences = max_sequences},
                          max_context, step_tokens);
  return to_python({{"page", memory_json(sizes.page)}, {"fixed", memory_json(sizes.fixed)}});
}

}  // namespace

void add_paged(nb::module_& module) {
  nb::class_<PyPaged> cls(
      module, "Paged",
      "A KV cache for engines that manage page ids themselves, and attention over it. Writing the "
      "first slot of a page discards the page's old content.");
  cls.def(
      "__init__",
      [](PyPaged* self, const Geometry& geometry, const PyConfig* config, int page_size,
         int64_t num_pages, int max_sequences, const std::string& row_dtype,
         const nb::object& fc_map, const nb::object& slice_dims, const Part& layers,
         const Part& kv_heads) {
        const PagedOpening opening(geometry, config, row_dtype, fc_map, slice_dims, layers,
                                   kv_heads);
        const nb::gil_scoped_release release;
        new (self) PyPaged(
            opening,
            {.page_size = page_size, .num_pages = num_pages, .max_sequences = max_sequences});
      },
      nb::arg("geometry"), nb::arg("config").none() = nb::none(), nb::kw_only(),
      nb::arg("page_size") = 64, nb::arg("num_pages"), nb::arg("max_sequences") = 64,
      nb::arg("row_dtype") = "bf16", nb::arg("fc_map").none() = nb::none(),
      nb::arg("slice_dims").none() = nb::none(), nb::arg("layers") = nb::none(),
      nb::arg("kv_heads") = nb::none(),
      nb::sig("def __init__(self, geometry: Geometry, config: Config | None = None, *, "
              "page_size: int = 64, num_pages: int, max_sequences: int = 64, "
              "row_dtype: str = 'bf16', fc_map: FcMap | None = None, "
              "slice_dims: object | None = None, layers: tuple[int, int] | None = None, "
              "kv_heads: tuple[int, int] | None = None) -> None"),
      "geometry, config, fc_map and slice_dims describe the whole model. layers and kv_heads, each "
      "(first, count), select the part that is stored here; in calls, layers and heads of the part "
      "count from 0.");
  add_calls(cls);
  add_pages(cls);
  add_reports(cls);
  cls.def_static(
      "sizes", sizes, nb::arg("geometry"), nb::arg("config").none() = nb::none(), nb::kw_only(),
      nb::arg("page_size") = 64, nb::arg("max_sequences") = 64, nb::arg("max_context"),
      nb::arg("step_tokens"), nb::arg("row_dtype") = "bf16", nb::arg("fc_map").none() = nb::none(),
      nb::arg("slice_dims").none() = nb::none(), nb::arg("layers") = nb::none(),
      nb::arg("kv_heads") = nb::none(),
      nb::sig("def sizes(geometry: Geometry, config: Config | None = None, *, "
              "page_size: int = 64, max_sequences: int = 64, max_context: int, step_tokens: int, "
              "row_dtype: str = 'bf16', fc_map: FcMap | None = None, "
              "slice_dims: object | None = None, layers: tuple[int, int] | None = None, "
              "kv_heads: tuple[int, int] | None = None) -> dict"),
      "Predicts memory in bytes before pages are allocated: of one page ('page'), and of all else "
      "at most ('fixed') with max_sequences sequences of max_context tokens and step_tokens new "
      "tokens per step.");
}

}  // namespace fasa::python
