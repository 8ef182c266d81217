// Which of a sequence's pages are kept while it frees those that it no longer needs (Retention).
#pragma once

#include <array>
#include <cstdint>

#include "offload/store/retention.h"

namespace fasa {

class RetainedPages {
 public:
  explicit RetainedPages(const Retention& retention) : retention_(retention) {}

  // The first page from which on nothing was freed; the sinks' pages, and those of a held length,
  // may lie before it.
  int64_t first_page() const { return first_page_; }
  // Keeps what truncation to `tokens` tokens needs, in place of the length held before; none if
  // those pages were freed already. Lengths are held across truncations to them, and by forks.
  void hold(int64_t tokens);
  int64_t held() const { return held_; }  // tokens; 0: none
  bool can_truncate(int64_t tokens) const {
    return retention_.can_truncate(first_page_, tokens) || holds(tokens);
  }
  // The sequence was cut to `tokens` tokens, which can_truncate() allowed.
  void cut(int64_t tokens);

  // Pages before `end` that it has and does not hold, the sinks' pages aside.
  using Ranges = std::array<PageRange, 3>;
  Ranges droppable_before(int64_t end) const;
  // They were freed.
  void dropped_until(int64_t end);
  // Pages of the held length before first_page().
  PageRange behind() const { return behind_; }
  // Those were never loaded.
  void lose_behind();

 private:
  bool holds(int64_t tokens) const;

  Retention retention_;
  int64_t first_page_ = 0;
  int64_t held_ = 0;
  PageRange behind_;
};

}  // namespace fasa
