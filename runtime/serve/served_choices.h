// The active choices, the waiting ones, and those that have ended but are not yet reported.
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

  // Counts finished requests in `stats`, which must outlive it.
  explicit ServedChoices(EngineStatus& stats) : stats_(stats) {}

  List& active() { return active_; }  // oldest first
  const List& active() const { return active_; }
  List& waiting() { return waiting_; }  // oldest first
  const List& waiting() const { return waiting_; }
  // Under memory pressure no request is admitted until an active one ends.
  bool under_memory_pressure() const { return memory_pressure_; }
  void set_memory_pressure(bool on) { memory_pressure_ = on; }

  // Makes the first waiting choice active.
  void admit_first() { active_.splice(active_.end(), waiting_, waiting_.begin()); }
  // Makes an active choice wait again, before all others.
  void step_back(ActiveChoice& active);
  // Moves finished choices to the ended ones.
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
