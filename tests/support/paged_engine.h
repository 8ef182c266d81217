// Uses the paged API as a serving engine that owns page ids does, and runs the same tokens through
// the sequences API.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/fasa.hpp"
#include "tests/support/device_tensors.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/faulty_device.h"
#include "tests/support/interpreted_kernels.h"
#include "tests/support/runs.h"

namespace fasa::testing {

struct PagedSetup {
  const char* device = "cpu";  // cuda:0 is the fake GPU
  bool interpreted = false;    // on cuda:0: the kernels' bodies instead of the CPU's kernels
  int page_size = 64;
  int64_t pages = 24;
  RowPlacement rows = RowPlacement::kHost;
  std::optional<int> hot_rows = 64;
  SliceDType slice = SliceDType::kInt2;
  SelectionKind kind = SelectionKind::kFasa;
  int64_t low_bit_tokens = 0;
  RowDType row_dtype = RowDType::kBF16;
  std::vector<int> dense_layers = {};
  int max_sequences = 64;
  std::optional<uint64_t> device_memory = std::nullopt;
  int32_t max_steps = kMaxSteps;
};

inline Config config_of(const PagedSetup& setup) {
  Config config;
  config.selection.kind = setup.kind;
  config.selection.slice_dtype = setup.slice;
  config.selection.fac_tokens = {{.tokens = 48, .share = 0}};
  config.selection.low_bit_tokens = low_bit_count(setup.low_bit_tokens);
  config.selection.sinks = 3;
  config.selection.recent = 5;
  config.selection.dense_layers = setup.dense_layers;
  config.placement.rows = setup.rows;
  config.placement.hot_rows = setup.hot_rows;
  return config;
}

inline DeviceOptions options_of(const PagedSetup& setup) {
  DeviceOptions options;
  options.name = setup.device;
  options.threads = 2;
  options.device_memory = setup.device_memory;
  return options;
}
inline std::unique_ptr<Device> open(const PagedSetup& setup, FakeCuda& fake) {
  return open_device(options_of(setup),
                     setup.interpreted ? interpreted_platform(fake) : fake.platform());
}

// A sequence as an engine represents it: its tokens and their pages.
struct Sequence {
  std::vector<uint64_t> seeds;  // the seed of the token at each position
  std::vector<int32_t> pages;
  int64_t length() const { return static_cast<int64_t>(seeds.size()); }
};

// New tokens of several sequences, in the order in which a call takes them.
struct Token {
  uint64_t seed;
  int64_t position;
};

class Engine {
 public:
  explicit Engine(const PagedSetup& setup)
      : setup_(setup),
        inner_(open(setup, fake_)),
        device_(*inner_),
        tensors_(*inner_),  // only the API's own calls fail
        paged_(device_, config_of(setup), small_geometry(setup.row_dtype), setup.row_dtype,
               all_slice_dims(small_geometry(setup.row_dtype)),
               {.page_size = setup.page_size,
                .num_pages = setup.pages,
                .max_sequences = setup.max_sequences,
                .max_steps = setup.max_steps}),
        references_(static_cast<size_t>(setup.pages), 0) {
    for (int64_t page = setup.pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
  }

  PagedRuntime& paged() { return paged_; }
  DeviceTensors& tensors() { return tensors_; }
  FaultyDevice& device() { return device_; }
  const Geometry& geometry() const { return paged_.geometry(); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages_for(int64_t tokens) const {
    return (tokens + setup_.page_size - 1) / setup_.page_size;
  }

  // Slots for the next tokens of `sequence`; takes new pages, and copies the last page if it is
  // shared.
  std::vector<int64_t> place(Sequence& sequence, int64_t tokens, uint64_t seed) {
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t position = sequence.length();
      const int64_t offset = position % setup_.page_size;
      if (offset == 0) {
        sequence.pages.push_back(take());
      } else if (references_[static_cast<size_t>(sequence.pages.back())] > 1) {
        const int32_t own = take();
        const PageCopy copy{sequence.pages.back(), own};
        paged_.copy_pages({&copy, 1});
        --references_[static_cast<size_t>(sequence.pages.back())];
        sequence.pages.back() = own;
      }
      slots.push_back(int64_t{sequence.pages.back()} * setup_.page_size + offset);
      sequence.seeds.push_back(seed);
    }
    return slots;
  }
  Sequence fork(const Sequence& parent) {
    for (const int32_t page : parent.pages) ++references_[static_cast<size_t>(page)];
    return parent;
  }
  // A sequence that begins with the first pages of `parent`, all of them full.
  Sequence share(const Sequence& parent, int64_t pages) {
    Sequence sequence;
    sequence.pages.assign(parent.pages.begin(), parent.pages.begin() + pages);
    sequence.seeds.assign(parent.seeds.begin(), parent.seeds.begin() + pages * setup_.page_size);
    return fork(sequence);
  }
  std::vector<int64_t> release(Sequence& sequence) {
    std::vector<int64_t> freed;
    for (const int32_t page : sequence.pages) {
      if (--references_[static_cast<size_t>(page)] > 0) continue;
      free_.push_back(page);
      freed.push_back(page);
    }
    sequence = {};
    return freed;
  }

  TensorView tensor(const std::vector<Token>& tokens, int layer, TapeKind kind, int heads,
                    int dim) {
    std::vector<std::byte> host(tokens.size() * static_cast<size_t>(heads * dim) * 4);
    int64_t at = 0;
    for (const Token& token : tokens) {
      for (int i = 0; i < heads * dim; ++i) {
        store_element(DType::kF32, host.data(), at++,
                      tape_value(token.seed, layer, token.position, kind, i));
      }
    }
    return TensorView::dense(tensors_.upload(host), DType::kF32,
                             static_cast<int64_t>(tokens.size()), heads, dim);
  }
  void append(int layer, const std::vector<Token>& tokens, const std::vector<int64_t>& slots) {
    const Geometry& g = geometry();
    paged_.append(layer, tensor(tokens, layer, TapeKind::kKey, g.kv_heads, g.key_dim),
                  tensor(tokens, layer, TapeKind::kValue, g.kv_heads, g.value_dim), slots,
                  tensors_.stream());
  }
  void append_all(const std::vector<Token>& tokens, const std::vector<int64_t>& slots) {
    for (int layer = 0; layer < geometry().layers; ++layer) append(layer, tokens, slots);
    tensors_.synchronize();
    tensors_.clear();
  }

  // The newest tokens' attention of one layer, [sequence][query heads x value_dim].
  std::vector<std::vector<float>> attend(int layer, const std::vector<const Sequence*>& batch,
                                         std::vector<int32_t> lengths = {}) {
    const Geometry& g = geometry();
    std::vector<Token> queries;
    size_t columns = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (lengths.size() <= i) lengths.push_back(static_cast<int32_t>(batch[i]->length()));
      columns = std::max(columns, batch[i]->pages.size());
      const size_t newest =
          static_cast<size_t>(std::max(lengths[i], 1) - 1);  // invalid lengths are passed too
      queries.push_back(
          {newest < batch[i]->seeds.size() ? batch[i]->seeds[newest] : 0, lengths[i] - 1});
    }
    const std::vector<int32_t> table = table_of(batch, columns + 3);
    const auto count = static_cast<int64_t>(batch.size());
    const TensorView out = tensors_.zeros(count, g.query_heads, g.value_dim);
    paged_.attend(
        layer, tensor(queries, layer, TapeKind::kQuery, g.query_heads, g.key_dim),
        {table.data(), count, static_cast<int64_t>(columns), static_cast<int64_t>(columns + 3)},
        lengths, out, nullptr, tensors_.stream());
    const std::vector<float> all = tensors_.values(out);
    std::vector<std::vector<float>> parts;
    const int64_t width = g.query_heads * g.value_dim;
    for (int64_t i = 0; i < count; ++i) {
      parts.emplace_back(all.begin() + i * width, all.begin() + (i + 1) * width);
    }
    return parts;
  }

  // Exact attention of the newest query_lens[i] tokens, [sequence][tokens x query heads x
  // value_dim].
  std::vector<std::vector<float>> prefill(int layer, const std::vector<const Sequence*>& batch,
                                          const std::vector<int32_t>& query_lens) {
    const Geometry& g = geometry();
    std::vector<Token> queries;
    std::vector<int32_t> lengths;
    size_t columns = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto length = batch[i]->length();
      lengths.push_back(static_cast<int32_t>(length));
      columns = std::max(columns, batch[i]->pages.size());
      for (int64_t at = std::max<int64_t>(0, length - query_lens[i]); at < length; ++at) {
        queries.push_back({batch[i]->seeds[static_cast<size_t>(at)], at});
      }
    }
    const std::vector<int32_t> table = table_of(batch, columns);
    const auto count = static_cast<int64_t>(batch.size());
    const auto wide = static_cast<int64_t>(columns);
    const TensorView out =
        tensors_.zeros(static_cast<int64_t>(queries.size()), g.query_heads, g.value_dim);
    paged_.prefill(layer, tensor(queries, layer, TapeKind::kQuery, g.query_heads, g.key_dim),
                   {table.data(), count, wide, wide}, lengths, query_lens, out, nullptr,
                   tensors_.stream());
    const std::vector<float> all = tensors_.values(out);
    std::vector<std::vector<float>> parts;
    auto at = all.begin();
    for (const int32_t tokens : query_lens) {
      const auto end = at + int64_t{tokens} * g.query_heads * g.value_dim;
      parts.emplace_back(at, end);
      at = end;
    }
    return parts;
  }

 private:
  static std::vector<int32_t> table_of(const std::vector<const Sequence*>& batch, size_t columns) {
    // the value of unused entries has no meaning
    std::vector<int32_t> table(batch.size() * columns, -7);
    for (size_t i = 0; i < batch.size(); ++i) {
      std::copy(batch[i]->pages.begin(), batch[i]->pages.end(),
                table.begin() + static_cast<int64_t>(i * columns));
    }
    return table;
  }
  int32_t take() {
    const int32_t page = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(page)] = 1;
    return page;
  }

  const PagedSetup setup_;
  FakeCuda fake_;
  std::unique_ptr<Device> inner_;
  FaultyDevice device_;  // fails when told to
  DeviceTensors tensors_;
  PagedRuntime paged_;
  std::vector<int> references_;
  std::vector<int32_t> free_;  // the last one freed is taken first, so ids are reused soon
};

// The same tokens through the sequences API, on the processor or with the same kernels: the newest
// token's [layer][query heads x value_dim].
class Reference {
 public:
  explicit Reference(const PagedSetup& setup)
      : device_(open(setup.interpreted ? setup : PagedSetup{}, fake_)),
        tensors_(*device_),
        runtime_(*device_, config_of(setup), small_geometry(setup.row_dtype), setup.row_dtype,
                 all_slice_dims(small_geometry(setup.row_dtype))) {}

  std::vector<std::vector<float>> newest(const std::vector<uint64_t>& seeds) {
    const auto found = known_.find(seeds);
    if (found != known_.end()) return found->second;
    const SequenceId id = runtime_.create();
    const auto length = static_cast<int64_t>(seeds.size());
    if (length > 1) step(id, seeds, 0, length - 1, StepMode::kPrefill, false);
    auto outputs = step(id, seeds, length - 1, 1, StepMode::kDecode);
    runtime_.free(id);
    tensors_.clear();
    return known_[seeds] = outputs;
  }
  // Outputs of every token, exact: [layer][tokens x query heads x value_dim].
  std::vector<std::vector<float>> prompt(const std::vector<uint64_t>& seeds) {
    const auto found = prompts_.find(seeds);
    if (found != prompts_.end()) return found->second;
    const SequenceId id = runtime_.create();
    auto outputs = step(id, seeds, 0, static_cast<int64_t>(seeds.size()), StepMode::kPrefill);
    runtime_.free(id);
    tensors_.clear();
    return prompts_[seeds] = outputs;
  }

 private:
  TensorView tensor(const std::vector<uint64_t>& seeds, int64_t first, int64_t count, int layer,
                    TapeKind kind, int heads, int dim) {
    std::vector<std::byte> host(static_cast<size_t>(count * heads * dim * 4));
    int64_t at = 0;
    for (int64_t t = first; t < first + count; ++t) {
      for (int i = 0; i < heads * dim; ++i) {
        store_element(DType::kF32, host.data(), at++,
                      tape_value(seeds[static_cast<size_t>(t)], layer, t, kind, i));
      }
    }
    return TensorView::dense(tensors_.upload(host), DType::kF32, count, heads, dim);
  }
  std::vector<std::vector<float>> step(SequenceId id, const std::vector<uint64_t>& seeds,
                                       int64_t first, int64_t count, StepMode mode,
                                       bool attends = true) {
    const Geometry& g = runtime_.geometry();
    const StepSequence part{id, static_cast<int>(count), mode};
    runtime_.begin_step({&part, 1});
    std::vector<std::vector<float>> outputs;
    for (int layer = 0; layer < g.layers; ++layer) {
      const auto of = [&](TapeKind kind, int heads, int dim) {
        return tensor(seeds, first, count, layer, kind, heads, dim);
      };
      runtime_.append(layer, of(TapeKind::kKey, g.kv_heads, g.key_dim),
                      of(TapeKind::kValue, g.kv_heads, g.value_dim), tensors_.stream());
      if (!attends) continue;
      const TensorView out = tensors_.zeros(count, g.query_heads, g.value_dim);
      runtime_.attend(layer, of(TapeKind::kQuery, g.query_heads, g.key_dim), out, nullptr,
                      tensors_.stream());
      outputs.push_back(tensors_.values(out));
    }
    runtime_.end_step();
    return outputs;
  }

  FakeCuda fake_;
  std::unique_ptr<Device> device_;
  DeviceTensors tensors_;
  Runtime runtime_;
  std::map<std::vector<uint64_t>, std::vector<std::vector<float>>> known_;
  std::map<std::vector<uint64_t>, std::vector<std::vector<float>>> prompts_;
};

}  // namespace fasa::testing
