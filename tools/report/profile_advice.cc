#include "tools/report/profile_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/profile/verdict.h"
#include "tools/commands/profile_subject.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

constexpr double kWorthTrying = 0.03;  // share of a step that rows on the host cost
constexpr double kFaster = 0.005;      // share of a step that is worth a setting

struct Candidate {
  std::string setting;
  std::function<void(Config&)> apply;
};

std::vector<Candidate> candidates(const ProfileSubject& subject, const ProfileRun& run) {
  const Config& config = run.config;
  std::vector<Candidate> all;
  if (run.profile().total().rows.prefetched > 0) {
    all.push_back({"prefetch.depth = 0", [](Config& c) { c.prefetch.depth = 0; }});
  } else if (config.prefetch.depth == 0) {
    all.push_back({"prefetch.depth = \"auto\"", [](Config& c) { c.prefetch.depth.reset(); }});
  }
  const int set = subject.largest_set(config);
  for (const int sets : {8, 16}) {
    const int rows = sets * set;
    if (config.placement.hot_rows == rows) continue;
    all.push_back({fmt::format("placement.hot_rows = {}", rows),
                   [rows](Config& c) { c.placement.hot_rows = rows; }});
  }
  if (config.placement.hot_rows) {
    all.push_back(
        {"placement.hot_rows = \"auto\"", [](Config& c) { c.placement.hot_rows.reset(); }});
  }
  return all;
}

double seconds_of(const Profile& profile) {
  return profile.seconds() / static_cast<double>(std::max<size_t>(1, profile.steps()));
}

Advice::Tried try_out(const ProfileSubject& subject, const ProfileRun& run,
                      const Candidate& candidate, int steps) {
  Config config = run.config;
  config.memory.device_memory = subject.given_device_memory();
  candidate.apply(config);
  try {
    const ProfileRun other = subject.open("", std::move(config));
    const int warm = run.warmup.steps;
    warm_up(*other.decode, warm, warm, [] {});
    for (int i = 0; i < steps; ++i) other.decode->step();
    return {candidate.setting, seconds_of(other.profile())};
  } catch (const BudgetError&) {
    return {candidate.setting, 0};
  }
}

std::string bound_words(const Profile& profile) {
  std::pair<double, std::string> longest;
  for (const auto& [name, part] : profile.parts()) {
    longest = std::max(longest, {part.seconds, name});
  }
  return fmt::format("the step is bound by {} ({:.0f} %)", longest.second,
                     100 * longest.first / profile.seconds());
}

}  // namespace

Advice advise(const ProfileSubject& subject, const ProfileRun& run, int steps) {
  const Profile& profile = run.profile();
  if (profile.seconds() <= 0) return {};
  const double share = host_row_cost(profile, run.costs()).total() / profile.seconds();
  if (share < kWorthTrying) {
    return {.text = fmt::format("Nothing to tune: other hot rows or depths can gain {:.1f} % at "
                                "most; {}.",
                                100 * share, bound_words(profile)),
            .tried = {}};
  }
  const std::vector<Candidate> all = candidates(subject, run);
  Advice advice;
  Progress progress("trying other settings");
  for (size_t i = 0; i < all.size(); ++i) {
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(all.size()));
    advice.tried.push_back(try_out(subject, run, all[i], steps));
  }
  progress.clear();
  const double now = seconds_of(profile);
  const Advice::Tried* best = nullptr;
  std::string words;
  for (const Advice::Tried& tried : advice.tried) {
    words += fmt::format(
        "{}{} {}", words.empty() ? "" : ", ", tried.setting,
        tried.seconds > 0 ? fmt::format("{:.3f} ms", 1e3 * tried.seconds) : "does not fit");
    if (tried.seconds <= 0 || tried.seconds > (1 - kFaster) * now) continue;
    if (best == nullptr || tried.seconds < best->seconds) best = &tried;
  }
  advice.text =
      best != nullptr
          ? fmt::format("Set {}: {:.3f} ms ({:.1f} %). Tried: {}.", best->setting,
                        1e3 * best->seconds, 100 * (best->seconds / now - 1), words)
          : fmt::format(
                "Nothing that was tried is faster: {}. A faster link or more device memory "
                "would help; {}.",
                words, bound_words(profile));
  return advice;
}

}  // namespace fasa
