// An engine whose steps the caller runs.
#pragma once

#include <memory>
#include <utility>

#include "runtime/serve/engine_steps.h"
#include "tests/serve/local_server.h"

namespace fasa::serve {

class SteppedEngine {
 public:
  SteppedEngine(std::unique_ptr<Device> device, const ServedModel& served,
                const EngineOptions& options)
      : options_(options),
        device_(std::move(device)),
        model_(Model::load(served.dir, *device_, std::nullopt)),
        runtime_(*device_, served.config, model_.config().geometry(), model_.dtype(),
                 all_slice_dims(model_.config().geometry())),
        reader_(model_, runtime_, options_),
        memory_(runtime_, options_, choices_, reader_, inbox_, stats_),
        steps_(model_, runtime_, nullptr, options_, choices_, reader_, memory_, stats_, nullptr) {}
  ~SteppedEngine() {
    choices_.cancel_all();
    remove_finished();
    choices_.tell_ended();
  }
  SteppedEngine(const SteppedEngine&) = delete;  // members refer to one another
  SteppedEngine& operator=(const SteppedEngine&) = delete;

  void submit(GenerationRequest request, uint64_t id) {
    auto active = std::make_unique<ActiveChoice>();
    active->id = id;
    active->request = std::move(request);
    active->wanted = WantedTokens(active->request.prompt);
    active->answer = steps_.new_answer(active->request, 0);
    choices_.waiting().push_back(std::move(active));
  }
  void cancel(uint64_t id) {
    choices_.cancel(id);
    remove_finished();
  }
  void evict() { memory_.evict_idle(); }
  void step() {
    memory_.admit_waiting();
    steps_.decode();
    steps_.prefill();
    remove_finished();
    choices_.tell_ended();
  }
  ServedChoices& choices() { return choices_; }
  const ServedChoices& choices() const { return choices_; }
  PromptReader& reader() { return reader_; }
  Runtime& runtime() { return runtime_; }
  const EngineStatus& stats() const { return stats_; }
  bool idle() const { return choices_.active().empty() && choices_.waiting().empty(); }
  int layers() const { return model_.config().layers; }
  // Tokens of a choice, those of a chunk under way by its layers.
  double computed(const ActiveChoice& choice) const {
    return static_cast<double>(choice.log.size()) + (reader_.reads(choice) ? reader_.done() : 0);
  }

 private:
  void remove_finished() {
    memory_.keep_finished();
    choices_.end_finished();
  }

  const EngineOptions options_;
  std::unique_ptr<Device> device_;
  Model model_;
  Runtime runtime_;
  EngineInbox inbox_{64};
  EngineStatus stats_;
  ServedChoices choices_{stats_};
  PromptReader reader_;
  SessionMemory memory_;
  EngineSteps steps_;
};

}  // namespace fasa::serve
