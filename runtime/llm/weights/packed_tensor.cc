#include "runtime/llm/weights/packed_tensor.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {
namespace {

int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace

CodeRows::CodeRows(const PackedFormat& format, int64_t places, int64_t rows)
    : places_(places),
      panel_(format, places),
      codes_(static_cast<size_t>(rows * places)),
      scales_(static_cast<size_t>(rows * panel_.groups)),
      offsets_(static_cast<size_t>(rows * panel_.groups)),
      super_scales_(static_cast<size_t>(rows * panel_.supers)),
      super_offsets_(static_cast<size_t>(rows * panel_.supers)) {}

PackedRow CodeRows::row(int64_t index) {
  return {codes(index), scales(index), offsets(index), super_scales(index), super_offsets(index)};
}

int64_t PackedTensor::places() const {
  return order_.empty() ? rounded_up(inputs(), kPackedBlock) : static_cast<int64_t>(order_.size());
}

void PackedTensor::set_groups(int64_t group) {
  if (group == 16 || group % kPackedBlock == 0) {
    format_.group = static_cast<int>(group);
    return;
  }
  if (group >= inputs()) {  // one group for the row
    format_.group = static_cast<int>(rounded_up(inputs(), kPackedBlock));
    return;
  }
  std::vector<int32_t> groups(static_cast<size_t>(inputs()));
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i] = static_cast<int32_t>(static_cast<int64_t>(i) / group);
  }
  set_groups(groups, (inputs() + group - 1) / group);
}

void PackedTensor::set_groups(std::span<const int32_t> groups, int64_t count) {
  std::vector<int64_t> sizes(static_cast<size_t>(count));
  for (const int32_t group : groups) ++sizes[static_cast<size_t>(group)];
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  const bool sorted = std::is_sorted(groups.begin(), groups.end());
  const auto is_full = [&](int64_t size) { return size == most; };
  const bool even = std::all_of(sizes.begin(), sizes.end() - 1, is_full);
  if (sorted && even && (most == 16 || most % kPackedBlock == 0)) {
    format_.group = static_cast<int>(most);
    return;
  }
  const int64_t width = rounded_up(most, kPackedBlock);
  constexpr int64_t kMaxPadding = 4;
  if (width > (kMaxPadding * inputs() + 1024) / count) {
    throw InputError(
        fmt::format("a matrix has {} groups of up to {} inputs over {} inputs; allowed: groups of "
                    "similar size, of 8 inputs or more",
                    count, most, inputs()));
  }
  format_.group = static_cast<int>(width);
  order_.assign(static_cast<size_t>(width * count), -1);
  std::vector<int64_t> next(static_cast<size_t>(count));
  for (int64_t group = 0; group < count; ++group) {
    next[static_cast<size_t>(group)] = group * width;
  }
  for (size_t input = 0; input < groups.size(); ++input) {
    int64_t& place = next[static_cast<size_t>(groups[input])];
    order_[static_cast<size_t>(place++)] = static_cast<int32_t>(input);
  }
}

void PackedTensor::dequantise(int64_t first, int64_t count, float* out) const {
  CodeRows rows(format_, places(), count);
  read(first, count, &rows);
  for (int64_t i = 0; i < count; ++i) {
    const PackedRow row = rows.row(i);
    GroupNumbers numbers{};
    for (int64_t place = 0; place < places(); ++place) {
      if (place % format_.group == 0) {
        numbers = group_numbers(format_, row, place / format_.group);
      }
      const int64_t input = input_of(place);
      if (input < 0) continue;
      out[i * inputs() + input] = numbers.scale * format_.value(row.codes[place]) + numbers.offset;
    }
  }
}

}  // namespace fasa
