#include "scheduler/prefetch/predictor_table.h"

#include <fmt/format.h>

#include <array>

#include "scheduler/prefetch/next_query_predictor.h"
#include "scheduler/prefetch/none_predictor.h"
#include "scheduler/prefetch/runners_up_predictor.h"

namespace fasa {
namespace {

using Made = std::unique_ptr<Predictor>;

struct Entry {
  std::string_view name;
  std::string_view help;
  bool by_queries;
  bool writes_sets;
  int (*max_depth)(int layers, int source_depth);
  Made (*make)(const PredictorParts&);
};

template <typename Kind>
constexpr Entry entry() {
  return {Kind::kName,      Kind::kHelp,
          Kind::kByQueries, Kind::kWritesSets,
          Kind::max_depth,  [](const PredictorParts& parts) -> Made { return Kind::make(parts); }};
}

// PredictorKind numbers the rows from 1; 0 is kAuto, which picks one of them.
constexpr std::array kTable{
    entry<NonePredictor>(),
    entry<RunnersUpPredictor>(),
    entry<NextQueryPredictor>(),
};
constexpr std::string_view kAutoName = "auto";

const Entry& entry_of(PredictorKind kind, bool has_queries) {
  if (kind == PredictorKind::kAuto) kind = PredictorKind::kRunnersUp;
  const Entry& entry = kTable[static_cast<size_t>(kind) - 1];
  return entry.by_queries && !has_queries ? kTable.front() : entry;
}

}  // namespace

std::optional<PredictorKind> find_predictor(std::string_view name) {
  if (name == kAutoName) return PredictorKind::kAuto;
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name) return PredictorKind(i + 1);
  }
  return std::nullopt;
}

std::string_view predictor_name(PredictorKind kind) {
  return kind == PredictorKind::kAuto ? kAutoName : kTable[static_cast<size_t>(kind) - 1].name;
}

const std::string& predictor_names() {
  static const std::string all_names = [] {
    std::string names(kAutoName);
    for (const Entry& entry : kTable) names += fmt::format(", {}", entry.name);
    return names;
  }();
  return all_names;
}

const std::string& predictor_help() {
  static const std::string text = [] {
    std::string help;
    for (const Entry& entry : kTable) help += fmt::format("{} = {}; ", entry.name, entry.help);
    return help + fmt::format("{} = {}, which is the cheapest.", kAutoName,
                              predictor_name(PredictorKind::kRunnersUp));
  }();
  return text;
}

bool needs_queries(PredictorKind kind) { return entry_of(kind, true).by_queries; }

PredictionScratch predictor_scratch(PredictorKind kind, int layers, int source_depth) {
  const Entry& entry = entry_of(kind, source_depth > 0);
  return {entry.max_depth(layers, source_depth), entry.writes_sets};
}

std::unique_ptr<Predictor> make_predictor(PredictorKind kind, const PredictorParts& parts) {
  return entry_of(kind, parts.source != nullptr).make(parts);
}

}  // namespace fasa
