#include "runtime/api/pages/paged_prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/api/tensor_check.h"
#include "runtime/base/error.h"

namespace fasa {

// Returns the number of new tokens of all sequences.
int64_t PagedPrefill::check_queries(std::span<const int32_t> seq_lens,
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

bool PagedPrefill::plan_matches(const BlockTable& block_table, std::span<const int32_t> seq_lens,
                                std::span<const int32_t> query_lens) const {
  return plan_.made && plan_.request.matches(block_table, seq_lens) &&
         std::equal(query_lens.begin(), query_lens.end(), plan_.query_lens.begin());
}

// Rows that kernels read in place need no scratch.
PrefillCapacities PagedPrefill::capacities() const {
  if (engine_.settings().access() == RowAccess::kLocal) return {};
  const Plan& plan = plan_;
  return {.pages = 0,
          .tokens = std::accumulate(plan.query_lens.begin(), plan.query_lens.end(), 0),
          .past_pages = pages_of(plan.request.longest())};
}

// Everything that can fail for lack of memory.
void PagedPrefill::reserve(PagedSlot& slot) {
  const size_t count = plan_.request.parts.size();
  slot.step.wait_until_free();
  slot.step.ensure(count);
  slot.rows.truncate(0);
  slot.rows.reserve(static_cast<int64_t>(plan_.request.table.size()) * store_.parts());
  const Capacities needed{.decode = {}, .prefill = capacities()};
  if (engine_.scratch().covers(needed)) return;
  append_.forget();  // its tables name the write-back buffer, which moves
  engine_.scratch().ensure(needed);
}

void PagedPrefill::describe(PagedSlot& slot) {
  Plan& plan = plan_;
  slot.rows.prepare_overwrite(0);
  for (const int32_t page : plan.request.table) {
    for (int part = 0; part < store_.parts(); ++part) {
      slot.rows.append(store_.row_block(page, part));
    }
  }
  auto& descs = slot.step.host(DescriptorBuffer::kStep);
  descs.clear();
  StepContext& tables = plan.tables;
  tables.rows.clear();
  int32_t first_token = 0;
  size_t entry = 0;
  for (size_t i = 0; i < plan.request.parts.size(); ++i) {
    const size_t blocks = plan.request.parts[i].pages.size() * static_cast<size_t>(store_.parts());
    SequenceDesc desc;
    desc.mode = StepMode::kPrefill;
    desc.first_token = first_token;
    desc.tokens = plan.query_lens[i];
    desc.start = plan.request.lengths[i] - plan.query_lens[i];
    desc.row_blocks = slot.rows.device_data() + entry;
    desc.access = engine_.settings().access();
    descs.push_back(desc);
    tables.rows.push_back({.blocks = slot.rows.values().subspan(entry, blocks)});
    first_token += desc.tokens;
    entry += blocks;
  }
  engine_.describe(slot.step, &tables);
  tables.by_page = true;
  tables.plan = engine_.executor().plan(tables, engine_.scratch(), {});
}

void PagedPrefill::make_plan(int layer, const BlockTable& block_table,
                             std::span<const int32_t> seq_lens,
                             std::span<const int32_t> query_lens) {
  Plan& plan = plan_;
  plan.made = false;
  plan.request.take(store_, block_table, seq_lens);
  plan.query_lens.assign(query_lens.begin(), query_lens.end());
  plan.request.require_held(store_, "prefill", layer);
  plan.slot = (plan.slot + 1) % slots_.size();
  PagedSlot& slot = slots_[plan.slot];
  views_.begin_call();  // no view is in use
  views_.with_room([&] { reserve(slot); });
  streams_.begin();
  describe(slot);
  const StreamView control = engine_.control();
  slot.step.upload(control);
  slot.rows.upload(control);
  engine_.record_tables();
  plan.made = true;
}

void PagedPrefill::run(int layer, ConstTensorView q, const BlockTable& block_table,
                       std::span<const int32_t> seq_lens, std::span<const int32_t> query_lens,
                       TensorView out, float* lse, StreamView stream) {
  streams_.require_usable("prefill", layer);
  check_lengths(store_.page_size(), "prefill", block_table, seq_lens);
  const int64_t tokens = check_queries(seq_lens, query_lens);
  require_shape("q", q, tokens, engine_.geometry().query_heads, engine_.geometry().key_dim);
  require_shape("out", out, tokens, engine_.geometry().query_heads, engine_.geometry().value_dim);
  Plan& plan = plan_;
  streams_.run([&] {
    if (plan_matches(block_table, seq_lens, query_lens)) {
      plan.request.require_held(store_, "prefill", layer);
    } else {
      make_plan(layer, block_table, seq_lens, query_lens);
    }
    streams_.begin();
    streams_.wait_for_tables(stream, tag_of(layer, Cause::kPrefill));
    engine_.executor().attend(plan.tables, engine_.scratch(), layer, q, out, lse, stream);
    slots_[plan.slot].step.mark_done(stream);
    streams_.record_last(stream);
  });
}

}  // namespace fasa
