// The purpose of an operation, as timelines report it.
#pragma once

#include <cstdint>

namespace fasa {

enum class Cause : uint8_t {
  kCompute,
  kMiss,       // rows that this step needs and the device lacks
  kPrefetch,   // rows that a later layer is expected to need
  kWriteBack,  // new rows to the host
  kPrefill,
  kControl,  // tables, counters, repairs
};

constexpr const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kCompute:
      return "compute";
    case Cause::kMiss:
      return "miss";
    case Cause::kPrefetch:
      return "prefetch";
    case Cause::kWriteBack:
      return "write_back";
    case Cause::kPrefill:
      return "prefill";
    case Cause::kControl:
      return "control";
  }
  return "compute";
}

struct OperationTag {
  int16_t layer = -1;  // -1 = none
  Cause cause = Cause::kCompute;

  bool operator==(const OperationTag&) const = default;
};

constexpr OperationTag tag_of(int layer, Cause cause) {
  return {static_cast<int16_t>(layer), cause};
}

}  // namespace fasa
