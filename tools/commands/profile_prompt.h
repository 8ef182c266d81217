// fasa profile --prefill: the time of a prompt, by what it is made of.
#pragma once

#include <string>

#include "runtime/plan/planner.h"
#include "runtime/synthetic/synthetic_prompt.h"
#include "tools/commands/profile_subject.h"

namespace fasa {

struct PromptProfile {
  PlanOptions request;
  PlanOption plan;  // what `fasa plan` predicts for it
  SyntheticPromptResult run;
};

// Prefills the flags' geometry. `chunk`: tokens of a step, or kAutomaticChunk. Throws UsageError,
// BudgetError.
PromptProfile profile_prompt(const ProfileOptions& flags, const Config& config, int chunk);

nlohmann::json to_json(const PromptProfile& profile);
std::string to_table(const PromptProfile& profile);

}  // namespace fasa
