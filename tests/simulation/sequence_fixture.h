// A runtime with three sequences for fault tests: `a`, which is worked on, `b`, which is idle, and
// sometimes a fork. Plain records of the expected state are kept beside it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/fasa.hpp"
#include "tests/simulation/noisy_queries.h"
#include "tests/simulation/plain_cache.h"
#include "tests/support/fault_injector.h"
#include "tests/support/injecting_device.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {

struct FixtureSetup {
  const char* name = "";
  RowPlacement rows = RowPlacement::kHost;
  int hot_rows = 24;  // -1 = auto
  std::optional<int> depth = 0;
  bool queries = false;  // with a source of query predictions
  std::vector<int> dense_layers = {};
  bool emulated = false;  // the product's emulated device instead of the stepped one
};

// One sequence's part of a step.
struct FixturePart {
  SequenceId id{};
  int tokens = 1;
  StepMode mode = StepMode::kDecode;
};

class SequenceFixture {
 public:
  explicit SequenceFixture(const FixtureSetup& setup);
  ~SequenceFixture();
  SequenceFixture(const SequenceFixture&) = delete;  // the runtime refers to members
  SequenceFixture& operator=(const SequenceFixture&) = delete;

  static constexpr int kLengthA = 150;
  static constexpr int kLengthB = 70;
  SequenceId a() const { return a_; }
  SequenceId b() const { return b_; }
  Runtime& runtime() { return *runtime_; }
  FaultInjector& injector() { return injector_; }
  InjectingDevice& device() { return *device_; }
  StreamView stream() const { return compute_.view(); }
  const Config& config() const { return config_; }
  const Geometry& geometry() const { return geometry_; }
  const std::vector<int16_t>& slice_dims() const { return slice_dims_; }

  // Runs a step and waits for it; aborts it if it throws.
  void step(const std::vector<FixturePart>& parts);
  // Compares the last step's outputs with the oracle. Returns the difference in words, "" if none.
  std::string difference();
  // Updates the records after a step that succeeded, or by hand.
  void wrote(const std::vector<FixturePart>& parts);
  History& history(SequenceId id);

  // Checks lengths and memory against the records; memory must not exceed `was`, the earlier
  // memory().
  void expect_books();
  void expect_as_before(const KvMemory& was);
  void expect_lengths();

 private:
  struct Tensors {
    std::vector<float> k, v, q, out, lse;
  };
  void write_tensors(const std::vector<FixturePart>& parts);
  void enqueue(int64_t tokens);

  const FixtureSetup setup_;
  const Geometry geometry_;
  const Config config_;
  const std::vector<int16_t> slice_dims_;
  PlainCache plain_;
  FaultInjector injector_;
  std::unique_ptr<Device> inner_;
  std::unique_ptr<InjectingDevice> device_;
  std::unique_ptr<NoisyQueries> queries_;
  std::unique_ptr<Runtime> runtime_;
  Stream compute_;
  SequenceId a_{}, b_{};
  std::vector<std::pair<SequenceId, History>> histories_;
  std::vector<FixturePart> parts_;      // of the last step
  std::vector<History> parts_written_;  // including its tokens
  std::vector<Tensors> tensors_;
};

}  // namespace fasa::testing
