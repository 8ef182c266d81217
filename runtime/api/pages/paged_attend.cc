#include "runtime/api/pages/paged_attend.h"

#include <algorithm>

#include "kernels/hot_slots.h"
#include "runtime/api/tensor_check.h"

namespace fasa {

// The last page's tail belongs to the kPageTokens part that holds the page's newest token. A
// sequence that ends in an earlier part needs its own.
bool PagedAttend::needs_own_tail(int layer, const Part& part) const {
  if (!parts_.store.uses_tails()) return false;
  const int32_t last = part.pages.back();
  if (parts_.store.tail(last) == nullptr) return true;
  const int read = (part.length - 1) % parts_.shape.page_size;
  return (parts_.store.held(last, layer) - 1) / kPageTokens != read / kPageTokens;
}

bool PagedAttend::plan_matches(int layer, const BlockTable& block_table,
                               std::span<const int32_t> seq_lens) const {
  if (plan_.epoch != parts_.store.epoch() || plan_.evictions != views_.evictions() ||
      (plan_.only_layer >= 0 && plan_.only_layer != layer) ||
      !plan_.request.matches(block_table, seq_lens)) {
    return false;
  }
  return std::all_of(plan_.request.parts.begin(), plan_.request.parts.end(), [&](const Part& part) {
    return needs_own_tail(layer, part) == part.own_tail;
  });
}

void PagedAttend::prepare_part(int layer, Part& part) {
  PageView& view = views_.of(part.pages);
  part.view = &view;
  views_.with_room([&] { view.extend(parts_.store, part.pages); });
  part.own_tail = needs_own_tail(layer, part);
  if (part.own_tail) views_.with_room([&] { view.own_tail(); });
  const auto full = [this](int32_t page) {
    return parts_.store.held_by_all(page) == parts_.shape.page_size;
  };
  const auto open = std::find_if_not(part.pages.begin(), part.pages.end() - 1, full);
  part.first_open = open - part.pages.begin();
  const int64_t before = static_cast<int64_t>(part.pages.size()) - 1;
  const bool complete =
      part.first_open == before &&
      parts_.store.held_by_all(part.pages.back()) >= part.length - before * parts_.shape.page_size;
  if (part.own_tail && !complete) plan_.only_layer = layer;
}

void PagedAttend::describe_parts() {
  Plan& plan = plan_;
  DescriptorBuffer& slot = slots_[plan.slot];
  auto& descs = slot.host(DescriptorBuffer::kStep);
  auto& restored = slot.host(DescriptorBuffer::kRestore);
  descs.clear();
  restored.clear();
  StepBatch& tables = plan.tables;
  tables.rows.clear();
  for (const Part& part : plan.request.parts) {
    SequenceDesc desc = part.view->describe();
    desc.first_token = static_cast<int32_t>(descs.size());
    desc.tokens = 1;
    desc.start = part.length - 1;
    if (part.own_tail) desc.tail = part.view->own_tail();
    if (parts_.store.uses_tails() && !part.own_tail)
      desc.tail = parts_.store.tail(part.pages.back());
    descs.push_back(desc);
    tables.rows.push_back({.blocks = part.view->row_blocks()});
    if (!part.own_tail) continue;
    desc.tokens = 0;
    desc.start = part.length;
    restored.push_back(desc);
  }
  parts_.describe(slot, &tables);
  tables.plan = parts_.pipeline->plan(tables, parts_.scratch, {});
}

void PagedAttend::make_plan(int layer, const BlockTable& block_table,
                            std::span<const int32_t> seq_lens) {
  Plan& plan = plan_;
  plan.epoch = 0;
  plan.only_layer = -1;
  plan.request.take(parts_, block_table, seq_lens);
  plan.request.require_held(parts_, "attend", layer);
  views_.begin_call();
  views_.drop_stale();
  for (Part& part : plan.request.parts) prepare_part(layer, part);
  const Capacities capacities =
      capacities_for(parts_.settings, {.context = plan.request.longest(),
                                       .count = static_cast<int>(seq_lens.size()),
                                       .access = parts_.settings.access(),
                                       .hot_rows = parts_.hot_rows});
  views_.with_room([&] { parts_.scratch.ensure(capacities); });
  plan.slot = (plan.slot + 1) % slots_.size();
  DescriptorBuffer& slot = slots_[plan.slot];
  slot.wait_until_free();
  views_.with_room([&] { slot.ensure(seq_lens.size()); });

  parts_.guard.begin();
  const StreamView control = parts_.control.view();
  const bool restores = std::any_of(plan.request.parts.begin(), plan.request.parts.end(),
                                    [](const Part& p) { return p.own_tail; });
  if (restores) parts_.order(parts_.latest());  // rows may be on their way to the host
  for (const Part& part : plan.request.parts) part.view->upload(control);
  describe_parts();
  slot.upload(control);
  parts_.restore(slot);
  parts_.record_tables();
  plan.epoch = parts_.store.epoch();
  plan.evictions = views_.evictions();
}

// A call for a layer that does not come after the last one begins a new step.
void PagedAttend::begin_step_number(int layer) {
  if (layer <= last_layer_ || step_number_ == 0) {
    if (step_number_ >= parts_.shape.max_steps) {
      parts_.order(parts_.latest());
      views_.forget_hot_rows();
      plan_.epoch = 0;
      step_number_ = 0;
    }
    ++step_number_;
  }
  last_layer_ = layer;
}

void PagedAttend::run(int layer, ConstTensorView q, const BlockTable& block_table,
                      std::span<const int32_t> seq_lens, TensorView out, float* lse,
                      StreamView stream) {
  parts_.require_usable("attend", layer);
  check_lengths(parts_.shape, "attend", block_table, seq_lens);
  require_shape("q", q, block_table.sequences, parts_.geometry.query_heads,
                parts_.geometry.key_dim);
  require_shape("out", out, block_table.sequences, parts_.geometry.query_heads,
                parts_.geometry.value_dim);
  Plan& plan = plan_;
  parts_.guard.run([&] {
    begin_step_number(layer);
    if (plan_matches(layer, block_table, seq_lens)) {
      plan.request.require_held(parts_, "attend", layer);
      for (const Part& part : plan.request.parts) views_.use(*part.view);
    } else {
      make_plan(layer, block_table, seq_lens);
    }
    parts_.guard.begin();
    plan.tables.step_number = StepNumber(step_number_);
    parts_.wait_for_tables(stream, tag_of(layer, Cause::kCompute));
    parts_.pipeline->attend(plan.tables, parts_.scratch, layer, q, out, lse, stream);
    slots_[plan.slot].mark_done(stream);
    parts_.record_last(stream);
  });
  if (layer == 0) parts_.counters.add_decode_step();
}

}  // namespace fasa
