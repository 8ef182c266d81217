#include "runtime/text/token_bytes.h"

#include <algorithm>

namespace fasa::text {

std::string spelled_bytes(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.is_special(id) ? std::string(tokenizer.piece(id)) : tokenizer.token_bytes(id);
}

// From the end, because the part behind is short.
int64_t tokens_before(const Tokenizer& tokenizer, std::string_view text,
                      std::span<const int32_t> ids, size_t bytes) {
  size_t at = text.size();
  for (size_t i = ids.size(); i > 0 && at > bytes;) {
    const std::string own = spelled_bytes(tokenizer, ids[--i]);
    if (own.empty() || !text.substr(0, at).ends_with(own)) return 0;
    at -= own.size();
    if (at > bytes) continue;
    const auto before = static_cast<int64_t>(i);
    return at < bytes || tokenizer.is_special(ids[i]) ? before : std::max<int64_t>(0, before - 1);
  }
  return 0;
}

}  // namespace fasa::text
