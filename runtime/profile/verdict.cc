#include "runtime/profile/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace fasa {
namespace {

std::string_view work_name(std::string_view kernel) {
  if (kernel == "select") return "scoring";
  if (kernel == "attend") return "attention";
  if (kernel == "projections") return "the weights";
  return kernel;
}

// What the compute stream does longest, waits for rows included, and its seconds.
std::pair<std::string, double> longest_part(const Profile& profile) {
  std::pair<std::string, double> longest{"waiting for rows",
                                         profile.total().wait(WaitReason::kRows)};
  for (const auto& [kernel, seconds] : profile.kernels()) {
    if (seconds > longest.second) longest = {std::string(work_name(kernel)), seconds};
  }
  return longest;
}

}  // namespace

std::string verdict(const Profile& profile) {
  if (profile.seconds() <= 0) return "No step was measured.";
  const double steps = static_cast<double>(std::max<size_t>(1, profile.steps()));
  const double waited = profile.total().wait(WaitReason::kRows);
  const std::string transfers =
      profile.total_transfer() <= 0
          ? "No rows were transferred."
          : fmt::format(
                "Transfers are {:.0f} % hidden; waits for rows cost {:.3f} of {:.3f} ms ({:.1f} "
                "%).",
                100 * profile.total_hidden(), 1e3 * waited / steps, 1e3 * profile.seconds() / steps,
                100 * waited / profile.seconds());
  const auto [part, seconds] = longest_part(profile);
  return fmt::format("{} Most of the step is {} ({:.0f} %).", transfers, part,
                     100 * seconds / profile.seconds());
}

}  // namespace fasa
