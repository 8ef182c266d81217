// Reads bodies sent with Content-Encoding: gzip.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fasa::serve {

// The text of one or several gzip members. Throws ApiError: 400 for damaged data, 413 beyond
// `max_bytes`.
std::string gunzip(std::string_view packed, size_t max_bytes);

}  // namespace fasa::serve
