// One simulation run of a runtime: a seed determines everything that happens in it. The device runs
// its streams only as a policy of the seed lets them, calls fail where the seed says so, and after
// every operation the runtime's state is compared with plain records.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/fasa.hpp"
#include "tests/simulation/draw.h"
#include "tests/simulation/drawn_setup.h"
#include "tests/simulation/linear_layers.h"
#include "tests/simulation/plain_cache.h"
#include "tests/support/fault_injector.h"
#include "tests/support/injecting_device.h"
#include "tests/support/prediction_sources.h"
#include "tests/support/stepped_device.h"

namespace fasa::testing {

// The runtime's state differs from the expected one: names both. The caller adds the operation.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Tally {
  int64_t operations = 0;
  int64_t steps = 0;     // completed
  int64_t compared = 0;  // tokens' outputs, layer by layer
  int64_t injected = 0;  // faults that occurred
  int64_t refused = 0;   // calls refused because memory was really full
  int64_t poisoned = 0;  // sequences lost to a device failure
  Tally& operator+=(const Tally& other);
};

class NoisyQueries;

class World {
 public:
  explicit World(uint64_t seed, bool faults = true);
  ~World();
  World(const World&) = delete;  // the device and the runtime refer to members
  World& operator=(const World&) = delete;

  // Throws Mismatch. `operation`: counted from 0; each has its own generator.
  void run(int64_t operation);
  // Frees everything and checks for leaks.
  void close();

  const Tally& tally() const { return tally_; }
  uint64_t digest() const;
  const std::string& last() const { return last_; }  // the last operation, in words
  std::string setup() const;

 private:
  struct Sequence {
    SequenceId id{};
    History history = {};
    History decoded = {};  // for each token 1, or 0: prefilled
    // Page numbers; sequences that share a page have the same number.
    std::vector<uint64_t> pages = {};
    // tokens that decode steps of this sequence alone have reserved memory for
    int64_t promised = 0;
    int64_t rollback = -1;      // its rollback window in tokens; below 0: none was set
    int64_t rollback_from = 0;  // it can be truncated to these lengths and 0; to others perhaps
    bool busy = false;          // its work may be under way, so a late failure may affect it
  };
  struct Part {
    SequenceId id{};
    History history;  // including the step's tokens
    History decoded;
    int64_t start = 0;
    StepMode mode = StepMode::kDecode;
    int64_t dropped = 0;  // of its tokens, the last ones
    int64_t tokens() const { return static_cast<int64_t>(history.size()) - start; }
  };
  struct Layer {
    std::vector<float> k, v, q, out, lse;
  };
  struct Step {
    std::vector<Part> parts;
    std::vector<Layer> layers;
    std::vector<std::vector<std::byte>> linear;  // outputs of each layer with linear attention
    bool attends = true;
    int64_t tokens = 0;
  };
  struct Chunk {
    struct Progress {
      int layer = 0;
      int64_t done = 0;  // its tokens
    };
    std::unique_ptr<Step> step;  // of the whole chunk
    Progress attention = {}, linear = {};
  };
  // The state that a refused call must leave unchanged.
  struct Before {
    KvMemory memory;
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;
  };
  enum class Outcome : uint8_t { kDone, kRefused, kFailed };

  // world.cc
  Before before() const;
  // Runs the call, sometimes with a fault armed; returns its outcome, after checking that a failure
  // had a reason and changed nothing.
  Outcome attempt(Draw& draw, std::string_view what, const std::function<void()>& call);
  // `lasting`: every later point failed too.
  Outcome failed(const Before& was, std::string_view what, const Error& error, bool injected,
                 bool lasting);
  void arm(Draw& draw, FaultPoints points);
  bool fits(const BudgetError& error) const;  // the refused allocation
  // Handles a failure of work that was under way: the sequences that may have been affected are
  // lost or correct, all others are correct.
  void meet_late_failure();
  bool failed_late() const { return late_.fired() > 0; }
  void check_books(std::string_view what) const;
  void check_lengths() const;
  [[noreturn]] void mismatch(const std::string& text) const;
  Sequence* pick(Draw& draw, bool any = false);  // none whose chunk is open, unless `any`
  Sequence& find(SequenceId id);
  // The next token goes to a shared page: a step copies it first.
  bool writes_shared_page(const Sequence& sequence) const;
  void cut_pages(Sequence& sequence) const;  // to the history's length
  void forget_promises();
  void nothing_is_under_way();  // after a call that waits for everything
  void drop(const Sequence* sequence);

  // world_steps.cc
  void step(Draw& draw);
  Step draw_step(Draw& draw);
  int64_t drawn_decode(Draw& draw, SequenceId id) const;
  void write_tensors(Step& step);
  void open_step(Draw& draw, std::unique_ptr<Step> step, int abort_after);
  void enqueue_layers(Step& step, int layers);
  void commit(std::unique_ptr<Step> step);
  void settle();  // waits, and compares the steps' outputs
  std::vector<Attended> expected(const Part& part);
  void compare(const Step& step);
  void compare(const Part& part, const Layer& layer, const Attended& expected, size_t first_token,
               int layer_index) const;

  // world_chunks.cc: prompts that go layer by layer, between the steps of others
  void work_on_chunk(Draw& draw);
  void open_chunk(Draw& draw);
  bool work_on_piece(Draw& draw, bool linear);  // false: a late failure
  void attend_piece(int64_t tokens);
  void advance_piece(int64_t tokens);
  void close_chunk();
  void drop_chunk();
  bool in_chunk(SequenceId id) const { return chunk_ && chunk_->step->parts[0].id == id; }

  // world_rollback.cc
  // Whether a call that goes back to `tokens` tokens is refused, as the rollback window may allow.
  bool refuses_rollback(const Sequence& sequence, int64_t tokens,
                        const std::function<void()>& call);
  void require_freed_pages(const Sequence& sequence) const;

  // world_states.cc: with layers of linear attention
  bool has_states() const { return linear_.layers() > 0; }
  void enqueue_linear(Step& step);
  void enqueue_linear(Step& step, int layer, int64_t first, int64_t count);
  void compare_linear(const Step& step) const;
  bool knows_state(const Sequence& sequence, int64_t tokens) const;
  // To where its state is known: an aborted step may have advanced it.
  void cut_to_state(Sequence& sequence);
  void check_states() const;
  void suspend(Draw& draw);  // pages and a state of a sequence, which resume in a new one
  bool resume(Draw& draw, SequenceId id, const StatePoint& point,
              const std::vector<std::vector<std::byte>>& pages, std::span<const std::byte> state);

  // world_calls.cc
  void create(Draw& draw);
  void fork(Draw& draw);
  void truncate(Draw& draw);
  void free(Draw& draw);
  void reserve(Draw& draw);
  void set_rollback(Draw& draw, Sequence& sequence);
  void squeeze(Draw& draw);
  void release(Draw& draw);
  void read(Draw& draw);
  void change_order(Draw& draw);
  void arm_late(Draw& draw);
  void look_at_metrics(Draw& draw);

  const uint64_t seed_;
  const bool faults_;
  const DrawnSetup setup_;
  FaultInjector injector_;  // for calls
  FaultInjector late_;      // for enqueued work
  std::unique_ptr<SteppedDevice> stepped_;
  std::unique_ptr<InjectingDevice> device_;
  std::unique_ptr<NoisyQueries> queries_;
  std::unique_ptr<RandomPredictor> anything_;
  PlainCache plain_;
  const LinearLayers linear_;
  std::optional<Runtime> runtime_;
  Stream compute_;
  std::vector<Sequence> sequences_;
  uint64_t next_page_ = 1;
  bool copies_pages_ = false;  // the current call may copy shared pages, and keeps the copies
  std::vector<std::unique_ptr<Step>> pending_;  // enqueued, not yet compared
  std::optional<Chunk> chunk_;
  std::vector<Buffer> squeezes_;
  Tally tally_;
  Digest digest_;
  std::string last_;
  std::string last_refusal_;
};

}  // namespace fasa::testing
