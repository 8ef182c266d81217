#include "tools/weight_flags.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {
namespace {

[[noreturn]] void fail(const char* flag, const std::string& given, const char* allowed) {
  throw UsageError(fmt::format("{} = \"{}\": allowed: {}", flag, given, allowed));
}

}  // namespace

void WeightFlags::add_to(CLI::App& command) {
  command
      .add_option("--weights", weights_,
                  "What matrices of 16 or 32 bits are rounded to while they are loaded: as-is, "
                  "int8, int4")
      ->type_name("FORMAT")
      ->capture_default_str();
  command.add_option("--weight-group", group_, "Inputs that share a scale there: 32, 64, 128")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--lm-head", lm_head_,
                  "The same of the projection to logits: as-is, int8; auto = int8 with --weights "
                  "int8 or int4")
      ->type_name("FORMAT")
      ->capture_default_str();
  command
      .add_option("--activations", activations_,
                  "What decode multiplies packed weights by: model = activations as they are, "
                  "int8 = rounded by blocks of 32")
      ->type_name("KIND")
      ->capture_default_str();
}

WeightOptions WeightFlags::options() const {
  WeightOptions options;
  if (weights_ == "int8") {
    options.rounding = WeightRounding::kInt8;
  } else if (weights_ == "int4") {
    options.rounding = WeightRounding::kInt4;
  } else if (weights_ != "as-is") {
    fail("--weights", weights_, "as-is, int8, int4");
  }
  if (group_ != 32 && group_ != 64 && group_ != 128) {
    fail("--weight-group", std::to_string(group_), "32, 64, 128");
  }
  options.group = group_;
  if (lm_head_ == "int8") {
    options.head = WeightRounding::kInt8;
  } else if (lm_head_ == "as-is") {
    options.head = WeightRounding::kAsIs;
  } else if (lm_head_ != "auto") {
    fail("--lm-head", lm_head_, "auto, as-is, int8");
  }
  if (activations_ == "int8") {
    options.activations = DecodeActivations::kInt8;
  } else if (activations_ != "model") {
    fail("--activations", activations_, "model, int8");
  }
  return options;
}

}  // namespace fasa
