#include "runtime/api/sequences/step_recorder.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fasa {
namespace {

void require_whole(const OpenStep& step, const StepSettings& settings) {
  if (step.went_through(settings)) return;
  throw UsageError(fmt::format(
      "run_layers: {} of {} layers appended and {} of {} attended; go through all of them",
      step.appended, settings.storing_layers(), step.attended, settings.layer_count()));
}

}  // namespace

// No key if the host takes part in the step: it measures it, samples it for a timeline, or decides
// something during it.
std::optional<StepKey> StepRecorder::key(StreamView stream, std::span<const uint64_t> shape) const {
  const StepContext& tables = streams_.step()->tables;
  const Device& device = engine_.device();
  if (!wanted_ || engine_.device().graphs() == nullptr || device.timeline() != nullptr) return {};
  if (!tables.plan.recordable || prefetch_.predictions_by_caller()) return {};
  StepKey key = {key_word(stream.native), static_cast<uint64_t>(tables.count()),
                 key_word(tables.on_device)};
  engine_.scratch().append_key(key);
  tables.plan.append_key(key);
  key.insert(key.end(), shape.begin(), shape.end());
  return key;
}

Graph StepRecorder::record_layers(StreamView stream, const std::function<void()>& layers,
                                  bool* attends) {
  OpenStep& step = *streams_.step();
  const auto forget = [&step] {
    step.recording = false;
    step.appended = step.attended = 0;
    step.enqueued = false;
  };
  step.recording = true;
  try {
    Graph graph = engine_.device().graphs()->record_graph(stream, engine_.executor().streams(),
                                                          "decode step", [&] {
                                                            layers();
                                                            require_whole(step, engine_.settings());
                                                          });
    *attends = step.attended > 0;
    forget();
    return graph;
  } catch (...) {
    forget();
    throw;
  }
}

// If the device refuses to record, the step has not failed: it runs without a graph.
void StepRecorder::record(StepGraphs::Entry& entry, StreamView stream,
                          const std::function<void()>& layers) {
  const auto refuse = [&](const Error& error) {
    entry.refused = true;
    if (std::exchange(refused_, true)) return;
    log_warning(fmt::format("steps run without CUDA graphs: {}", error.what()));
  };
  try {
    try {
      entry.graph = record_layers(stream, layers, &entry.attends);
    } catch (const BudgetError& error) {
      if (!memory_.reclaim_copies(MemorySpace::kDevice, error.asked_bytes())) throw;
      entry.graph = record_layers(stream, layers, &entry.attends);
    }
    ++metrics_.recorded;
  } catch (const DeviceError& error) {
    refuse(error);
  } catch (const BudgetError& error) {
    refuse(error);
  }
}

bool StepRecorder::launch(const StepGraphs::Entry& entry, StreamView stream) {
  if (!engine_.device().graphs()->launch_graph(entry.graph.view())) return false;
  const StepSettings& settings = engine_.settings();
  OpenStep& step = *streams_.step();
  step.launched = true;
  step.compute = stream;
  step.enqueued = true;
  step.appended = settings.storing_layers();
  step.attended = entry.attends ? settings.layer_count() : 0;
  for (int layer = 0; layer < step.appended; ++layer) {
    if (settings.access(layer) == RowAccess::kOverLink)
      engine_.counters().add_written_back(layer, step.tokens);
  }
  ++metrics_.launched;
  return true;
}

void StepRecorder::run(StreamView stream, std::span<const uint64_t> shape,
                       const std::function<void()>& layers) {
  const std::optional<StepKey> known = key(stream, shape);
  StepGraphs::Entry* const entry = known ? graphs_.find(*known) : nullptr;
  if (entry == nullptr) return layers();
  if (entry->graph && launch(*entry, stream)) return;
  if (!entry->refused) record(*entry, stream, layers);
  if (entry->refused || !launch(*entry, stream)) layers();
}

GraphMetrics StepRecorder::metrics() const {
  GraphMetrics metrics = metrics_;
  metrics.device_bytes = bytes();
  return metrics;
}

}  // namespace fasa
