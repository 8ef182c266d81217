#include "runtime/api/pages/paged_attend.h"

#include <algorithm>

#include "kernels/hot_slots.h"
#include "runtime/api/tensor_check.h"

namespace fasa {

// The last page's tail belongs to the kPageTokens part that holds the page's newest token. A
// sequence that ends in an earlier part needs its own.
bool PagedAttend::needs_own_tail(int layer, const Part& part) const {
  if (!store_.uses_tails()) return false;
  const int32_t last = part.pages.back();
  if (store_.tail(last) == nullptr) return true;
  const int read = (part.length - 1) % store_.page_size();
  return (store_.held(last, layer) - 1) / kPageTokens != read / kPageTokens;
}

bool PagedAttend::plan_matches(int layer, const BlockTable& block_table,
                               std::span<const int32_t> seq_lens) const {
  if (plan_.epoch != store_.epoch() || plan_.evictions != views_.evictions() ||
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
  views_.with_room([&] { view.extend(store_, part.pages); });
  part.own_tail = needs_own_tail(layer, part);
  if (part.own_tail) views_.with_room([&] { view.own_tail(); });
  const auto full = [this](int32_t page) { return store_.held_by_all(page) == store_.page_size(); };
  const auto open = std::find_if_not(part.pages.begin(), part.pages.end() - 1, full);
  part.first_open = open - part.pages.begin();
  const int64_t before = static_cast<int64_t>(part.pages.size()) - 1;
  const bool complete = part.first_open == before && store_.held_by_all(part.pages.back()) >=
                                                         part.length - before * store_.page_size();
  if (part.own_tail && !complete) plan_.only_layer = layer;
}

void PagedAttend::describe_parts() {
  Plan& plan = plan_;
  DescriptorBuffer& slot = slots_[plan.slot];
  auto& descs = slot.host(DescriptorBuffer::kStep);
  auto& restored = slot.host(DescriptorBuffer::kRestore);
  descs.clear();
  restored.clear();
  StepContext& tables = plan.tables;
  tables.rows.clear();
  for (const Part& part : plan.request.parts) {
    SequenceDesc desc = part.view->describe();
    desc.first_token = static_cast<int32_t>(descs.size());
    desc.tokens = 1;
    desc.start = part.length - 1;
    if (part.own_tail) desc.tail = part.view->own_tail();
    if (store_.uses_tails() && !part.own_tail) desc.tail = store_.tail(part.pages.back());
    descs.push_back(desc);
    tables.rows.push_back({.blocks = part.view->row_blocks()});
    if (!part.own_tail) continue;
    desc.tokens = 0;
    desc.start = part.length;
    restored.push_back(desc);
  }
  engine_.describe(slot, &tables);
  tables.by_page = true;
  tables.plan = engine_.executor().plan(tables, engine_.scratch(), {});
}

void PagedAttend::make_plan(int layer, const BlockTable& block_table,
                            std::span<const int32_t> seq_lens) {
  Plan& plan = plan_;
  plan.epoch = 0;
  plan.only_layer = -1;
  plan.request.take(store_, block_table, seq_lens);
  plan.request.require_held(store_, "attend", layer);
  views_.begin_call();
  views_.drop_stale();
  for (Part& part : plan.request.parts) prepare_part(layer, part);
  const Capacities capacities =
      capacities_for(engine_.settings(), {.context = plan.request.longest(),
                                          .count = static_cast<int>(seq_lens.size()),
                                          .access = engine_.settings().access(),
                                          .hot_rows = views_.hot_rows()});
  views_.with_room([&] { engine_.scratch().ensure(capacities); });
  plan.slot = (plan.slot + 1) % slots_.size();
  DescriptorBuffer& slot = slots_[plan.slot];
  slot.wait_until_free();
  views_.with_room([&] { slot.ensure(seq_lens.size()); });

  streams_.begin();
  const StreamView control = engine_.control();
  const bool restores = std::any_of(plan.request.parts.begin(), plan.request.parts.end(),
                                    [](const Part& p) { return p.own_tail; });
  if (restores) streams_.order(streams_.latest());  // rows may be on their way to the host
  for (const Part& part : plan.request.parts) part.view->upload(control);
  describe_parts();
  slot.upload(control);
  engine_.restore(slot);
  engine_.record_tables();
  plan.epoch = store_.epoch();
  plan.evictions = views_.evictions();
}

// A call for a layer that does not come after the last one begins a new step.
void PagedAttend::begin_step_number(int layer) {
  if (layer <= last_layer_ || step_number_ == 0) {
    if (step_number_ >= max_steps_) {
      streams_.order(streams_.latest());
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
  streams_.require_usable("attend", layer);
  check_lengths(store_.page_size(), "attend", block_table, seq_lens);
  require_shape("q", q, block_table.sequences, engine_.geometry().query_heads,
                engine_.geometry().key_dim);
  require_shape("out", out, block_table.sequences, engine_.geometry().query_heads,
                engine_.geometry().value_dim);
  Plan& plan = plan_;
  streams_.run([&] {
    begin_step_number(layer);
    if (plan_matches(layer, block_table, seq_lens)) {
      plan.request.require_held(store_, "attend", layer);
      for (const Part& part : plan.request.parts) views_.use(*part.view);
    } else {
      make_plan(layer, block_table, seq_lens);
    }
    streams_.begin();
    plan.tables.step_number = StepNumber(step_number_);
    streams_.wait_for_tables(stream, tag_of(layer, Cause::kCompute));
    engine_.executor().attend(plan.tables, engine_.scratch(), layer, q, out, lse, stream);
    slots_[plan.slot].mark_done(stream);
    streams_.record_last(stream);
  });
  if (layer == 0) engine_.counters().add_decode_step();
}

}  // namespace fasa
