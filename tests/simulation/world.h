// One simulation run of a runtime: everything that happens in it follows from a seed. The device is
// one whose streams run only as a policy of the seed lets them, calls fail where the seed says so,
// and after every operation the runtime is held against plain books of what it should be.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/fasa.hpp"
#include "tests/simulation/draw.h"
#include "tests/simulation/drawn_setup.h"
#include "tests/simulation/plain_cache.h"
#include "tests/support/fault_injector.h"
#include "tests/support/injecting_device.h"
#include "tests/support/prediction_sources.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {

// What is and what should be differ: names both, the operation is added by who runs it.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Tally {
  int64_t operations = 0;
  int64_t steps = 0;     // that ended
  int64_t compared = 0;  // tokens' outputs, layer by layer
  int64_t injected = 0;  // faults that something met
  int64_t refused = 0;   // calls for true want of memory
  int64_t poisoned = 0;  // sequences lost to a device failure
  Tally& operator+=(const Tally& other);
};

class NoisyQueries;

class World {
 public:
  explicit World(uint64_t seed, bool faults = true);
  ~World();
  World(const World&) = delete;  // the device and the runtime know its parts
  World& operator=(const World&) = delete;

  // Throws Mismatch. `operation`: counted from 0, each draws for itself.
  void run(int64_t operation);
  // Frees everything and looks for what is left.
  void close();

  const Tally& tally() const { return tally_; }
  uint64_t digest() const;
  const std::string& last() const { return last_; }  // the operation that ran, in words
  std::string setup() const;

 private:
  struct Sequence {
    SequenceId id{};
    History history;
    std::vector<uint64_t> pages;  // who shares a page has the same number here
    int64_t promised = 0;         // tokens that decode steps of this sequence alone have memory for
    bool busy = false;            // its work may be under way: a failure may be its
  };
  struct Part {
    SequenceId id{};
    History history;  // with the step's tokens
    int64_t start = 0;
    StepMode mode = StepMode::kDecode;
    int64_t tokens() const { return static_cast<int64_t>(history.size()) - start; }
  };
  struct Layer {
    std::vector<float> k, v, q, out, lse;
  };
  struct Step {
    std::vector<Part> parts;
    std::vector<Layer> layers;
    bool attends = true;
    int64_t tokens = 0;
  };
  // What a refused call leaves as it was.
  struct Before {
    KvMemory memory;
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;
  };
  enum class Outcome : uint8_t { kDone, kRefused, kFailed };

  // world.cc
  Before before() const;
  // Runs the call, with a fault armed now and then; says what came of it and has checked that a
  // failure had a reason and left the runtime as it was.
  Outcome attempt(Draw& draw, std::string_view what, const std::function<void()>& call);
  // `lasting`: more failed than one thing.
  Outcome failed(const Before& was, std::string_view what, const Error& error, bool injected,
                 bool lasting);
  void arm(Draw& draw, FaultPoints points);
  bool fits(const BudgetError& error) const;  // what was refused
  // Something that was under way has failed: the sequences whose it may have been are lost or
  // right, all others are right.
  void meet_late_failure();
  bool failed_late() const { return late_.fired() > 0; }
  void check_books(std::string_view what) const;
  void check_lengths() const;
  [[noreturn]] void mismatch(const std::string& text) const;
  Sequence* pick(Draw& draw);
  Sequence& find(SequenceId id);
  // The next token goes to a page that others share: a step copies it first.
  bool writes_shared_page(const Sequence& sequence) const;
  void cut_pages(Sequence& sequence) const;  // to the history's length
  void forget_promises();
  void nothing_is_under_way();  // after a call that waits for everything
  void drop(const Sequence* sequence);

  // world_steps.cc
  void step(Draw& draw);
  Step draw_step(Draw& draw);
  void write_tensors(Step& step);
  void open_step(Draw& draw, std::unique_ptr<Step> step, int abort_after);
  void enqueue_layers(Step& step, int layers);
  void commit(std::unique_ptr<Step> step);
  void settle();  // waits, and compares what steps gave
  void compare(const Step& step);
  void compare(const Part& part, const Layer& layer, const Attended& expected, size_t first_token,
               int layer_index) const;

  // world_calls.cc
  void create(Draw& draw);
  void fork(Draw& draw);
  void truncate(Draw& draw);
  void free(Draw& draw);
  void reserve(Draw& draw);
  void squeeze(Draw& draw);
  void release(Draw& draw);
  void read(Draw& draw);
  void change_order(Draw& draw);
  void arm_late(Draw& draw);
  void look_at_metrics(Draw& draw);

  const uint64_t seed_;
  const bool faults_;
  const DrawnSetup setup_;
  FaultInjector injector_;  // of calls
  FaultInjector late_;      // of what runs
  std::unique_ptr<SteppedDevice> stepped_;
  std::unique_ptr<InjectingDevice> device_;
  std::unique_ptr<NoisyQueries> queries_;
  std::unique_ptr<RandomPredictor> anything_;
  PlainCache plain_;
  std::optional<Runtime> runtime_;
  Stream compute_;
  std::vector<Sequence> sequences_;
  uint64_t next_page_ = 1;
  bool copies_pages_ = false;  // the call under way may copy shared pages, and keeps the copies
  std::vector<std::unique_ptr<Step>> pending_;  // enqueued, not compared yet
  std::vector<Buffer> squeezes_;
  Tally tally_;
  Digest digest_;
  std::string last_;
  std::string last_refusal_;
};

}  // namespace fasa::testing
