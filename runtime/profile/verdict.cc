#include "runtime/profile/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fasa {
namespace {

// The parts of a step by time, waits and idle time included; those below a hundredth are left out.
std::string composition(const Profile& profile) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, part] : profile.parts()) parts.emplace_back(part.seconds, name);
  const LayerProfile all = profile.total();
  parts.emplace_back(all.wait(WaitReason::kRows), "waiting for rows");
  parts.emplace_back(all.waiting() - all.wait(WaitReason::kRows), "other waits");
  parts.emplace_back(profile.idle(), "nothing to do");
  std::sort(parts.rbegin(), parts.rend());
  std::string text;
  for (const auto& [seconds, name] : parts) {
    const double share = seconds / profile.seconds();
    if (share < 0.01) break;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, 100 * share);
  }
  return text;
}

}  // namespace

HostRowCost host_row_cost(const Profile& profile, const KernelCosts& costs) {
  const auto calls = [&](const char* name) {
    const auto part = profile.parts().find(name);
    return part == profile.parts().end() ? 0.0 : static_cast<double>(part->second.calls);
  };
  const double groups = profile.head_groups();
  const double further = groups > 1 ? calls("scoring") * (groups - 1) / groups : 0;
  return {.waits = profile.total().wait(WaitReason::kRows),
          .groups = further * (costs.select + costs.attend) + calls("codes") * costs.launch};
}

std::string verdict(const Profile& profile, const KernelCosts& costs) {
  if (profile.seconds() <= 0) return "No step was measured.";
  const double steps = static_cast<double>(std::max<size_t>(1, profile.steps()));
  const auto ms = [&](double seconds) { return 1e3 * seconds / steps; };
  const std::string text =
      fmt::format("{:.3f} ms a token: {}.", ms(profile.seconds()), composition(profile));
  if (profile.total_transfer() <= 0) return text + " No rows were transferred.";
  const HostRowCost cost = host_row_cost(profile, costs);
  return fmt::format(
      "{} Rows on the host cost {:.3f} ms of it ({:.1f} %): {:.3f} ms of waiting and {:.3f} ms of "
      "further launches, which hide the rest.",
      text, ms(cost.total()), 100 * cost.total() / profile.seconds(), ms(cost.waits),
      ms(cost.groups));
}

}  // namespace fasa
