#include "tests/support/reference/rows.h"

#include <cmath>
#include <limits>

#include "tests/support/reference/row_codes.h"

namespace fasa::reference {

const std::byte* find_row(const StepParams& step, int sequence, int kv_head, int position,
                          const CopiedPages& pages, bool use_write_back_buffer) {
  const CacheLayout& layout = step.layout;
  const SequenceDesc& desc = step.sequences[sequence];
  const int page = position / kPageTokens;
  const int64_t in_head = position % kPageTokens * layout.row.bytes();
  if (use_write_back_buffer && desc.write_back_buffer != nullptr && position >= desc.start) {
    return step.write_back_row(desc, kv_head, position);
  }
  if (const std::byte* device = desc.device_row_block(page); device != nullptr) {
    return device + layout.row_offset(step.layer, kv_head, 0) + in_head;
  }
  if (pages.data != nullptr && page >= pages.first_page && page < pages.first_page + pages.pages) {
    const int64_t copied = int64_t{sequence} * pages.pages + page - pages.first_page;
    return pages.data + (copied * layout.kv_heads + kv_head) * layout.row_head_bytes() + in_head;
  }
  return desc.row_blocks[page] + layout.row_offset(step.layer, kv_head, 0) + in_head;
}

RunningSoftmax::RunningSoftmax(const RowFormat& format, const ConstTensorView& q, int token,
                               int query_head, float scale, float cap)
    : format_(format),
      query_(static_cast<size_t>(format.key_dim)),
      scale_(scale),
      cap_(cap),
      max_(-std::numeric_limits<double>::infinity()),
      values_(static_cast<size_t>(format.value_dim)) {
  for (int d = 0; d < format.key_dim; ++d) {
    query_[static_cast<size_t>(d)] = load_element(q.dtype, q.data, q.offset(token, query_head) + d);
  }
}

void RunningSoftmax::load(const float* state) {
  max_ = state[0];
  sum_ = state[1];
  for (size_t d = 0; d < values_.size(); ++d) values_[d] = state[2 + d];
}

void RunningSoftmax::store(float* state) const {
  state[0] = static_cast<float>(max_);
  state[1] = static_cast<float>(sum_);
  for (size_t d = 0; d < values_.size(); ++d) state[2 + d] = static_cast<float>(values_[d]);
}

void RunningSoftmax::add(const std::byte* row, double bias) {
  double score = bias;
  const std::vector<float> key = row_key(format_, row);
  for (size_t d = 0; d < key.size(); ++d) score += query_[d] * static_cast<double>(key[d]);
  const std::vector<float> value = row_value(format_, row);
  add_value(soft_capped(score, cap_) * scale_,
            [&](int d) { return static_cast<double>(value[static_cast<size_t>(d)]); });
}

bool RunningSoftmax::raise_max(double score) {
  if (score == -std::numeric_limits<double>::infinity()) return false;
  if (score > max_) {
    const double factor = std::exp(max_ - score);
    sum_ *= factor;
    for (double& value : values_) value *= factor;
    max_ = score;
  }
  return true;
}

void RunningSoftmax::write(const TensorView& out, int token, int query_head, float* lse) const {
  for (size_t d = 0; d < values_.size(); ++d) {
    store_element(out.dtype, out.data, out.offset(token, query_head) + static_cast<int64_t>(d),
                  sum_ == 0 ? 0.0f : static_cast<float>(values_[d] / sum_));
  }
  if (lse != nullptr) *lse = static_cast<float>(max_ + std::log(sum_));
}

}  // namespace fasa::reference
