// The instruction set that the CPU's kernels use: chosen once per process by the processor, or by
// FASA_TARGET=portable|avx2|avx512|avx512_vnni|avx512_amx.
//
// Each target's bodies are in files of their own (_avx2.cc, _avx512.cc, _vnni.cc, _amx.cc),
// compiled for it alone. These files instantiate nothing that another file might share (no standard
// templates, no inline functions of headers): the linker keeps one copy of such a function, which
// could be the one that needs AVX-512.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fasa::cpu {

enum class Target : uint8_t {
  kPortable,
  kAvx2,        // + FMA, F16C
  kAvx512,      // F, BW, VL, DQ
  kAvx512Vnni,  // + VNNI, BF16, VBMI
  kAvx512Amx,   // + tiles of BF16
};

std::string_view target_name(Target target);

// The targets that this processor can run, slowest first; never empty.
const std::vector<Target>& supported_targets();

// Throws UsageError if FASA_TARGET names none of supported_targets().
Target active_target();

// active_target() for a given FASA_TARGET; nullptr or "" choose the best.
Target choose_target(const char* name);

// A target's bodies out of those of the targets in order; those without have the last ones.
template <class Bodies, size_t kCount>
const Bodies& on_target(Target target, const Bodies* const (&bodies)[kCount]) {
  const auto index = static_cast<size_t>(target);
  return *bodies[index < kCount ? index : kCount - 1];
}

}  // namespace fasa::cpu
