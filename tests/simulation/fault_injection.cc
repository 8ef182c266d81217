#include "tests/simulation/fault_injection.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>

#include "runtime/base/error.h"
#include "tests/simulation/process_faults.h"

namespace fasa::testing {
namespace {

bool names(const std::string& message, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (message.find(word) != std::string::npos) return true;
  }
  return false;
}

// True if the call threw.
bool fails_once(const std::string& where, FaultInjector& injector, FaultCase& fault_case) {
  try {
    const ProcessFaults armed(injector);
    fault_case.call();
    return false;
  } catch (const std::exception& error) {
    const int64_t fired = injector.lift();
    EXPECT_GT(fired, 0) << where << ": failed for no reason: " << error.what();
    if (fired > 0) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, error.what());
      fault_case.check_error(injector.last(), error);
    }
    return true;
  }
}

int64_t injected_in_all = 0;

bool all_places() {
  const char* all = std::getenv("FASA_LONG");
  return all != nullptr && std::string_view(all) == "1";
}

}  // namespace

void FaultCase::check_error(FaultPoint point, const std::exception& error) {
  const std::string what = error.what();
  const auto* budget = dynamic_cast<const BudgetError*>(&error);
  switch (point) {
    case FaultPoint::kAllocation:
      ASSERT_NE(budget, nullptr) << what;
      EXPECT_TRUE(names(budget->limit(), {"device_memory", "host_memory", "pinned_memory"}))
          << what;
      break;
    case FaultPoint::kHeap:
      EXPECT_TRUE(dynamic_cast<const std::bad_alloc*>(&error) != nullptr || budget != nullptr)
          << what;
      break;
    case FaultPoint::kFile:
      EXPECT_TRUE(dynamic_cast<const InputError*>(&error) != nullptr && names(what, {"/"})) << what;
      break;
    case FaultPoint::kThread:
      EXPECT_TRUE(dynamic_cast<const DeviceError*>(&error) != nullptr && names(what, {"thread"}))
          << what;
      break;
    default:
      EXPECT_NE(dynamic_cast<const DeviceError*>(&error), nullptr) << what;
  }
}

FaultCount inject_faults(const std::string& name, FaultInjector& injector, FaultCase& fault_case,
                         const FaultPlan& plan) {
  FaultCount count;
  for (int64_t n = plan.first;; n += plan.stride) {
    const std::string where = name + ", fault " + std::to_string(n) +
                              (plan.mode == FaultMode::kOnce ? "" : " and all after it");
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, where);
    fault_case.prepare();
    injector.arm(plan.points, n, plan.mode);
    const bool thrown = fails_once(where, injector, fault_case);
    const int64_t fired = injector.lift();
    count.points = std::max(count.points, injector.passed());
    if (fired > 0) {
      ++count.injected;
      ++injected_in_all;
    }
    try {
      if (thrown) {
        ++count.thrown;
        fault_case.check_unchanged();
        fault_case.call();  // with everything working again
      }
      fault_case.check_done();
      fault_case.undo();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "with everything working again: " << error.what();
    }
    if (fired == 0 || ::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) {
      return count;
    }
  }
}

// Totals over all fault cases of the program.
class TotalOfFaults final : public ::testing::Environment {
 public:
  void TearDown() override {
    std::cout << "faults injected in all: " << injected_in_all << "\n";
    const auto* unit = ::testing::UnitTest::GetInstance();
    const bool whole = unit->test_to_run_count() == unit->total_test_count();
    if (all_places() && whole) {
      EXPECT_GT(injected_in_all, 5000);
    }
  }
};
[[maybe_unused]] const auto* const kTotalOfFaults =
    ::testing::AddGlobalTestEnvironment(new TotalOfFaults);

FaultPlan planned(const std::string& name, FaultPoints points, FaultMode mode, int64_t usual) {
  if (all_places()) return {points, mode, 1, 1};
  uint64_t hash = 1469598103934665603ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return {points, mode, 1 + static_cast<int64_t>(hash % static_cast<uint64_t>(usual)), usual};
}

}  // namespace fasa::testing
