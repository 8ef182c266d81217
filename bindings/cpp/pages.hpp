/// \file
/// The pages API and the stateless API.
#ifndef FASA_PAGES_HPP
#define FASA_PAGES_HPP

#include <fasa/options.hpp>

#include <cstdint>
#include <span>

namespace fasa {
inline namespace v0 {

/// Page ids in the order of each sequence, [sequences][columns]. Entries beyond a length are
/// ignored.
struct BlockTable {
  const int32_t* pages = nullptr;
  int64_t sequences = 0;
  int64_t columns = 0;
  int64_t stride = 0;  ///< 0: columns
};

class PagedRuntime {
 public:
  struct Pages {
    int size = 64;  ///< tokens: 64, 128, 192 or 256
    int64_t count = 0;
    int max_sequences = 64;  ///< most sequences in flight; each has hot rows
  };

  /// Memory needed, in bytes: of one page, and the upper bound of all else.
  struct Sizes {
    KvMemory page = FASA_KV_MEMORY_INIT;
    KvMemory fixed = FASA_KV_MEMORY_INIT;
  };

  /// For sequences of up to options.max_context tokens and `step_tokens` new tokens a step.
  static Sizes sizes(const Options& options, const Pages& pages, int step_tokens) {
    const fasa_paged_options paged = c_options(pages);
    Sizes sizes;
    check(fasa_paged_sizes(detail::COptions(options).get(), &paged, step_tokens, &sizes.page,
                           &sizes.fixed));
    return sizes;
  }

  PagedRuntime(const Options& options, const Pages& pages) {
    const fasa_paged_options paged = c_options(pages);
    fasa_paged* made = nullptr;
    check(fasa_paged_create(detail::COptions(options).get(), &paged, &made));
    handle_.reset(made);
  }

  /// Writes token i to slot slots[i] = page * page size + offset. A negative slot stores nothing.
  void append(int layer, const ConstTensorView& k, const ConstTensorView& v,
              std::span<const int64_t> slots, Stream* stream = nullptr) {
    check(fasa_append_paged(c(), layer, k.c(), v.c(), slots.data(), slots.size(),
                            detail::c_stream(stream)));
  }
  /// The newest token of every sequence attends over the first lengths[i] tokens of its pages.
  void attend(int layer, const ConstTensorView& q, const BlockTable& table,
              std::span<const int32_t> lengths, const TensorView& out, float* lse = nullptr,
              Stream* stream = nullptr) {
    const fasa_block_table c_table = {table.pages, table.sequences, table.columns, table.stride};
    check(fasa_attend_paged(c(), layer, q.c(), &c_table, lengths.data(), lengths.size(), out.c(),
                            lse, detail::c_stream(stream)));
  }
  /// Exact causal attention for the newest query_lengths[i] of the first lengths[i] tokens of every
  /// sequence; all of them must be appended before.
  void prefill(int layer, const ConstTensorView& q, const BlockTable& table,
               std::span<const int32_t> lengths, std::span<const int32_t> query_lengths,
               const TensorView& out, float* lse = nullptr, Stream* stream = nullptr) {
    const fasa_block_table c_table = {table.pages, table.sequences, table.columns, table.stride};
    if (lengths.size() != query_lengths.size()) {
      throw UsageError(FASA_ERROR_USAGE,
                       "query_lengths: wrong number of values; allowed: as many as lengths");
    }
    check(fasa_prefill_paged(c(), layer, q.c(), &c_table, lengths.data(), query_lengths.data(),
                             lengths.size(), out.c(), lse, detail::c_stream(stream)));
  }
  /// Reads a step's slots, tables and lengths in device memory once, for all layers.
  void read_tables(std::span<const fasa_memory_range> ranges, Stream* stream = nullptr) {
    check(fasa_paged_read_tables(c(), ranges.data(), ranges.size(), detail::c_stream(stream)));
  }
  /// Number of tokens that a page holds in a layer.
  int held(int64_t page, int layer) const {
    int32_t tokens = 0;
    check(fasa_paged_held(c(), page, layer, &tokens));
    return tokens;
  }
  /// Stored keys and values of slots first, first + 1, ... of a page.
  void read(int64_t page, int layer, int first, const TensorView& k, const TensorView& v,
            Stream* stream = nullptr) {
    check(fasa_paged_read(c(), page, layer, first, k.c(), v.c(), detail::c_stream(stream)));
  }
  /// Copies pages, in order. Call it between steps.
  void copy(std::span<const fasa_page_copy> copies) {
    check(fasa_copy_pages(c(), copies.data(), copies.size()));
  }
  void drop(std::span<const int64_t> pages) {
    check(fasa_drop_pages(c(), pages.data(), pages.size()));
  }
  void synchronize() { check(fasa_paged_synchronize(c())); }

  KvMemory memory() const {
    KvMemory memory = FASA_KV_MEMORY_INIT;
    check(fasa_paged_memory(c(), &memory));
    return memory;
  }
  Metrics metrics(int layer = -1) {
    Metrics metrics = FASA_METRICS_INIT;
    check(fasa_paged_read_metrics(c(), layer, &metrics));
    return metrics;
  }
  void reset_metrics() { check(fasa_paged_reset_metrics(c())); }
  fasa_paged* c() const { return handle_.get(); }

 private:
  static fasa_paged_options c_options(const Pages& pages) {
    fasa_paged_options paged = FASA_PAGED_OPTIONS_INIT;
    paged.page_size = pages.size;
    paged.num_pages = pages.count;
    paged.max_sequences = pages.max_sequences;
    return paged;
  }

  detail::Owner<fasa_paged, fasa_paged_destroy> handle_;
};

/// One decode step of one layer: q [batch, query_heads, key_dim], k and v [batch, kv_heads, tokens,
/// dim] -> out [batch, query_heads, value_dim]. `lengths` [batch], or empty: all tokens count.
inline void sparse_decode(const Options& options, int layer, const ConstTensorView& q,
                          const ConstTensorView& k, const ConstTensorView& v,
                          std::span<const int64_t> lengths, const TensorView& out,
                          float* lse = nullptr, Stream* stream = nullptr) {
  check(fasa_sparse_decode(detail::COptions(options).get(), layer, q.c(), k.c(), v.c(),
                           lengths.empty() ? nullptr : lengths.data(), out.c(), lse,
                           detail::c_stream(stream)));
}

}  // namespace v0
}  // namespace fasa

#endif  // FASA_PAGES_HPP
