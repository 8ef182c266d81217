// The objective of a tuner: the measured time per token under a config.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/catalog/model_shape.h"
#include "runtime/config/config.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/synthetic/synthetic_decode.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

// Thrown if the time runs out during a trial.
class TimeUp : public UsageError {
 public:
  using UsageError::UsageError;
};

class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double left() const { return seconds_ - elapsed(); }
  double seconds() const { return seconds_; }
  // Throws TimeUp.
  void check() const;

 private:
  double seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct TuneMeasurement {
  double tpot_seconds = 0;  // on the device's clock
  uint64_t decode_steps = 0;
  StepCounters rows;
  // With a timeline: the share of the transfers hidden behind computing, and the bytes a step that
  // were fetched ahead and not used.
  std::optional<double> hidden = {};
  std::optional<double> wasted_bytes = {};
  std::string note = {};  // for the reader
};

class TuneObjective {
 public:
  virtual ~TuneObjective() = default;
  // Throws BudgetError if the config does not fit, and TimeUp.
  virtual TuneMeasurement measure(const Config& config, const Deadline& deadline) = 0;
  virtual std::string model() const = 0;
  virtual int64_t tokens() const = 0;
};

// A geometry with the selections of a trace.
class SyntheticObjective final : public TuneObjective {
 public:
  struct Settings {
    ModelShape shape;
    int64_t tokens = 0;
    int weight_bits = 4;  // 0: attention alone
    int steps = 16;       // measured, after those that warm up
    uint64_t seed = 0;
  };
  // `config` describes the machine, including its memory limit.
  SyntheticObjective(Settings settings, const Config& config);
  TuneMeasurement measure(const Config& config, const Deadline& deadline) override;
  std::string model() const override { return settings_.shape.name; }
  int64_t tokens() const override { return settings_.tokens; }

  Settings settings_;
  std::optional<uint64_t> device_memory_;  // that the config gives
  SelectionTrace trace_;
};

// A model that continues a prompt.
class GenerationObjective final : public TuneObjective {
 public:
  // Throws UsageError, InputError, BudgetError.
  GenerationObjective(const std::string& dir, const std::string& prompt_file, int steps,
                      const Config& config);
  TuneMeasurement measure(const Config& config, const Deadline& deadline) override;
  std::string model() const override { return dir_; }
  int64_t tokens() const override { return static_cast<int64_t>(prompt_.size()); }
  Geometry geometry() const { return model_.config().geometry(); }

  std::string dir_;
  int steps_;
  std::unique_ptr<Device> device_;
  std::vector<int32_t> prompt_;
  Model model_;
  std::vector<int16_t> dims_;
};

}  // namespace fasa
