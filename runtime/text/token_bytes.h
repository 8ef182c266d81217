// The bytes of a text that its tokens stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer.h"

namespace fasa::text {

// Those of one token; of a control token its spelling. "": none.
std::string spelled_bytes(const Tokenizer& tokenizer, int32_t id);

// How many of `ids`, which spell `text`, another text has whose first `bytes` bytes are the same:
// those before a control token that begins there, else without the last one, which the text behind
// it might change. 0: the ids do not spell the text byte by byte.
int64_t tokens_before(const Tokenizer& tokenizer, std::string_view text,
                      std::span<const int32_t> ids, size_t bytes);

}  // namespace fasa::text
