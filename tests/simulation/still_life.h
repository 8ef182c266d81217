// A runtime with three sequences in it, to be disturbed: `a` that is worked on, `b` that is idle,
// and now and then a fork. What it should be is in plain books beside it.
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

struct LifeSetup {
  const char* name = "";
  RowPlacement rows = RowPlacement::kHost;
  int hot_rows = 24;  // -1 = auto
  std::optional<int> depth = 0;
  bool queries = false;  // somebody estimates them
  std::vector<int> dense_layers = {};
  bool emulated = false;  // the product's own device in place of the stepped one
};

// One sequence's part of a step.
struct LifePart {
  SequenceId id{};
  int tokens = 1;
  StepMode mode = StepMode::kDecode;
};

class StillLife {
 public:
  explicit StillLife(const LifeSetup& setup);
  ~StillLife();
  StillLife(const StillLife&) = delete;  // the runtime knows its parts
  StillLife& operator=(const StillLife&) = delete;

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

  // A step from begin to end, waited for; aborted where it throws.
  void step(const std::vector<LifePart>& parts);
  // What the last step gave, against the oracle. Says what differs, "" for nothing.
  std::string difference();
  // The books: after a step that went through, and by hand.
  void wrote(const std::vector<LifePart>& parts);
  History& history(SequenceId id);

  // Lengths and memory as the books have them; no more than before, when memory() said `was`.
  void expect_books();
  void expect_as_before(const KvMemory& was);
  void expect_lengths();

 private:
  struct Tensors {
    std::vector<float> k, v, q, out, lse;
  };
  void write_tensors(const std::vector<LifePart>& parts);
  void enqueue(int64_t tokens);

  const LifeSetup setup_;
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
  std::vector<LifePart> parts_;         // of the last step
  std::vector<History> parts_written_;  // with its tokens
  std::vector<Tensors> tensors_;
};

}  // namespace fasa::testing
