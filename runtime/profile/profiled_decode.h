// A decode whose steps are recorded and profiled: synthetic, or a model's.
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

  // An unmeasured step: the first ones fill the hot rows and settle an automatic prefetch depth.
  // Returns the step's hit rate.
  double warm_up();
  // Runs one step and adds it to the profile. Throws what the decode throws.
  void step();

  const Profile& profile() const { return profile_; }
  // The last step's entries; streams by name.
  const std::vector<TimelineEntry>& last_step() const { return last_step_; }
  std::map<TimelineStream, std::string> streams() const { return timeline_.streams(); }
  // The last step in the format of runtime/trace/trace_file.h.
  std::string last_step_trace();
  uint64_t dropped() const { return dropped_; }  // entries lost because a step was too long

  virtual Device& device() = 0;
  virtual KvMemory memory() const = 0;
  virtual int64_t context() const = 0;  // tokens that the next step attends to, without its own

 protected:
  struct Taken {
    double seconds = 0;
    FetchMetrics fetch;
    std::vector<OverlapCount> overlap;
  };
  explicit ProfiledDecode(int layers) : profile_(layers) {}
  // Runs a step and waits for all of it.
  virtual Taken run_step() = 0;
  // Must run before the device is destroyed.
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

 private:
  Taken run_step() override;

  const int64_t tokens_;
  const int sequences_;
  SyntheticDecode decode_;
  KvMemory memory_;
  int64_t done_ = 0;
};

}  // namespace fasa
