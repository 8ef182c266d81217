// The last profiled step as JSON, for the page.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/profile/profiled_decode.h"

namespace fasa {

// {"streams": [name, ...], "entries": [[stream, start us, us, kind, name, layer, link bytes], ...]}
// The compute stream is the first; its kinds are the parts of the profile, "wait_rows" and "wait".
// Kinds of other streams are causes.
nlohmann::json timeline_json(const ProfiledDecode& decode);

}  // namespace fasa
