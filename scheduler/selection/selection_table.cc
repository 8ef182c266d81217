#include "scheduler/selection/selection_table.h"

#include <iterator>

#if defined(FASA_LAB)
#include "scheduler/selection/h2o.h"
#include "scheduler/selection/oracle.h"
#include "scheduler/selection/quest.h"
#include "scheduler/selection/rkv.h"
#include "scheduler/selection/snapkv.h"
#include "scheduler/selection/sparq.h"
#include "scheduler/selection/streaming.h"
#endif

namespace fasa {
namespace {

using Made = std::shared_ptr<const TokenSelection>;

template <typename Kind>
Made make() {
  return std::make_shared<Kind>();
}

template <typename Policy>
class Evicting final : public EvictingSelection {
 public:
  std::unique_ptr<EvictionPolicy> make_policy() const override {
    return std::make_unique<Policy>();
  }
};

Made by_kernel() { return nullptr; }

struct Entry {
  std::string_view name;
  Made (*make)();
};

// The first two are SelectionKind::kFasa and kFull.
constexpr Entry kTable[] = {
    {"fasa", by_kernel},
    {"full", by_kernel},
#if defined(FASA_LAB)
    {"oracle", make<OracleSelection>},
    {"streaming", make<StreamingSelection>},
    {"snapkv", make<Evicting<SnapKvPolicy>>},
    {"h2o", make<Evicting<H2oPolicy>>},
    {"rkv", make<Evicting<RkvPolicy>>},
    {"quest", make<QuestSelection>},
    {"sparq", make<SparqSelection>},
#endif
};

}  // namespace

std::optional<SelectionKind> find_selection(std::string_view name) {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].name == name) return SelectionKind(i);
  }
  return std::nullopt;
}

std::string_view selection_name(SelectionKind kind) {
  return kTable[static_cast<size_t>(kind)].name;
}

bool has_comparison_selections() { return std::size(kTable) > 2; }

const std::string& selection_names() {
  static const std::string all_names = [] {
    std::string names;
    for (const Entry& entry : kTable) {
      if (!names.empty()) names += ", ";
      names += entry.name;
    }
    return names;
  }();
  return all_names;
}

std::shared_ptr<const TokenSelection> make_selection(SelectionKind kind) {
  return kTable[static_cast<size_t>(kind)].make();
}

}  // namespace fasa
