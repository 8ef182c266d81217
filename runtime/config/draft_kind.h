// Where drafts of an answer's next tokens come from: see runtime/llm/generation/drafts.h.
#pragma once

#include <cstdint>

namespace fasa {

enum class DraftKind : uint8_t { kNone, kLookup, kMtp };

}  // namespace fasa
