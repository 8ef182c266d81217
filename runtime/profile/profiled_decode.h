// A decode whose steps are recorded and taken apart: a synthetic one, or a model's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/device.h"
#include "offload/timeline/timeline.h"
#include "runtime/profile/profile.h"
#include "runtime/synthetic/synthetic_decode.h"

namespace fasa {

class ProfiledDecode {
 public:
  virtual ~ProfiledDecode();
  ProfiledDecode(const ProfiledDecode&) = delete;  // the device refers to its timeline
  ProfiledDecode& operator=(const ProfiledDecode&) = delete;

  // A step that is not measured: hot rows begin empty, an automatic depth begins unsettled.
  void warm_up();
  // One step into the profile. Throws as the decode does.
  void step();

  const Profile& profile() const { return profile_; }
  // Of the last step; streams by name.
  const std::vector<TimelineEntry>& last_step() const { return last_step_; }
  std::map<TimelineStream, std::string> streams() const { return timeline_.streams(); }
  // Of the last step, as runtime/trace/trace_file.h writes it.
  std::string last_step_trace();
  uint64_t dropped() const { return dropped_; }  // entries of steps too long to be kept whole

  virtual Device& device() = 0;
  virtual KvMemory memory() const = 0;
  virtual int64_t context() const = 0;  // tokens that the next step sees, less its own
  // Predictions that a trace was asked for; none for a model's own.
  virtual std::optional<SyntheticDevice::Predictions> predictions() const { return std::nullopt; }

 protected:
  struct Taken {
    double seconds = 0;
    FetchMetrics fetch;
    std::vector<OverlapCount> overlap;
  };
  explicit ProfiledDecode(int layers) : profile_(layers) {}
  // Runs a step and waits for all of it.
  virtual Taken run_step() = 0;
  // Before the device goes.
  void stop_recording();

 private:
  Profile profile_;
  Timeline timeline_;
  bool recording_ = false;
  Device* recorded_ = nullptr;
  std::vector<TimelineEntry> last_step_;
  uint64_t dropped_ = 0;
};

// A trace's selections on a geometry, in virtual time.
class ProfiledSynthetic final : public ProfiledDecode {
 public:
  ProfiledSynthetic(const SyntheticOptions& settings, SelectionTrace trace);
  ~ProfiledSynthetic() override;

  Device& device() override { return decode_.device(); }
  KvMemory memory() const override { return memory_; }
  int64_t context() const override { return tokens_ + done_; }
  std::optional<SyntheticDevice::Predictions> predictions() const override {
    return decode_.predictions();
  }

 private:
  Taken run_step() override;

  const int64_t tokens_;
  SyntheticDecode decode_;
  KvMemory memory_;
  int64_t done_ = 0;
};

}  // namespace fasa
