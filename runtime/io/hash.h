// FNV-1a, to tell contents apart; not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace fasa {

constexpr uint64_t kFnvBasis = 0xcbf29ce484222325u;

constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = kFnvBasis) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace fasa
