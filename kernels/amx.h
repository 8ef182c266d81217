// Whether this processor's AMX tiles work, and their configuration.
#pragma once

#include <stdint.h>

namespace fasa::cpu {

enum class Amx : uint8_t { kAbsent, kWorks, kBroken };

// Some virtual machines announce AMX and then trap on its instructions. If AMX is announced, a
// child process tries it, once per process; if it works, this process may use it from now on.
// Thread-safe.
Amx amx();

// What ldtilecfg reads.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// Eight whole tiles: 16 rows of 64 bytes.
inline constexpr TileConfig kWholeTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace fasa::cpu
