#include "runtime/profile/profiled_decode.h"

#include <utility>

#include "runtime/profile/kernel_bytes.h"
#include "runtime/trace/trace_file.h"

namespace fasa {

ProfiledDecode::~ProfiledDecode() = default;

double ProfiledDecode::warm_up() { return run_step().fetch.hit_rate(); }

void ProfiledDecode::step() {
  if (!recording_) {
    recorded_ = &device();
    recorded_->set_timeline(&timeline_);
    recording_ = true;
  }
  timeline_.clear();
  Taken taken = run_step();
  last_step_ = timeline_.entries();
  dropped_ += timeline_.dropped();
  if (!device().traits().times_kernel_bytes) add_kernel_bytes(taken.fetch, last_step_);
  profile_.add({.seconds = taken.seconds,
                .entries = last_step_,
                .fetch = std::move(taken.fetch),
                .overlap = std::move(taken.overlap)});
}

std::string ProfiledDecode::last_step_trace() {
  return trace_json(timeline_, {device().name(), device().virtual_clock()});
}

void ProfiledDecode::stop_recording() {
  if (recording_) recorded_->set_timeline(nullptr);
  recording_ = false;
}

ProfiledSynthetic::ProfiledSynthetic(const SyntheticOptions& settings, SelectionTrace trace)
    : ProfiledDecode(settings.geometry.layers),
      tokens_(settings.tokens),
      sequences_(settings.sequences),
      decode_(settings, std::move(trace)) {
  memory_ = decode_.runtime().memory();
}

ProfiledSynthetic::~ProfiledSynthetic() { stop_recording(); }

ProfiledDecode::Taken ProfiledSynthetic::run_step() {
  SyntheticStep step = decode_.step();
  done_ += step.tokens / sequences_;
  return {step.seconds, std::move(step.fetch), decode_.take_overlap()};
}

}  // namespace fasa
