#include "scheduler/cache/page_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/error.h"

namespace fasa {
namespace {

Buffer allocate_blocks(Device& device, MemorySpace space, int64_t blocks, int64_t block_bytes,
                       const char* purpose) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(blocks), static_cast<size_t>(block_bytes),
                             &bytes)) {
    const MemoryUse use = device.memory(space);
    throw BudgetError(space == MemorySpace::kDevice ? "device_memory" : "host_memory",
                      std::numeric_limits<uint64_t>::max(), use.used_bytes, use.limit_bytes,
                      purpose);
  }
  return device.allocate(space, bytes, purpose);
}

}  // namespace

PageStore::PageStore(Device& device, const StepSettings& settings, int page_size, int64_t pages)
    : device_(device),
      settings_(settings),
      page_size_(page_size),
      layers_(settings.layer_count()),
      rows_(allocate_blocks(device, traits_of(settings.rows).space, pages * parts(),
                            settings.layout.row_block_bytes(), "row pages")) {
  if (uses_tails()) {
    slices_ = allocate_blocks(device, MemorySpace::kDevice, pages * parts(),
                              settings.layout.slice_block_bytes(), "slice pages");
  }
  state_.resize(static_cast<size_t>(pages));
  held_.resize(static_cast<size_t>(pages * layers_));
}

void PageStore::require_page(int64_t page) const {
  if (page >= 0 && page < pages()) return;
  throw UsageError(fmt::format("page {}: allowed: 0 to {}", page, pages() - 1));
}

std::byte* PageStore::row_block(int64_t page, int part) const {
  return rows_.data() + (page * parts() + part) * settings_.layout.row_block_bytes();
}

std::byte* PageStore::slice_block(int64_t page, int part) const {
  if (!uses_tails()) return nullptr;
  return slices_.data() + (page * parts() + part) * settings_.layout.slice_block_bytes();
}

int PageStore::held_by_all(int64_t page) const {
  const auto first = held_.begin() + page * layers_;
  return *std::min_element(first, first + layers_);
}

bool PageStore::same_in_all_layers(int64_t page) const {
  const auto first = held_.begin() + page * layers_;
  return std::all_of(first, first + layers_, [&](int16_t tokens) { return tokens == *first; });
}

void PageStore::hold(int64_t page, int layer, int tokens) {
  held_[static_cast<size_t>(page * layers_ + layer)] = static_cast<int16_t>(tokens);
  State& state = at(page);
  if (tokens < page_size_) return;
  if (++state.full_layers == layers_ && state.tail >= 0) full_.push_back(page);
}

void PageStore::start(int64_t page) {
  State& state = at(page);
  if (state.tail >= 0) {
    free_tails_.push_back(state.tail);
    std::erase(full_, page);
  }
  state = {.generation = state.generation + 1, .full_layers = 0, .tail = -1};
  std::fill_n(held_.begin() + page * layers_, layers_, int16_t{0});
  ++epoch_;
}

void PageStore::take_over(int64_t from, int64_t to) {
  start(to);
  std::copy_n(held_.begin() + from * layers_, layers_, held_.begin() + to * layers_);
  at(to).full_layers = at(from).full_layers;
}

std::byte* PageStore::tail(int64_t page) const {
  const int32_t tail = at(page).tail;
  return tail < 0 ? nullptr : tails_[static_cast<size_t>(tail)].data();
}

int32_t PageStore::find_tail() {
  if (!free_tails_.empty()) {
    const int32_t tail = free_tails_.back();
    free_tails_.pop_back();
    return tail;
  }
  if (!full_.empty()) {
    State& oldest = at(full_.front());
    full_.pop_front();
    ++epoch_;
    return std::exchange(oldest.tail, -1);
  }
  // Every tail can be free at once.
  free_tails_.reserve(tails_.size() + 1);
  tails_.reserve(tails_.size() + 1);
  tails_.push_back(device_.allocate(MemorySpace::kDevice,
                                    static_cast<size_t>(settings_.layout.tail_bytes()),
                                    "slices of the newest pages"));
  return static_cast<int32_t>(tails_.size()) - 1;
}

void PageStore::give_tail(int64_t page) {
  if (!uses_tails() || at(page).tail >= 0) return;
  at(page).tail = find_tail();
}

void PageStore::take_tail(int64_t page) noexcept {
  State& state = at(page);
  if (state.tail < 0) return;
  free_tails_.push_back(std::exchange(state.tail, -1));  // find_tail() reserved the entry
  std::erase(full_, page);
  ++epoch_;
}

uint64_t PageStore::slice_bytes() const {
  uint64_t bytes = slices_.bytes();
  for (const Buffer& tail : tails_) bytes += tail.bytes();
  return bytes;
}

}  // namespace fasa
