// Who is served, who waits for that, and who has ended without having heard of it yet.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "runtime/serve/active_choice.h"
#include "runtime/serve/engine_status.h"

namespace fasa::serve {

class ServedChoices {
 public:
  using List = std::list<std::unique_ptr<ActiveChoice>>;

  // Counts finished requests in `stats`, which outlives this.
  explicit ServedChoices(EngineStatus& stats) : stats_(stats) {}

  List& active() { return active_; }  // oldest first
  const List& active() const { return active_; }
  List& waiting() { return waiting_; }  // oldest first
  const List& waiting() const { return waiting_; }
  // Memory is short: no request is admitted until one of the active ones ends.
  bool under_memory_pressure() const { return memory_pressure_; }
  void set_memory_pressure(bool on) { memory_pressure_ = on; }

  // The first that waits is served from now on.
  void admit_first() { active_.splice(active_.end(), waiting_, waiting_.begin()); }
  // It waits again, before all others.
  void step_back(ActiveChoice& active);
  // Moves those that have finished to those that have ended.
  void end_finished();
  void end_first_waiting() { ended_.splice(ended_.end(), waiting_, waiting_.begin()); }
  void tell_ended();

  void finish(ActiveChoice& active);
  void cancel(ActiveChoice& active);
  void cancel(uint64_t id);
  void cancel_all();
  void fail(ActiveChoice& active, ErrorKind kind, const std::string& message);
  void fail_all(ErrorKind kind, const std::string& message);

 private:
  template <typename Work>
  void for_each(const Work& work) {
    for (List* list : {&active_, &waiting_}) {
      for (const auto& one : *list) work(*one);
    }
  }

  EngineStatus& stats_;
  List active_;
  List waiting_;
  List ended_;
  bool memory_pressure_ = false;
};

}  // namespace fasa::serve
