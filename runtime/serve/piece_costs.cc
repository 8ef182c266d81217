#include "runtime/serve/piece_costs.h"

#include <algorithm>

namespace fasa::serve {

void PieceCosts::worked(const Piece& piece, int64_t tokens, double seconds) {
  constexpr double kNewest = 0.5;  // pieces follow one another at similar positions
  constexpr double kLeast = 0.05;  // of the time, where the fixed part is most of it
  const double work = static_cast<double>(tokens) * token_work(piece) + layout_work(piece);
  if (work <= 0 || seconds <= 0) return;
  if (piece.loading > 0 && per_work_ > 0) return;  // how much of it is hidden is not known
  if (piece.loading == 0) fixed_.measured(work, seconds);
  const double own = std::max(seconds - fixed_.seconds() - piece.loading, kLeast * seconds) / work;
  per_work_ = per_work_ == 0 ? own : (1 - kNewest) * per_work_ + kNewest * own;
}

int PieceCosts::tokens(const Piece& piece, double seconds, double useful) const {
  const int least = std::min(min_tokens_, max_tokens_);
  if (per_work_ == 0) return std::clamp(kFirst, least, max_tokens_);
  const double fixed = fixed_.seconds() + per_work_ * layout_work(piece);
  const double on_tokens = std::max(seconds - fixed - piece.loading, fixed * useful / (1 - useful));
  const double tokens = std::clamp(on_tokens / (per_work_ * token_work(piece)), 0.0, 1e6);
  return std::clamp(static_cast<int>(tokens), least, max_tokens_);
}

}  // namespace fasa::serve
