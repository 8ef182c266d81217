// The paged API.
#include <array>
#include <span>
#include <vector>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/status.h"

using fasa::c::guarded;
using fasa::c::require_given;
using fasa::c::required;
using fasa::c::sums_at;
using fasa::c::view_of;

namespace {

fasa::StreamView stream_for(const fasa_paged& paged, const fasa_stream* stream) {
  return fasa::c::stream_of(stream, paged.device, paged.stream);
}

fasa::PagedShape shape_of(const fasa_paged_options* given) {
  const fasa_paged_options pages = fasa::c::options_of(given, "paged_options");
  const fasa::PagedShape usual;
  return {.page_size = pages.page_size == 0 ? usual.page_size : pages.page_size,
          .num_pages = pages.num_pages,
          .max_sequences = pages.max_sequences == 0 ? usual.max_sequences : pages.max_sequences};
}

fasa::BlockTable table_of(const fasa_block_table* given) {
  const fasa_block_table& table = required(given, "block_table");
  return {table.pages, table.sequences, table.columns,
          table.stride == 0 ? table.columns : table.stride};
}

template <typename T>
fasa::CallerArray array_of(const char* name, const T* data, size_t count) {
  return {name, data, count * sizeof(T), alignof(T)};
}

// The sequences of a call, copied to host memory where needed.
struct Sequences {
  fasa::BlockTable table;
  std::span<const int32_t> lengths;
  std::span<const int32_t> query_lengths;
};
Sequences read_sequences(fasa_paged& paged, const fasa_block_table* block_table,
                         const int32_t* seq_lens, const int32_t* query_lens, size_t count,
                         fasa::StreamView stream) {
  fasa::BlockTable table = table_of(block_table);
  if (static_cast<uint64_t>(table.sequences) != count) {  // checked before any of it is read
    return {table, {seq_lens, count}, {query_lens, count}};
  }
  std::array<fasa::CallerArray, 3> arrays = {
      array_of("block_table", table.pages, fasa::table_entries(*paged.device, table)),
      array_of("seq_lens", seq_lens, count), array_of("query_lens", query_lens, count)};
  if (query_lens == nullptr) arrays[2].bytes = 0;
  paged.tables.read(arrays, stream);
  table.pages = static_cast<const int32_t*>(arrays[0].data);
  const auto lengths = [&](const fasa::CallerArray& array) {
    return std::span(static_cast<const int32_t*>(array.data), array.bytes / sizeof(int32_t));
  };
  return {table, lengths(arrays[1]), lengths(arrays[2])};
}

}  // namespace

fasa_status fasa_paged_create(const fasa_options* options, const fasa_paged_options* paged_options,
                              fasa_paged** paged) {
  return guarded([&] {
    fasa_paged*& result = required(paged, "paged");
    const fasa::PagedShape shape = shape_of(paged_options);
    fasa::c::Opening from = fasa::c::opening_of(options);
    fasa::Stream stream = from.device->create_stream(fasa::StreamPriority::kNormal, "compute");
    result = new fasa_paged{
        from.device,
        std::move(stream),
        {*from.device, from.config, from.geometry, from.row_dtype, from.slice_dims, shape}};
  });
}

fasa_status fasa_paged_sizes(const fasa_options* options, const fasa_paged_options* paged_options,
                             int32_t step_tokens, fasa_kv_memory* page, fasa_kv_memory* fixed) {
  return guarded([&] {
    required(page, "page");
    required(fixed, "fixed");
    const fasa::PagedShape shape = shape_of(paged_options);
    const fasa::c::Opening from = fasa::c::opening_of(options);
    const fasa::PagedSizes sizes =
        fasa::PagedRuntime::sizes(*from.device, from.config, from.geometry, from.row_dtype, shape,
                                  from.max_context, step_tokens);
    fasa::c::give_memory(sizes.page, page);
    fasa::c::give_memory(sizes.fixed, fixed);
  });
}

void fasa_paged_destroy(fasa_paged* paged) { delete paged; }

fasa_status fasa_paged_synchronize(fasa_paged* paged) {
  return guarded([&] {
    const fasa_paged& on = required(paged, "paged");
    on.device->synchronize(on.stream.view());
  });
}

fasa_status fasa_append_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* k,
                              const fasa_tensor* v, const int64_t* slot_mapping, size_t slot_count,
                              fasa_stream* stream) {
  return guarded([&] {
    fasa_paged& to = required(paged, "paged");
    if (slot_count > 0) require_given(slot_mapping, "slot_mapping");
    fasa::Device& device = *to.device;
    const fasa::StreamView on = stream_for(to, stream);
    const fasa::TensorView keys = view_of(device, k, "k");
    const fasa::TensorView values = view_of(device, v, "v");
    fasa::CallerArray slots = array_of("slot_mapping", slot_mapping, slot_count);
    to.tables.read({&slots, 1}, on);
    to.paged.append(layer, keys, values, {static_cast<const int64_t*>(slots.data), slot_count}, on);
  });
}

fasa_status fasa_attend_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* q,
                              const fasa_block_table* block_table, const int32_t* seq_lens,
                              size_t seq_count, const fasa_tensor* out, float* lse,
                              fasa_stream* stream) {
  return guarded([&] {
    fasa_paged& from = required(paged, "paged");
    required(block_table, "block_table");
    require_given(seq_lens, "seq_lens");
    fasa::Device& device = *from.device;
    const fasa::StreamView on = stream_for(from, stream);
    const fasa::TensorView queries = view_of(device, q, "q");
    const fasa::TensorView result = view_of(device, out, "out");
    float* const sums = sums_at(device, lse);
    const Sequences of = read_sequences(from, block_table, seq_lens, nullptr, seq_count, on);
    from.paged.attend(layer, queries, of.table, of.lengths, result, sums, on);
  });
}

fasa_status fasa_prefill_paged(fasa_paged* paged, int32_t layer, const fasa_tensor* q,
                               const fasa_block_table* block_table, const int32_t* seq_lens,
                               const int32_t* query_lens, size_t seq_count, const fasa_tensor* out,
                               float* lse, fasa_stream* stream) {
  return guarded([&] {
    fasa_paged& from = required(paged, "paged");
    required(block_table, "block_table");
    require_given(seq_lens, "seq_lens");
    require_given(query_lens, "query_lens");
    fasa::Device& device = *from.device;
    const fasa::StreamView on = stream_for(from, stream);
    const fasa::TensorView queries = view_of(device, q, "q");
    const fasa::TensorView result = view_of(device, out, "out");
    float* const sums = sums_at(device, lse);
    const Sequences of = read_sequences(from, block_table, seq_lens, query_lens, seq_count, on);
    from.paged.prefill(layer, queries, of.table, of.lengths, of.query_lengths, result, sums, on);
  });
}

fasa_status fasa_paged_read_tables(fasa_paged* paged, const fasa_memory_range* ranges, size_t count,
                                   fasa_stream* stream) {
  return guarded([&] {
    fasa_paged& of = required(paged, "paged");
    if (count > 0) required(ranges, "ranges");
    std::vector<fasa::MemoryRange> all;
    for (size_t i = 0; i < count; ++i) all.push_back({ranges[i].data, ranges[i].bytes});
    of.tables.take(all, stream_for(of, stream));
  });
}

fasa_status fasa_paged_held(fasa_paged* paged, int64_t page, int32_t layer, int32_t* tokens) {
  return guarded(
      [&] { required(tokens, "tokens") = required(paged, "paged").paged.held(page, layer); });
}

fasa_status fasa_paged_read(fasa_paged* paged, int64_t page, int32_t layer, int32_t first,
                            const fasa_tensor* k, const fasa_tensor* v, fasa_stream* stream) {
  return guarded([&] {
    fasa_paged& from = required(paged, "paged");
    fasa::Device& device = *from.device;
    from.paged.read(page, layer, first, view_of(device, k, "k"), view_of(device, v, "v"),
                    stream_for(from, stream));
  });
}

fasa_status fasa_copy_pages(fasa_paged* paged, const fasa_page_copy* copies, size_t count) {
  return guarded([&] {
    fasa_paged& of = required(paged, "paged");
    if (count > 0) required(copies, "copies");
    std::vector<fasa::PageCopy> list;
    for (size_t i = 0; i < count; ++i) list.push_back({copies[i].source, copies[i].destination});
    of.paged.copy_pages(list);
  });
}

fasa_status fasa_drop_pages(fasa_paged* paged, const int64_t* pages, size_t count) {
  return guarded([&] {
    fasa_paged& of = required(paged, "paged");
    if (count > 0) required(pages, "pages");
    of.paged.drop_pages({pages, count});
  });
}

fasa_status fasa_paged_memory(fasa_paged* paged, fasa_kv_memory* memory) {
  return guarded([&] { fasa::c::give_memory(required(paged, "paged").paged.memory(), memory); });
}

fasa_status fasa_paged_read_metrics(fasa_paged* paged, int32_t layer, fasa_metrics* metrics) {
  return guarded(
      [&] { fasa::c::give_metrics(required(paged, "paged").paged.metrics(), layer, metrics); });
}

fasa_status fasa_paged_reset_metrics(fasa_paged* paged) {
  return guarded([&] { required(paged, "paged").paged.reset_metrics(); });
}
