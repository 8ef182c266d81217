// Exact attention of prompts over a caller's pages, which have the new rows already: nothing is
// selected, so no view is needed, only where the pages are.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/doors/paged_guard.h"
#include "runtime/doors/paged_runtime_impl.h"
#include "runtime/doors/tensor_check.h"

namespace fasa {

// New tokens of all sequences.
int64_t PagedRuntime::Impl::check_queries(std::span<const int32_t> seq_lens,
                                          std::span<const int32_t> query_lens) const {
  if (query_lens.size() != seq_lens.size()) {
    throw UsageError(
        fmt::format("prefill: {} query_lens for {} seq_lens", query_lens.size(), seq_lens.size()));
  }
  for (size_t i = 0; i < query_lens.size(); ++i) {
    if (query_lens[i] >= 1 && query_lens[i] <= seq_lens[i]) continue;
    throw UsageError(fmt::format("prefill: query_lens[{}] = {}: allowed: 1 to seq_lens[{}] = {}", i,
                                 query_lens[i], i, seq_lens[i]));
  }
  const int64_t tokens = std::accumulate(query_lens.begin(), query_lens.end(), int64_t{0});
  if (tokens > INT32_MAX) {
    throw UsageError(fmt::format("prefill of {} tokens: allowed: {}", tokens, INT32_MAX));
  }
  return tokens;
}

bool PagedRuntime::Impl::prefill_matches(const BlockTable& block_table,
                                         std::span<const int32_t> seq_lens,
                                         std::span<const int32_t> query_lens) const {
  const PrefillPlan& plan = prefill_plan_;
  if (!plan.made ||
      !std::equal(seq_lens.begin(), seq_lens.end(), plan.lengths.begin(), plan.lengths.end()) ||
      !std::equal(query_lens.begin(), query_lens.end(), plan.query_lens.begin())) {
    return false;
  }
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const std::span<const int32_t> pages = plan.parts[i].pages;
    if (!std::equal(pages.begin(), pages.end(),
                    block_table.pages + static_cast<int64_t>(i) * block_table.stride)) {
      return false;
    }
  }
  return true;
}

// Rows that are read where they lie need none.
PrefillShape PagedRuntime::Impl::prefill_scratch() const {
  if (settings_.rows_on_device && !store_.small()) return {};
  const PrefillPlan& plan = prefill_plan_;
  const int longest = *std::max_element(plan.lengths.begin(), plan.lengths.end());
  return {.pages = 0,
          .tokens = std::accumulate(plan.query_lens.begin(), plan.query_lens.end(), 0),
          .past_pages = pages_of(longest)};
}

// All that may fail for memory.
void PagedRuntime::Impl::reserve_prefill(Slot& slot) {
  const size_t count = prefill_plan_.parts.size();
  slot.step.wait_until_free();
  if (slot.step.capacity() < count) {
    drain();
    slot.step.ensure(count);
  }
  slot.rows.truncate(0);
  slot.rows.reserve(static_cast<int64_t>(prefill_plan_.table.size()) * store_.parts());
  const PrefillShape shape = prefill_scratch();
  if (scratch_.covers({}, shape)) return;
  drain();
  append_plan_.epoch = 0;  // its tables name the stage, which moves
  scratch_.ensure({}, shape);
}

void PagedRuntime::Impl::describe_prefill(Slot& slot) {
  PrefillPlan& plan = prefill_plan_;
  slot.rows.prepare_overwrite(0);
  for (const int32_t page : plan.table) {
    for (int part = 0; part < store_.parts(); ++part) {
      slot.rows.append(store_.row_block(page, part));
    }
  }
  auto& descs = slot.step.host(DescriptorBuffer::kStep);
  descs.clear();
  StepBatch& tables = plan.tables;
  tables.row_blocks.clear();
  tables.device_row_blocks.assign(plan.parts.size(), {});
  int32_t first_token = 0;
  size_t entry = 0;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const size_t blocks = plan.parts[i].pages.size() * static_cast<size_t>(store_.parts());
    SequenceDesc desc;
    desc.mode = StepMode::kPrefill;
    desc.first_token = first_token;
    desc.tokens = plan.query_lens[i];
    desc.start = plan.lengths[i] - plan.query_lens[i];
    desc.row_blocks = slot.rows.device_data() + entry;
    descs.push_back(desc);
    tables.row_blocks.push_back(slot.rows.values().subspan(entry, blocks));
    first_token += desc.tokens;
    entry += blocks;
  }
  tables.on_device = slot.step.device(DescriptorBuffer::kStep);
  tables.on_host = descs;
  tables.slice_dims = slice_dims_.as<int16_t>();
  tables.counters = counters_.layers();
  tables.tables_ready = tables_ready_.view();
  tables.by_page = true;
}

void PagedRuntime::Impl::plan_prefill(int layer, const BlockTable& block_table,
                                      std::span<const int32_t> seq_lens,
                                      std::span<const int32_t> query_lens) {
  PrefillPlan& plan = prefill_plan_;
  plan.made = false;
  take_table(block_table, seq_lens, &plan);
  plan.query_lens.assign(query_lens.begin(), query_lens.end());
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    require_held("prefill", layer, plan.parts[i], static_cast<int64_t>(i));
  }
  plan.slot = (plan.slot + 1) % prefill_slots_.size();
  Slot& slot = prefill_slots_[plan.slot];
  ++clock_;  // no view is at work
  with_room([&] { reserve_prefill(slot); });
  guard_.begin();
  describe_prefill(slot);
  const StreamView control = control_.view();
  slot.step.upload(control);
  slot.rows.upload(control);
  device_.record(tables_ready_.view(), control);
  plan.made = true;
}

void PagedRuntime::Impl::prefill(int layer, ConstTensorView q, const BlockTable& block_table,
                                 std::span<const int32_t> seq_lens,
                                 std::span<const int32_t> query_lens, TensorView out, float* lse,
                                 StreamView stream) {
  require_usable("prefill", layer);
  check_lengths("prefill", block_table, seq_lens);
  const int64_t tokens = check_queries(seq_lens, query_lens);
  require_shape("q", q, tokens, geometry_.query_heads, geometry_.key_dim);
  require_shape("out", out, tokens, geometry_.query_heads, geometry_.value_dim);
  PrefillPlan& plan = prefill_plan_;
  guard_.run([&] {
    if (prefill_matches(block_table, seq_lens, query_lens)) {
      for (size_t i = 0; i < plan.parts.size(); ++i) {
        require_held("prefill", layer, plan.parts[i], static_cast<int64_t>(i));
      }
    } else {
      plan_prefill(layer, block_table, seq_lens, query_lens);
    }
    guard_.begin();
    device_.wait(stream, last_.view(), tag_of(layer, Cause::kPrefill));
    device_.wait(stream, tables_ready_.view(), tag_of(layer, Cause::kPrefill));
    pipeline_->attend(plan.tables, scratch_, layer, q, out, lse, stream);
    prefill_slots_[plan.slot].step.mark_done(stream);
    device_.record(last_.view(), stream);
  });
}

void PagedRuntime::Impl::read(int64_t page, int layer, int first, TensorView k, TensorView v,
                              StreamView stream) {
  require_usable("read", layer);
  require_page(page);
  require_shape("k", k, k.tokens, geometry_.kv_heads, geometry_.key_dim);
  require_shape("v", v, k.tokens, geometry_.kv_heads, geometry_.value_dim);
  const int held = store_.held(page, layer);
  if (first < 0 || k.tokens < 0 || first > held - k.tokens) {
    throw UsageError(fmt::format("read of tokens {} to {} of page {}, layer {}, which holds {}",
                                 first, first + k.tokens - 1, page, layer, held));
  }
  guard_.run([&] {
    drain();
    read_blocks_.truncate(0);
    ++clock_;
    with_room([&] { read_blocks_.reserve(store_.parts()); });
    guard_.begin();
    read_blocks_.prepare_overwrite(0);
    for (int part = 0; part < store_.parts(); ++part) {
      read_blocks_.append(store_.row_block(page, part));
    }
    const OperationTag tag = tag_of(layer, Cause::kControl);
    read_blocks_.upload(control_.view());
    device_.record(tables_ready_.view(), control_.view());
    device_.wait(stream, tables_ready_.view(), tag);
    device_.enqueue(ReadRowsParams{.layout = settings_.layout,
                                   .layer = layer,
                                   .row_blocks = read_blocks_.device_data(),
                                   .first = first,
                                   .rows_on_device = settings_.rows_on_device,
                                   .k = k,
                                   .v = v},
                    stream, tag);
    device_.record(last_.view(), stream);
  });
}

}  // namespace fasa
