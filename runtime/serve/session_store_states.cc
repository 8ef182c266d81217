// States of layers with linear attention in the files of sessions.
#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/serve/session_store.h"

namespace fasa::serve {

const StoredState* SessionStore::want_states(uint64_t session,
                                             const std::vector<StatePoint>& points) {
  Stored& stored = stored_.at(session);
  std::vector<StoredState> wanted;
  for (const StatePoint& point : points) wanted.push_back({point, {}});
  for (StoredState& state : stored.states) {
    const auto same = std::find_if(wanted.begin(), wanted.end(),
                                   [&](const auto& one) { return one.point == state.point; });
    if (same != wanted.end()) {
      same->pieces = std::move(state.pieces);
    } else {  // their locations may belong to the committed session
      for (const StoredPage& piece : state.pieces) stored.replaced.push_back(piece.place);
    }
  }
  stored.states = std::move(wanted);
  const auto next = std::find_if(stored.states.begin(), stored.states.end(),
                                 [&](const StoredState& one) { return !is_whole(one); });
  return next == stored.states.end() ? nullptr : &*next;
}

void SessionStore::write_state(uint64_t session, int64_t tokens, std::span<const std::byte> piece) {
  Stored& stored = stored_.at(session);
  const auto state =
      std::find_if(stored.states.begin(), stored.states.end(),
                   [&](const StoredState& one) { return one.point.tokens == tokens; });
  std::vector<std::byte> bytes(format_.page_bytes());
  std::copy(piece.begin(), piece.end(), bytes.begin());
  state->pieces.push_back(put(session, stored, bytes, piece.size()));
}

bool SessionStore::is_whole(const StoredState& state) const {
  return state.pieces.size() * format_.page_bytes() >= state.point.bytes;
}

std::vector<StoredState> SessionStore::whole_states(const Stored& stored) const {
  std::vector<StoredState> states;
  std::copy_if(stored.states.begin(), stored.states.end(), std::back_inserter(states),
               [&](const StoredState& one) { return is_whole(one); });
  return states;
}

std::vector<StatePoint> SessionStore::states(uint64_t session) const {
  std::vector<StatePoint> points;
  const auto found = stored_.find(session);
  if (found == stored_.end()) return points;
  for (const StoredState& state : found->second.states) {
    if (is_whole(state)) points.push_back(state.point);
  }
  return points;
}

}  // namespace fasa::serve
