#include "scheduler/selection/key_reader.h"

namespace fasa {

KeyReader::KeyReader(const StepParams& step, const SequenceDesc& sequence, int kv_head)
    : sequence_(sequence),
      layout_(step.layout),
      offset_(step.layout.row_offset(step.layer, kv_head, 0)),
      dim_(step.layout.row.key_dim),
      expand_(expand_row(step.layout.row.dtype)),
      key_(static_cast<size_t>(dim_)) {}

const std::byte* KeyReader::row(int position) const {
  return sequence_.row_blocks[position / kPageTokens] + offset_ +
         position % kPageTokens * layout_.row.bytes();
}

const float* KeyReader::at(int position) {
  if (position < kept_end_) return kept_.data() + int64_t{position} * dim_;
  expand_(row(position), dim_, key_.data());
  return key_.data();
}

void KeyReader::keep(int end) {
  if (end <= kept_end_) return;
  kept_.resize(static_cast<size_t>(end) * static_cast<size_t>(dim_));
  for (; kept_end_ < end; ++kept_end_) {
    expand_(row(kept_end_), dim_, kept_.data() + int64_t{kept_end_} * dim_);
  }
}

}  // namespace fasa
