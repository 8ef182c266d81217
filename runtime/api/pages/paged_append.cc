#include "runtime/api/pages/paged_append.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/api/tensor_check.h"
#include "runtime/base/error.h"

namespace fasa {

// Runs [begins[i], begins[i + 1]) form one sequence, which fills all its pages but the last. It
// uses the tail of its last page; a page that one append fills needs none.
struct PagedAppend::Groups {
  std::vector<size_t> begins;  // one more than there are groups
  int64_t entries = 0;         // row blocks

  size_t count() const { return begins.size() - 1; }
  const Run& last(const std::vector<Run>& runs, size_t group) const {
    return runs[begins[group + 1] - 1];
  }
};

void PagedAppend::find_runs(std::span<const int64_t> slot_mapping, std::vector<Run>* runs) const {
  runs->clear();
  const int64_t slots = store_.pages() * store_.page_size();
  std::unordered_set<int64_t> pages;
  for (size_t i = 0; i < slot_mapping.size(); ++i) {
    const int64_t slot = slot_mapping[i];
    if (slot < 0) continue;
    if (slot >= slots) {
      throw UsageError(
          fmt::format("slot_mapping[{}] = {}: allowed: 0 to {} ({} pages of {} tokens)", i, slot,
                      slots - 1, store_.pages(), store_.page_size()));
    }
    const int64_t page = slot / store_.page_size();
    const int offset = static_cast<int>(slot % store_.page_size());
    const auto token = static_cast<int64_t>(i);
    if (!runs->empty()) {
      Run& last = runs->back();
      if (last.page == page && last.offset + last.tokens == offset &&
          last.first_token + last.tokens == token) {
        ++last.tokens;
        continue;
      }
    }
    if (!pages.insert(page).second) {
      throw UsageError(
          fmt::format("slot_mapping[{}] = {}: the tokens of a page must be adjacent and in "
                      "ascending order of slots; page {} occurs a second time",
                      i, slot, page));
    }
    runs->push_back({page, offset, 1, token});
  }
}

void PagedAppend::check_runs(int layer, const std::vector<Run>& runs) const {
  for (const Run& run : runs) {
    const int held = store_.held(run.page, layer);
    if (run.offset == 0 || run.offset == held) continue;
    throw UsageError(fmt::format(
        "append at offset {} of page {}, layer {}, which holds {} tokens; allowed: {}0 (restarts "
        "the page)",
        run.offset, run.page, layer, held,
        held > 0 && held < store_.page_size() ? fmt::format("{} (the next) or ", held) : ""));
  }
}

PagedAppend::Groups PagedAppend::group(const std::vector<Run>& runs) const {
  Groups groups;
  for (size_t i = 0; i < runs.size(); ++i) {
    bool follows = false;
    if (i > 0) {
      const Run& before = runs[i - 1];
      follows = before.offset == 0 && before.tokens == store_.page_size() && runs[i].offset == 0 &&
                before.first_token + before.tokens == runs[i].first_token;
    }
    if (!follows) groups.begins.push_back(i);
  }
  groups.begins.push_back(runs.size());
  groups.entries = static_cast<int64_t>(runs.size()) * store_.parts();
  return groups;
}

// Everything that can fail for lack of memory.
void PagedAppend::reserve(const Groups& groups, PagedSlot& slot, int64_t stored) {
  slot.step.wait_until_free();
  slot.step.ensure(groups.count());
  slot.rows.truncate(0);
  slot.slices.truncate(0);
  slot.rows.reserve(groups.entries);
  slot.slices.reserve(groups.entries);
  if (engine_.settings().access() == RowAccess::kLocal) return;
  // Upper bound: each group begins and ends inside a page.
  const int64_t pages = groups.entries + static_cast<int64_t>(groups.count());
  engine_.scratch().ensure(
      {.decode = {},
       .prefill = {
           .pages = static_cast<int>(pages), .tokens = static_cast<int>(stored), .past_pages = 0}});
}

void PagedAppend::describe(const std::vector<Run>& runs, const Groups& groups, PagedSlot& slot) {
  for (PointerArray* array : {&slot.rows, &slot.slices}) array->prepare_overwrite(0);
  for (const Run& run : runs) {
    for (int part = 0; part < store_.parts(); ++part) {
      slot.rows.append(store_.row_block(run.page, part));
      slot.slices.append(store_.slice_block(run.page, part));
    }
  }
  auto& descs = slot.step.host(DescriptorBuffer::kStep);
  descs.clear();
  int64_t write_back_pages = 0;
  for (size_t i = 0; i < groups.count(); ++i) {
    const Run& first = runs[groups.begins[i]];
    const Run& last = groups.last(runs, i);
    const auto entry = static_cast<int64_t>(groups.begins[i]) * store_.parts();
    SequenceDesc desc;
    desc.mode = StepMode::kPrefill;
    desc.first_token = static_cast<int32_t>(first.first_token);
    desc.tokens = static_cast<int32_t>(last.first_token + last.tokens - first.first_token);
    desc.start = first.offset;
    desc.row_blocks = slot.rows.device_data() + entry;
    desc.access = engine_.settings().access();
    desc.slice_blocks = slot.slices.device_data() + entry;
    desc.tail = store_.tail(last.page);
    if (desc.access == RowAccess::kOverLink) {
      desc.write_back_buffer = engine_.scratch().prefill().write_back_buffer +
                               write_back_pages * engine_.settings().layout.row_layer_bytes();
      write_back_pages += pages_of(desc.tokens) + 1;
    }
    descs.push_back(desc);
  }
}

// Gives tails to the last pages of all groups. This is the last allocation that can fail; until
// then nothing has changed. A tail may be taken from a full page, which may be one of these.
void PagedAppend::give_tails(const std::vector<Run>& runs, const Groups& groups) {
  if (!store_.uses_tails()) return;
  std::vector<int64_t> given;
  try {
    for (bool all = false; !all;) {
      all = true;
      for (size_t i = 0; i < groups.count(); ++i) {
        const int64_t page = groups.last(runs, i).page;
        if (store_.tail(page) != nullptr) continue;
        views_.with_room([&] { store_.give_tail(page); });
        given.push_back(page);
        all = false;
      }
    }
  } catch (...) {
    for (const int64_t page : given) store_.take_tail(page);
    throw;
  }
}

// Groups that continue a page without a tail: it was copied while it was open.
std::vector<size_t> PagedAppend::without_tail(const std::vector<Run>& runs,
                                              const Groups& groups) const {
  std::vector<size_t> found;
  if (!store_.uses_tails()) return found;
  for (size_t i = 0; i < groups.count(); ++i) {
    const Run& first = runs[groups.begins[i]];
    if (first.offset % kPageTokens != 0 && !store_.tail(first.page)) found.push_back(i);
  }
  return found;
}

void PagedAppend::upload(PagedSlot& slot, const std::vector<size_t>& restored) {
  auto& descs = slot.step.host(DescriptorBuffer::kRestore);
  descs.clear();
  for (const size_t i : restored) {
    descs.push_back(slot.step.host(DescriptorBuffer::kStep)[i]);
    descs.back().tokens = 0;
  }
  if (!descs.empty())
    streams_.order(streams_.latest());  // their last rows may be on their way to the host
  const StreamView control = engine_.control();
  slot.step.upload(control);  // waits for what still reads the slot
  slot.rows.upload(control);
  slot.slices.upload(control);
  engine_.restore(slot.step);
  engine_.record_tables();

  StepContext& tables = plan_.tables;
  engine_.describe(slot.step, &tables);
  tables.by_page = true;
}

void PagedAppend::make_plan(int layer, std::vector<Run> runs,
                            std::span<const int64_t> slot_mapping) {
  Plan& plan = plan_;
  plan.epoch = 0;
  plan.slot = (plan.slot + 1) % slots_.size();
  PagedSlot& slot = slots_[plan.slot];
  const Groups groups = group(runs);
  plan.stored = 0;
  for (const Run& run : runs) plan.stored += run.tokens;
  views_.begin_call();  // no view is in use
  views_.with_room([&] { reserve(groups, slot, plan.stored); });
  const std::vector<size_t> restored = without_tail(runs, groups);
  give_tails(runs, groups);
  streams_.begin();
  for (const Run& run : runs) {
    if (restarts(layer, run)) store_.start(run.page);
  }
  give_tails(runs, groups);  // as many tails were freed by restarted pages: cannot fail
  describe(runs, groups, slot);
  upload(slot, restored);
  plan.runs = std::move(runs);
  plan.slot_mapping.assign(slot_mapping.begin(), slot_mapping.end());
  plan.epoch = store_.epoch();
}

void PagedAppend::run(int layer, ConstTensorView k, ConstTensorView v,
                      std::span<const int64_t> slot_mapping, StreamView stream) {
  streams_.require_usable("append", layer);
  require_shape("k", k, static_cast<int64_t>(slot_mapping.size()), engine_.geometry().kv_heads,
                engine_.geometry().key_dim);
  require_shape("v", v, static_cast<int64_t>(slot_mapping.size()), engine_.geometry().kv_heads,
                engine_.geometry().value_dim);
  Plan& plan = plan_;
  std::vector<Run> runs;
  const bool same = plan.epoch == store_.epoch() &&
                    std::equal(slot_mapping.begin(), slot_mapping.end(), plan.slot_mapping.begin(),
                               plan.slot_mapping.end());
  if (!same) find_runs(slot_mapping, &runs);
  const std::vector<Run>& all = same ? plan.runs : runs;
  if (all.empty()) return;
  check_runs(layer, all);
  const bool restarted =
      std::any_of(all.begin(), all.end(), [&](const Run& run) { return restarts(layer, run); });
  streams_.run([&] {
    if (restarted && same) runs = plan.runs;
    if (restarted || !same) make_plan(layer, std::move(runs), slot_mapping);
    streams_.begin();
    streams_.wait_for_tables(stream, tag_of(layer, Cause::kPrefill));
    engine_.executor().append(plan.tables, engine_.scratch(), layer, k, v, stream);
    DescriptorBuffer& slot = slots_[plan.slot].step;
    slot.mark_done(stream);
    engine_.executor().record_written_back(slot.written_back());
    streams_.record_last(stream);
  });
  for (const Run& run : plan.runs) store_.hold(run.page, layer, run.offset + run.tokens);
  if (engine_.settings().access() == RowAccess::kOverLink) {
    engine_.counters().add_written_back(layer, plan.stored);
  }
}

}  // namespace fasa
