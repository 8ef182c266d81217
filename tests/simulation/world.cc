#include "tests/simulation/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "tests/simulation/noisy_queries.h"

namespace fasa::testing {
namespace {

DeviceOptions options_of(const DrawnSetup& setup) {
  DeviceOptions options;
  options.link_bandwidth = 1e7;  // extra hot rows are worth it
  options.name = "emulated";
  options.device_memory = setup.device_memory;
  options.host_memory = setup.host_memory;
  options.pinned_memory = setup.pinned_memory;
  return options;
}

// The layers with rows.
Geometry rows_of(Geometry geometry) {
  geometry.linear = {};
  return geometry;
}

StepPolicy drawn_order(Draw& draw) {
  const uint64_t seed = draw.next();
  switch (draw.below(7)) {
    case 0:
      return fifo();
    case 1:
      return lifo();
    case 2:
      return starve("copy", random_order(seed));
    case 3:
      return starve("write-back", random_order(seed));
    case 4:
      return starve("prefetch", random_order(seed));
    case 5:
      return starve("compute", random_order(seed));
    default:
      return random_order(seed);
  }
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  operations += other.operations;
  steps += other.steps;
  compared += other.compared;
  injected += other.injected;
  refused += other.refused;
  poisoned += other.poisoned;
  return *this;
}

World::World(uint64_t seed, bool faults)
    : seed_(seed),
      faults_(faults),
      setup_(drawn_setup(seed)),
      stepped_(std::make_unique<SteppedDevice>(
          random_order(seed), options_of(setup_),
          setup_.unified ? DeviceKind::kCpu : DeviceKind::kEmulated)),
      device_(std::make_unique<InjectingDevice>(*stepped_, injector_)),
      plain_(setup_.config, rows_of(setup_.geometry), setup_.row_dtype, setup_.slice_dims),
      linear_(setup_.geometry.linear),
      compute_(device_->create_stream(StreamPriority::kNormal, "compute")) {
  stepped_->fill_new_memory(setup_.new_memory);
  stepped_->on_run([this](const char*) { return late_.fails(FaultPoint::kOperation); });
  runtime_.emplace(*device_, setup_.config, setup_.geometry, setup_.row_dtype, setup_.slice_dims);
  if (setup_.prediction_source == DrawnSource::kQueries) {
    queries_ = std::make_unique<NoisyQueries>(*device_, setup_.geometry, 0.5f);
    runtime_->set_predictor(queries_.get());
  } else if (setup_.prediction_source == DrawnSource::kAnything) {
    anything_ = std::make_unique<RandomPredictor>(*device_, seed, setup_.rollback_windows);
    runtime_->set_predictor(anything_.get());
  }
}

World::~World() {
  injector_.lift();
  late_.lift();
  stepped_->run_until_idle();  // enqueued work reads the steps' tensors
}

std::string World::setup() const { return describe(setup_); }

uint64_t World::digest() const {
  Digest digest = digest_;
  digest.add(stepped_->executed());
  return digest.value();
}

void World::mismatch(const std::string& text) const { throw Mismatch(text); }

void World::run(int64_t operation) {
  Draw draw(seed_, static_cast<uint64_t>(operation));
  ++tally_.operations;
  last_.clear();
  const int64_t what = draw.below(100);
  if (has_states() && draw.one_in(12)) {
    suspend(draw);
  } else if (what < 12 && runtime_->traits().chunks) {
    work_on_chunk(draw);
  } else if (what < 50) {
    step(draw);
  } else if (what < 57) {
    create(draw);
  } else if (what < 66) {
    fork(draw);
  } else if (what < 74) {
    truncate(draw);
  } else if (what < 78) {
    free(draw);
  } else if (what < 82) {
    reserve(draw);
  } else if (what < 87) {
    squeeze(draw);
  } else if (what < 90) {
    release(draw);
  } else if (what < 92) {
    change_order(draw);
  } else if (what < 93) {
    arm_late(draw);
  } else if (what < 96) {
    read(draw);
  } else if (what < 97) {
    look_at_metrics(draw);
  } else {
    last_ = "settle";
    settle();
  }
  if (pending_.size() > 3) settle();
  if (failed_late()) meet_late_failure();
  check_lengths();
  check_states();
  check_books("after it");
  digest_.add(last_.data(), last_.size());
  digest_.add(stepped_->executed());
  digest_.add(device_->held_bytes(MemorySpace::kDevice));
}

void World::change_order(Draw& draw) {
  last_ = "another order of streams";
  stepped_->set_policy(drawn_order(draw));
}

void World::close() {
  late_.lift();
  settle();
  if (failed_late()) meet_late_failure();
  for (const Sequence& sequence : sequences_) runtime_->free(sequence.id);
  sequences_.clear();
  check_books("with nothing left");
  const KvMemory memory = runtime_->memory();
  if (memory.host_rows != 0 || memory.device_slices != 0 || memory.device_hot_rows != 0 ||
      memory.device_rows != 0 || memory.device_states != 0 || memory.host_states != 0) {
    mismatch(fmt::format(
        "all sequences are free, and {} bytes of rows and {} of snapshots on the host, {} of rows, "
        "{} of slices, {} of hot rows, {} of states on the device are held",
        memory.host_rows, memory.host_states, memory.device_rows, memory.device_slices,
        memory.device_hot_rows, memory.device_states));
  }
  squeezes_.clear();
  runtime_.reset();
  for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) {
    const uint64_t left = stepped_->memory(space).used_bytes;
    if (left != 0) mismatch(fmt::format("the runtime is gone, and {} bytes are held", left));
  }
}

// Books.

World::Before World::before() const {
  return {runtime_->memory(), device_->held_bytes(MemorySpace::kDevice),
          device_->held_bytes(MemorySpace::kHost)};
}

void World::check_lengths() const {
  for (const Sequence& sequence : sequences_) {
    const int64_t length = runtime_->length(sequence.id);
    if (length != static_cast<int64_t>(sequence.history.size())) {
      mismatch(fmt::format("sequence {} has {} tokens; it should have {}", index_of(sequence.id),
                           length, sequence.history.size()));
    }
    const int64_t rollback = runtime_->info(sequence.id).rollback_tokens;
    if (sequence.rollback >= 0 && rollback != sequence.rollback) {
      mismatch(fmt::format("sequence {} has a rollback window of {}; it should have {}",
                           index_of(sequence.id), rollback, sequence.rollback));
    }
  }
}

// Checks memory() against the records and the device's counters, and the limits.
void World::check_books(std::string_view what) const {
  uint64_t others[2] = {};
  for (const Buffer& squeeze : squeezes_) {
    others[static_cast<size_t>(squeeze.space())] += squeeze.bytes();
  }
  const KvMemory memory = runtime_->memory();
  for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) {
    const bool on_device = space == MemorySpace::kDevice;
    const char* name = on_device ? "device" : "host";
    const MemoryUse use = stepped_->memory(space);
    const uint64_t said = on_device ? memory.device_total() : memory.host_total();
    const uint64_t held = device_->held_bytes(space);
    if (use.used_bytes != held) {
      mismatch(fmt::format("{}: {} memory: the device counts {} bytes, handed out are {}", what,
                           name, use.used_bytes, held));
    }
    if (said + others[static_cast<size_t>(space)] != held) {
      mismatch(fmt::format("{}: memory() says {} bytes of {} memory; the device gave {}", what,
                           said, name, held - others[static_cast<size_t>(space)]));
    }
    if (use.used_bytes > use.limit_bytes) {
      mismatch(fmt::format("{}: {} memory is beyond its limit", what, name));
    }
  }
  if (device_->wrong_refusals() > 0) {
    mismatch(fmt::format("{}: the device refused what there was room for", what));
  }
}

// Faults.

void World::arm(Draw& draw, FaultPoints points) {
  const FaultMode mode = draw.one_in(4) ? FaultMode::kFromThenOn : FaultMode::kOnce;
  injector_.arm(points, draw.one_in(3) ? draw.between(1, 60) : draw.between(1, 8), mode);
}

bool World::fits(const BudgetError& error) const {
  const bool on_device = error.limit() == "device_memory";
  const MemoryUse use = stepped_->memory(on_device ? MemorySpace::kDevice : MemorySpace::kHost);
  return error.asked_bytes() <= use.limit_bytes - use.used_bytes;
}

World::Outcome World::attempt(Draw& draw, std::string_view what,
                              const std::function<void()>& call) {
  Before was = before();
  int64_t refusals = device_->refusals();
  const bool faulty = draw.one_in(5) && faults_;
  if (faulty) {
    arm(draw, draw.of({FaultPoints{FaultPoint::kAllocation}, FaultPoints{FaultPoint::kAllocation},
                       FaultPoints{FaultPoint::kCopy, FaultPoint::kFill}}));
  }
  for (bool again = false;; again = true) {
    try {
      call();
      tally_.injected += injector_.lift();
      return Outcome::kDone;
    } catch (const Error& error) {
      const bool injected = injector_.fired() > 0 && !again;
      const bool refused = device_->refusals() > refusals;
      const bool lasting = injected && (injector_.fired() > 1 || refused);
      tally_.injected += injector_.lift();
      const auto* budget = dynamic_cast<const BudgetError*>(&error);
      if (failed_late() && budget == nullptr) return Outcome::kFailed;
      if (!injected && budget == nullptr) {
        mismatch(fmt::format("{} failed for no reason: {}", what, error.what()));
      }
      if (!injected && !refused && fits(*budget)) {
        mismatch(fmt::format("{} was refused, and there is room: {}", what, error.what()));
      }
      const Outcome outcome = failed(was, what, error, injected, lasting);
      if (outcome == Outcome::kRefused || again) return outcome;
      was = before();
      refusals = device_->refusals();
    }
  }
}

void World::arm_late(Draw& draw) {
  if (!faults_ || failed_late()) return;
  last_ = "something that runs will fail";
  late_.arm({FaultPoint::kOperation}, draw.between(1, 120));
}

void World::meet_late_failure() {
  tally_.injected += late_.fired();
  late_.arm({}, 0);
  last_ += "; something had failed";
  bool computed = true;
  try {
    device_->synchronize(compute_.view());
  } catch (const DeviceError&) {
    computed = false;  // a failed stream runs nothing any more
    compute_ = device_->create_stream(StreamPriority::kNormal, "compute");
  }
  if (computed) {
    for (const auto& step : pending_) compare(*step);
  }
  pending_.clear();
  if (chunk_) drop_chunk();
  try {
    runtime_->metrics();
  } catch (const DeviceError& error) {
    mismatch(fmt::format("metrics() says what is the sequences' affair: {}", error.what()));
  }
  for (size_t i = 0; i < sequences_.size();) {
    Sequence& sequence = sequences_[i];
    try {
      cut_to_state(sequence);
      runtime_->truncate(sequence.id, static_cast<int64_t>(sequence.history.size()));
      sequence.busy = false;
      ++i;
    } catch (const DeviceError& error) {
      if (!sequence.busy) {
        mismatch(fmt::format("sequence {} was idle and is said to have failed: {}",
                             index_of(sequence.id), error.what()));
      }
      ++tally_.poisoned;
      runtime_->free(sequence.id);
      sequences_.erase(sequences_.begin() + static_cast<int64_t>(i));
    }
  }
  forget_promises();
}

// After a failure nothing has changed: no additional memory is held except in page tables, and the
// step's scratch, which may have been reserved, is there. An allocation may have dropped device
// copies of rows; while every allocation fails, freed scratch cannot be allocated again.
World::Outcome World::failed(const Before& was, std::string_view what, const Error& error,
                             bool injected, bool lasting) {
  check_lengths();
  check_books("after a failure");
  const Before now = before();
  const auto require = [&](bool holds, const char* part, uint64_t before_bytes, uint64_t bytes) {
    if (holds) return;
    mismatch(fmt::format("{} failed and left {} bytes of {} where {} were: {}", what, bytes, part,
                         before_bytes, error.what()));
  };
  const auto no_more = [&](const char* part, uint64_t before_bytes, uint64_t bytes) {
    require(bytes <= before_bytes, part, before_bytes, bytes);
  };
  const KvMemory& a = was.memory;
  const KvMemory& b = now.memory;
  no_more("slices", a.device_slices, b.device_slices);
  no_more("hot rows", a.device_hot_rows, b.device_hot_rows);
  no_more("states", a.device_states, b.device_states);
  const bool copies = setup_.config.placement.rows == RowPlacement::kAuto;
  if (!copies && !copies_pages_) no_more("rows", a.device_rows, b.device_rows);
  if (!copies_pages_) no_more("rows on the host", a.host_rows, b.host_rows);
  const uint64_t scratch_before = a.device_scratch - a.host_tables;  // tables have two halves
  const uint64_t scratch = b.device_scratch - b.host_tables;
  require(scratch == scratch_before || (lasting && scratch < scratch_before), "scratch",
          scratch_before, scratch);
  if (lasting) forget_promises();
  if (injected) return Outcome::kFailed;
  ++tally_.refused;
  last_refusal_ = error.what();
  return Outcome::kRefused;
}

World::Sequence* World::pick(Draw& draw, bool any) {
  if (sequences_.empty()) return nullptr;
  Sequence& one =
      sequences_[static_cast<size_t>(draw.below(static_cast<int64_t>(sequences_.size())))];
  return any || !in_chunk(one.id) ? &one : nullptr;
}

World::Sequence& World::find(SequenceId id) {
  return *std::find_if(sequences_.begin(), sequences_.end(),
                       [&](const Sequence& sequence) { return sequence.id == id; });
}

bool World::writes_shared_page(const Sequence& sequence) const {
  const size_t length = sequence.history.size();
  if (length % kPageTokens == 0) return false;
  const uint64_t page = sequence.pages[length / kPageTokens];
  return std::count_if(sequences_.begin(), sequences_.end(), [&](const Sequence& other) {
           return std::find(other.pages.begin(), other.pages.end(), page) != other.pages.end();
         }) > 1;
}

void World::cut_pages(Sequence& sequence) const {
  sequence.pages.resize((sequence.history.size() + kPageTokens - 1) / kPageTokens);
}

void World::nothing_is_under_way() {
  if (failed_late()) return;
  for (Sequence& sequence : sequences_) sequence.busy = false;
}

void World::forget_promises() {
  for (Sequence& sequence : sequences_) sequence.promised = 0;
}

}  // namespace fasa::testing
