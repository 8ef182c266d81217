// The tokens of a sequence, and how each was computed. Prefill attends to all tokens, a decode step
// to the selected ones, and layers with linear attention take prefilled tokens in blocks, decoded
// ones one by one; so they differ in bits. To rebuild a sequence, each token is computed as before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fasa {

enum class Computed : uint8_t { kPrefill, kDecode };

class TokenLog {
 public:
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  std::span<const int32_t> ids() const { return ids_; }
  Computed computed(int64_t position) const { return how_[static_cast<size_t>(position)]; }

  // How a token is computed anew: as before, or like `others` behind the log's end.
  Computed computed(int64_t position, Computed others) const {
    return position < size() ? computed(position) : others;
  }
  // The end of the tokens from `position` on that are computed alike; at most `end`.
  int64_t run_end(int64_t position, int64_t end, Computed others) const {
    const Computed how = computed(position, others);
    while (position < end && computed(position, others) == how) ++position;
    return position;
  }

  void append(int32_t id, Computed how) {
    ids_.push_back(id);
    how_.push_back(how);
  }
  void truncate(int64_t tokens) {
    ids_.resize(static_cast<size_t>(tokens));
    how_.resize(static_cast<size_t>(tokens));
  }
  // Length of the common prefix.
  int64_t common(std::span<const int32_t> ids) const {
    const auto end = std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end());
    return end.first - ids_.begin();
  }
  // Length of the common prefix that was also computed alike.
  int64_t common(const TokenLog& other) const {
    const int64_t tokens = common(other.ids());
    const auto end = std::mismatch(how_.begin(), how_.begin() + tokens, other.how_.begin());
    return end.first - how_.begin();
  }
  // Host memory of the log itself.
  size_t bytes() const { return ids_.capacity() * sizeof(int32_t) + how_.capacity(); }

 private:
  std::vector<int32_t> ids_;
  std::vector<Computed> how_;
};

}  // namespace fasa
