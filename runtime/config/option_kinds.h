// Kinds of options: each makes a row of the table from the row's words, the values that it allows,
// and the field, as `[](auto& c) -> auto& { return c.device.threads; }`.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/units.h"
#include "runtime/config/config_options.h"
#include "runtime/config/config_values.h"

namespace fasa {

// What a row says beside the allowed values; see ConfigOption.
struct OptionWords {
  std::string_view key;
  std::string_view help;
  std::string_view type = "";  // "": the kind's
  std::string_view flag = "";
  std::string_view default_text = "";
};

inline ConfigOption option_of(const OptionWords& words, std::string_view type, std::string allowed,
                              bool text, ConfigOption::Set set, ConfigOption::Get get) {
  return {.table = "",  // set where the row is added
          .key = words.key,
          .flag = words.flag,
          .type = words.type.empty() ? type : words.type,
          .allowed = std::move(allowed),
          .help = words.help,
          .default_text = words.default_text,
          .text = text,
          .set = std::move(set),
          .get = std::move(get)};
}

// A field as JSON, null if it has no value.
struct OptionJson {
  nlohmann::json operator()(const auto& value) const { return value; }
  template <typename T>
  nlohmann::json operator()(const std::optional<T>& value) const {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  }
};

// Any text; unset if empty.
template <typename At>
ConfigOption text_option(const OptionWords& words, std::string_view allowed, At at) {
  return option_of(
      words, "NAME", std::string(allowed), true,
      [at](Config& c, const nlohmann::json& v) {
        if (v.is_string()) at(c) = v.get<std::string>();
        return v.is_string();
      },
      [at](const Config& c) -> nlohmann::json {
        return at(c).empty() ? nlohmann::json(nullptr) : nlohmann::json(at(c));
      });
}

// An integer from `lowest` to `highest`. `allowed`: in words, if not these.
template <typename At>
ConfigOption integer_option(const OptionWords& words, int lowest, int highest, At at,
                            std::string allowed = "") {
  if (allowed.empty()) allowed = fmt::format("{} to {}", lowest, highest);
  return option_of(
      words, "N", std::move(allowed), false,
      [=](Config& c, const nlohmann::json& v) {
        const bool ok = is_integer_in(v, lowest, highest);
        if (ok) at(c) = v.get<int>();
        return ok;
      },
      [at](const Config& c) { return OptionJson()(at(c)); });
}

// The same of a field whose missing value means "auto".
template <typename At>
ConfigOption auto_integer_option(const OptionWords& words, int lowest, int highest, At at,
                                 std::string allowed = "") {
  if (allowed.empty()) allowed = fmt::format("auto, or {} to {}", lowest, highest);
  ConfigOption option = integer_option(words, lowest, highest, at, std::move(allowed));
  if (words.type.empty()) option.type = "N|auto";
  option.set = [at, set = std::move(option.set)](Config& c, const nlohmann::json& v) {
    if (v != "auto") return set(c, v);
    at(c).reset();
    return true;
  };
  option.get = [at](const Config& c) { return at(c) ? nlohmann::json(*at(c)) : "auto"; };
  return option;
}

// One of these integers.
template <typename At>
ConfigOption choice_option(const OptionWords& words, std::vector<int> choices, At at) {
  std::string allowed = fmt::format("{}", fmt::join(choices, ", "));
  return option_of(
      words, "N", std::move(allowed), false,
      [at, choices = std::move(choices)](Config& c, const nlohmann::json& v) {
        for (const int choice : choices) {
          if (v == choice) return at(c) = choice, true;
        }
        return false;
      },
      [at](const Config& c) { return OptionJson()(at(c)); });
}

// One of these names.
template <typename E, typename At>
ConfigOption named_option(const OptionWords& words,
                          std::vector<std::pair<std::string_view, E>> names, At at) {
  std::string allowed;
  for (const auto& [name, value] : names) {
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name);
  }
  return option_of(
      words, "NAME", std::move(allowed), true,
      [at, names](Config& c, const nlohmann::json& v) {
        for (const auto& [name, value] : names) {
          if (v == name) return at(c) = value, true;
        }
        return false;
      },
      [at, names](const Config& c) -> nlohmann::json {
        for (const auto& [name, value] : names) {
          if (value == at(c)) return std::string(name);
        }
        return nullptr;
      });
}

// A text that `parse` turns into the field's value, none if it is not allowed; `name` is its
// inverse.
template <typename At, typename Parse, typename Name>
ConfigOption parsed_option(const OptionWords& words, std::string_view type,
                           std::string_view allowed, At at, Parse parse, Name name) {
  return option_of(
      words, type, std::string(allowed), true,
      [at, parse](Config& c, const nlohmann::json& v) {
        if (!v.is_string()) return false;
        const auto value = parse(v.get<std::string>());
        if (value) at(c) = *value;
        return value.has_value();
      },
      [at, name](const Config& c) -> nlohmann::json {
        const std::optional value(at(c));
        return value ? nlohmann::json(std::string(name(*value))) : nlohmann::json(nullptr);
      });
}

// Bytes.
template <typename At>
ConfigOption size_option(const OptionWords& words, At at) {
  return option_of(
      words, "SIZE",
      "a size above 0: a number with B, kB, MB, GB, KiB, MiB, GiB or TiB, such as \"6GiB\", or "
      "bytes from 1 MiB on",
      false, [at](Config& c, const nlohmann::json& v) { return take_bytes(v, at(c)); },
      [at](const Config& c) -> nlohmann::json {
        if (!at(c)) return nullptr;
        // A number below 1 MiB would lack its unit.
        const uint64_t bytes = *at(c);
        return bytes < (1 << 20) ? nlohmann::json(fmt::format("{}B", bytes))
                                 : nlohmann::json(bytes);
      });
}

// What `take` of config_values.h accepts.
template <typename At, typename Take, typename Get = OptionJson>
ConfigOption taken_option(const OptionWords& words, std::string_view type, std::string_view allowed,
                          At at, Take take, Get get = {}) {
  return option_of(
      words, type, std::string(allowed), false,
      [at, take](Config& c, const nlohmann::json& v) { return take(v, at(c)); },
      [at, get](const Config& c) -> nlohmann::json { return get(at(c)); });
}

}  // namespace fasa
