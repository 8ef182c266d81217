#include "scheduler/cache/rollback_window.h"

#include <algorithm>

#include "scheduler/cache/kv_sequence.h"

namespace fasa {

void RollbackWindow::mark_turn() {
  for (const auto& memory : sequence_.memories()) memory->mark_turn();
}

void RollbackWindow::hold(int64_t tokens) {
  for (const auto& memory : sequence_.memories()) memory->hold(tokens);
  if (tokens_ == 0) return;
  for (const auto& rows : sequence_.groups()) rows->hold(tokens);
}

int64_t RollbackWindow::held() const {
  int64_t held = 0;
  for (const auto& rows : sequence_.groups()) held = std::max(held, rows->retained().held());
  for (const auto& memory : sequence_.memories()) held = std::max(held, memory->held());
  return held;
}

int64_t RollbackWindow::oldest_cut(const SequenceRows& rows) const {
  const int64_t held = rows.retained().held(), oldest = sequence_.length() - tokens_;
  if (held == 0 || held >= oldest) return std::max<int64_t>(0, oldest);
  return sequence_.length() - rows.group().retention.beside_held(tokens_);
}

int64_t RollbackWindow::droppable() const {
  if (tokens_ < 0) return 0;
  int64_t pages = 0;
  for (const auto& rows : sequence_.groups()) {
    if (rows == sequence_.groups().front() && !sequence_.slices().coded())
      continue;  // slices will need the rows
    pages = std::max(pages, rows->droppable(oldest_cut(*rows)));
  }
  return pages;
}

bool RollbackWindow::can_truncate_to(int64_t tokens) const {
  const auto groups = sequence_.groups();
  return std::all_of(groups.begin(), groups.end(),
                     [tokens](const auto& rows) { return rows->retained().can_truncate(tokens); });
}

int64_t RollbackWindow::memory_point(int64_t tokens) const {
  int64_t point = tokens;
  for (const auto& memory : sequence_.memories()) point = memory->resume_point(point);
  return point == tokens ? point : memory_point(point);
}

int64_t RollbackWindow::resume_point(int64_t tokens) const {
  const int64_t point = memory_point(std::min(tokens, sequence_.length()));
  if (can_truncate_to(point)) return point;
  const int64_t held = this->held();
  return held <= point && can_truncate_to(held) ? memory_point(held) : 0;
}

int64_t RollbackWindow::first_page() const {
  int64_t first = 0;
  for (const auto& rows : sequence_.groups())
    first = std::max(first, rows->retained().first_page());
  return first;
}

}  // namespace fasa
