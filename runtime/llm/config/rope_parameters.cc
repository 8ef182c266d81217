#include "runtime/llm/config/rope_parameters.h"

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

std::vector<double> read_factors(const JsonFields& fields, const char* key) {
  constexpr size_t kMax = 4096;
  constexpr double kLow = 1e-6, kHigh = 1e6;
  const auto fail = [&] {
    fields.fail(key, "a list of numbers from 1e-6 to 1e6, one per frequency");
  };
  if (!fields.has(key)) fail();
  const nlohmann::json& list = fields.at(key);
  if (!list.is_array() || list.size() > kMax) fail();
  std::vector<double> factors;
  for (const nlohmann::json& value : list) {
    if (!value.is_number()) fail();
    factors.push_back(value.get<double>());
    if (!(factors.back() >= kLow && factors.back() <= kHigh)) fail();
  }
  return factors;
}

// LongRoPE (arXiv 2402.13753): each frequency has its own divisor, and sequences longer than the
// original context use another set. A sequence cannot change its divisors, because its keys are
// stored rotated; so the long set is used if any context may be that long. `context`: see
// RotaryDefaults.
void read_long_rope(const JsonFields& fields, int64_t max_positions, int64_t context,
                    RopeParameters* rope) {
  const auto original = static_cast<double>(rope->original_positions);
  rope->factor =
      fields.number_or("factor", 1e-3, 1e6, static_cast<double>(max_positions) / original);
  const bool stretched = rope->factor > 1 && original > 1;
  const double usual = stretched ? std::sqrt(1 + std::log(rope->factor) / std::log(original)) : 1.0;
  rope->attention_factor = fields.number_or("attention_factor", 1e-6, 1e6, usual);
  const std::vector<double> within = read_factors(fields, "short_factor");
  const std::vector<double> beyond = read_factors(fields, "long_factor");
  if (within.size() != beyond.size()) {
    fields.fail("long_factor", "a list as long as short_factor");
  }
  const bool extended = max_positions > rope->original_positions;
  const bool stays = context > 0 && context <= rope->original_positions;
  rope->pair_factors = extended && !stays ? beyond : within;
  if (extended && stays) rope->long_factors = beyond;
}

// `config`: the whole file; `fields`: its rotary part.
void read_scaling(const JsonFields& config, const JsonFields& fields, int64_t max_positions,
                  int64_t context, RopeParameters* rope) {
  const char* kind_key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string kind = fields.text(kind_key).value_or("default");
  if (kind == "default") return;
  if (kind == "proportional") {
    rope->kind = RopeKind::kProportional;
    rope->share = fields.number_or("partial_rotary_factor", 0, 1, 1);
    rope->factor = fields.number_or("factor", 1e-3, 1e6, 1);
    return;
  }
  if (kind == "linear") {
    rope->kind = RopeKind::kLinear;
  } else if (kind == "llama3") {
    rope->kind = RopeKind::kLlama3;
  } else if (kind == "longrope" || kind == "su" || fields.has("long_factor")) {
    rope->kind = RopeKind::kLongRope;
  } else if (kind == "yarn") {
    rope->kind = RopeKind::kYarn;
  } else {
    fields.fail(kind_key, "default, linear, llama3, longrope, proportional, yarn");
  }
  rope->original_positions = config.integer_or(
      "original_max_position_embeddings", 1, kMaxPositions,
      fields.integer_or("original_max_position_embeddings", 1, kMaxPositions, max_positions));
  if (rope->kind == RopeKind::kLongRope) {
    return read_long_rope(fields, max_positions, context, rope);
  }
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
  rope->query_growth = fields.number_or("llama_4_scaling_beta", 0, 1e3, 0);
}

double read_share(const JsonFields& fields, const char* key, double otherwise,
                  const RotaryDefaults& defaults) {
  const double value = fields.number_or(key, 0, 1, otherwise);
  if (value != 1 && !defaults.partial) fields.fail(key, "1 for this model type");
  return value;
}

// The rope_parameters entry of a kind of layers ("sliding_attention"); null if there is none.
const nlohmann::json* part_of(const JsonFields& config, const char* kind) {
  if (!config.has("rope_parameters")) return nullptr;
  const nlohmann::json& all = config.at("rope_parameters");
  if (!all.is_object() || !all.contains(kind) || all.at(kind).is_null()) return nullptr;
  return &all.at(kind);
}

}  // namespace

RopeParameters read_rope(const JsonFields& config, const std::string& name, int64_t max_positions,
                         const RotaryDefaults& defaults) {
  RopeParameters rope;
  if (defaults.proportional) rope.kind = RopeKind::kProportional;
  rope.theta = config.number_or("rope_theta", 2, 1e15,
                                config.number_or("rotary_emb_base", 2, 1e15, defaults.theta));
  rope.share = read_share(config, "rotary_pct", defaults.share, defaults);
  rope.share = read_share(config, "partial_rotary_factor", rope.share, defaults);
  std::string key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key.c_str())) return rope;
  const nlohmann::json* parameters = &config.at(key.c_str());
  if (const nlohmann::json* part = part_of(config, "full_attention"); part != nullptr) {
    parameters = part;
    key += ".full_attention";
  }
  const JsonFields fields(*parameters, name, config.prefix() + key + ".");
  rope.kind = RopeKind::kDefault;
  rope.theta = fields.number_or("rope_theta", 2, 1e15, rope.theta);
  rope.share = read_share(fields, "partial_rotary_factor", rope.share, defaults);
  read_scaling(config, fields, max_positions, defaults.context, &rope);
  return rope;
}

RopeParameters read_local_rope(const JsonFields& config, const std::string& name,
                               int64_t max_positions, double theta) {
  RopeParameters rope;
  rope.theta = config.number_or("rope_local_base_freq", 2, 1e15, theta);
  const nlohmann::json* part = part_of(config, "sliding_attention");
  if (part == nullptr) return rope;
  const JsonFields fields(*part, name, config.prefix() + "rope_parameters.sliding_attention.");
  rope.theta = fields.number_or("rope_theta", 2, 1e15, rope.theta);
  read_scaling(config, fields, max_positions, 0, &rope);
  return rope;
}

std::string RopeParameters::scaling_text() const {
  switch (kind) {
    case RopeKind::kDefault:
      return "";
    case RopeKind::kProportional:
      return fmt::format("proportional share={} factor={}", share, factor);
    case RopeKind::kLinear:
      return fmt::format("linear factor={}", factor);
    case RopeKind::kLlama3:
      return fmt::format("llama3 factor={} low={} high={} original={}", factor, low_freq_factor,
                         high_freq_factor, original_positions);
    case RopeKind::kYarn:
      return fmt::format("yarn factor={} fast={} slow={} truncate={} attention={} original={}",
                         factor, beta_fast, beta_slow, truncate, attention_factor,
                         original_positions);
    case RopeKind::kLongRope:
      return fmt::format("longrope factors={} attention={} original={}",
                         fmt::join(long_factors.empty() ? pair_factors : long_factors, ","),
                         attention_factor, original_positions);
  }
  return "";
}

}  // namespace fasa
