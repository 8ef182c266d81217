#include "runtime/llm/rope_parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

void read_yarn(const JsonFields& fields, RopeParameters* rope) {
  rope->beta_fast = fields.number_or("beta_fast", 1e-6, 1e9, 32);
  rope->beta_slow = fields.number_or("beta_slow", 1e-6, 1e9, 1);
  rope->truncate = fields.boolean_or("truncate", true);
  const auto magnitude = [&](double scale) {
    return rope->factor <= 1 ? 1.0 : 0.1 * scale * std::log(rope->factor) + 1.0;
  };
  const double mscale = fields.number_or("mscale", 0, 1e6, 0);
  const double mscale_all = fields.number_or("mscale_all_dim", 0, 1e6, 0);
  if (mscale_all != 0) rope->score_factor = magnitude(mscale_all) * magnitude(mscale_all);
  const bool both = mscale != 0 && mscale_all != 0;
  rope->attention_factor =
      fields.number_or("attention_factor", 1e-6, 1e6,
                       both ? magnitude(mscale) / magnitude(mscale_all) : magnitude(1));
}

// `config`: the whole file; `fields`: its rotary part.
void read_scaling(const JsonFields& config, const JsonFields& fields, int64_t max_positions,
                  RopeParameters* rope) {
  const char* kind_key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string kind = fields.text(kind_key).value_or("default");
  if (kind == "default") return;
  if (kind == "linear") {
    rope->kind = RopeKind::kLinear;
  } else if (kind == "llama3") {
    rope->kind = RopeKind::kLlama3;
  } else if (kind == "yarn") {
    rope->kind = RopeKind::kYarn;
  } else {
    fields.fail(kind_key, "default, linear, llama3, yarn");
  }
  rope->original_positions = config.integer_or(
      "original_max_position_embeddings", 1, kMostPositions,
      fields.integer_or("original_max_position_embeddings", 1, kMostPositions, max_positions));
  if (rope->kind == RopeKind::kYarn && !fields.has("factor")) {
    rope->factor =
        static_cast<double>(max_positions) / static_cast<double>(rope->original_positions);
  } else {
    rope->factor = fields.number("factor", 1e-3, 1e6);
  }
  if (rope->kind == RopeKind::kLlama3) {
    rope->low_freq_factor = fields.number("low_freq_factor", 1e-6, 1e6);
    rope->high_freq_factor = fields.number("high_freq_factor", 1e-6, 1e6);
    if (rope->high_freq_factor <= rope->low_freq_factor) {
      fields.fail("high_freq_factor", "a number above low_freq_factor");
    }
  }
  if (rope->kind == RopeKind::kYarn) read_yarn(fields, rope);
}

double read_share(const JsonFields& fields, const char* key, double otherwise,
                  const RotaryShare& share) {
  const double value = fields.number_or(key, 0, 1, otherwise);
  if (value != 1 && !share.partial) fields.fail(key, "1 for this model type");
  return value;
}

}  // namespace

RopeParameters read_rope(const JsonFields& config, const std::string& name, int64_t max_positions,
                         const RotaryShare& share) {
  RopeParameters rope;
  rope.theta =
      config.number_or("rope_theta", 2, 1e15, config.number_or("rotary_emb_base", 2, 1e15, 10000));
  rope.share = read_share(config, "rotary_pct", share.usual, share);
  rope.share = read_share(config, "partial_rotary_factor", rope.share, share);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return rope;
  const JsonFields fields(config.at(key), name, fmt::format("{}.", key));
  rope.theta = fields.number_or("rope_theta", 2, 1e15, rope.theta);
  rope.share = read_share(fields, "partial_rotary_factor", rope.share, share);
  read_scaling(config, fields, max_positions, &rope);
  return rope;
}

std::string RopeParameters::scaling_text() const {
  switch (kind) {
    case RopeKind::kDefault:
      return "";
    case RopeKind::kLinear:
      return fmt::format("linear factor={}", factor);
    case RopeKind::kLlama3:
      return fmt::format("llama3 factor={} low={} high={} original={}", factor, low_freq_factor,
                         high_freq_factor, original_positions);
    case RopeKind::kYarn:
      return fmt::format("yarn factor={} fast={} slow={} truncate={} attention={} original={}",
                         factor, beta_fast, beta_slow, truncate, attention_factor,
                         original_positions);
  }
  return "";
}

}  // namespace fasa
