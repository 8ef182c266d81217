// Pages whose ids the caller assigns. Each page has one row block and one slice block per part
// (kPageTokens tokens), allocated once and never moved; the number of tokens held by every layer;
// and the tail of the part that is being written. Each start() of a page begins a new generation.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "offload/device.h"
#include "scheduler/step_settings.h"

namespace fasa {

class PageStore {
 public:
  // `page_size`: tokens, a multiple of kPageTokens. Throws BudgetError.
  PageStore(Device& device, const StepSettings& settings, int page_size, int64_t pages);

  int page_size() const { return page_size_; }
  int64_t pages() const { return static_cast<int64_t>(state_.size()); }
  int parts() const { return page_size_ / kPageTokens; }
  void require_page(int64_t page) const;  // throws UsageError

  std::byte* row_block(int64_t page, int part) const;
  std::byte* slice_block(int64_t page, int part) const;  // null: no slices

  uint32_t generation(int64_t page) const { return at(page).generation; }
  // Increases when a generation or a tail ends: earlier lookups are then void.
  uint64_t epoch() const { return epoch_; }

  int held(int64_t page, int layer) const {
    return held_[static_cast<size_t>(page * layers_ + layer)];
  }
  // Number of tokens that every layer holds.
  int held_by_all(int64_t page) const;
  bool same_in_all_layers(int64_t page) const;
  void hold(int64_t page, int layer, int tokens);
  // Begins an empty generation without a tail.
  void start(int64_t page);
  // Gives a new generation of `to` the tokens of `from`, without a tail. The caller copies the
  // blocks.
  void take_over(int64_t from, int64_t to);

  // Slices of the part that holds the newest token, in the tail's precision; null: no tail.
  std::byte* tail(int64_t page) const;
  // Gives a tail to a page without one; its contents are indeterminate. Takes a free tail, the tail
  // of a page that is full in all layers, or a new one. Throws BudgetError; then nothing changes.
  void give_tail(int64_t page);
  // Undoes give_tail() for a tail that was not used.
  void take_tail(int64_t page) noexcept;
  bool uses_tails() const { return settings_.layout.slice.dims > 0; }

  uint64_t row_bytes() const { return rows_.bytes(); }
  uint64_t slice_bytes() const;  // tails included

 private:
  struct State {
    uint32_t generation = 0;
    int32_t full_layers = 0;
    int32_t tail = -1;
  };
  const State& at(int64_t page) const { return state_[static_cast<size_t>(page)]; }
  State& at(int64_t page) { return state_[static_cast<size_t>(page)]; }
  int32_t find_tail();

  Device& device_;
  const StepSettings& settings_;
  const int page_size_;
  const int layers_;
  std::vector<State> state_;
  std::vector<int16_t> held_;  // [page][layer]
  Buffer rows_;
  Buffer slices_;
  std::vector<Buffer> tails_;
  std::vector<int32_t> free_tails_;
  std::deque<int64_t> full_;  // pages that became full in all layers with a tail, oldest first
  uint64_t epoch_ = 1;
};

}  // namespace fasa
