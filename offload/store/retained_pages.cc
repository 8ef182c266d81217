#include "offload/store/retained_pages.h"

#include <algorithm>

namespace fasa {

bool RetainedPages::holds(int64_t tokens) const {
  if (held_ == 0 || tokens > held_ || behind_.pages() == 0) return false;
  const int64_t first = retention_.first_needed_page(held_);
  return behind_.first == first && retention_.first_needed_page(tokens) >= first;
}

// After a cut into the pages of a held length nothing is freed behind them.
void RetainedPages::cut(int64_t tokens) {
  const bool into = !retention_.can_truncate(first_page_, tokens) && holds(tokens);
  if (tokens == 0) first_page_ = 0;
  if (into) first_page_ = behind_.first;
  if (tokens == 0 || into) behind_ = {};
  if (tokens < held_) held_ = 0;
}

void RetainedPages::hold(int64_t tokens) {
  if (retention_.seen == 0 || held_ == tokens) return;
  held_ = retention_.can_truncate(first_page_, tokens) ? tokens : 0;
}

RetainedPages::Ranges RetainedPages::droppable_before(int64_t end) const {
  const int64_t first = std::max(first_page_, retention_.first_pages);
  const PageRange held = held_ == 0 ? PageRange{} : retention_.needed_by(held_);
  // Pages behind that an earlier length held.
  const bool left = behind_.pages() > 0 && (held_ == 0 || behind_.first != held.first);
  return {
      left ? PageRange{std::max(behind_.first, retention_.first_pages), behind_.end} : PageRange{},
      PageRange{first, held_ == 0 ? end : std::min(end, held.first)},
      held_ == 0 ? PageRange{} : PageRange{std::max(first, held.end), end}};
}

void RetainedPages::dropped_until(int64_t end) {
  first_page_ = std::max(first_page_, end);
  const PageRange held = held_ == 0 ? PageRange{} : retention_.needed_by(held_);
  behind_ = {held.first, std::min(held.end, first_page_)};
  if (behind_.pages() == 0) behind_ = {};
}

void RetainedPages::lose_behind() {
  behind_ = {};
  held_ = 0;
}

}  // namespace fasa
