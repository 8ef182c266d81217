// How far back a simulated sequence can go, and what it keeps for that.
#include <fmt/format.h>

#include <algorithm>

#include "offload/store/retention.h"
#include "runtime/base/error.h"
#include "tests/simulation/world.h"

namespace fasa::testing {

bool World::refuses_rollback(const Sequence& sequence, int64_t tokens,
                             const std::function<void()>& call) {
  if (runtime_->resume_point(sequence.id, tokens) == tokens) return false;
  if (!knows_state(sequence, tokens)) {
    last_ += ", without a state";
  } else if (tokens == 0 || tokens >= sequence.rollback_from) {
    mismatch(fmt::format("{} is impossible; the sequence can go back to {} tokens", last_,
                         sequence.rollback_from));
  }
  try {
    call();
  } catch (const UsageError&) {
    last_ += ", refused";
    return true;
  } catch (const DeviceError&) {
    if (failed_late()) return true;
    throw;
  }
  mismatch(last_ + " was said to be impossible and succeeded");
}

// In a step of the sequence: pages that no token of its rollback window sees are gone, but for the
// sinks' and those that wait for others.
void World::require_freed_pages(const Sequence& sequence) const {
  const auto& windows = setup_.geometry.windows;
  const int64_t window = *std::max_element(windows.begin(), windows.end());
  if (sequence.rollback < 0 || window == 0) return;
  const auto& selection = setup_.config.selection;
  const int64_t seen = std::max<int64_t>(window, selection.sinks + selection.recent + 1);
  const auto length = static_cast<int64_t>(sequence.history.size());
  const int64_t unseen = (length - sequence.rollback - seen) / kPageTokens;
  const int64_t held = unseen - runtime_->info(sequence.id).first_page;
  if (held <= kPagesDroppedTogether) return;
  mismatch(
      fmt::format("sequence {} holds {} pages that nothing needs", index_of(sequence.id), held));
}

}  // namespace fasa::testing
