// Whole decode steps as graphs of the device.
#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/doors/runtime_impl.h"

namespace fasa {

// None where the host takes part in the step: it measures it, shows it on a timeline, or decides
// something on the way.
std::optional<StepKey> Runtime::Impl::graph_key(StreamView stream,
                                                std::span<const uint64_t> shape) const {
  const OpenStep& step = *step_;
  if (!graphs_wanted_ || device_.graphs() == nullptr || device_.timeline() != nullptr) return {};
  if (step.tables.any(StepMode::kPrefill) || step.tables.probe != nullptr) return {};
  if (prefetch_.guesses_by_caller()) return {};
  StepKey key = {key_word(stream.native), static_cast<uint64_t>(step.tables.count()),
                 key_word(step.tables.on_device)};
  scratch_.add_to_key(key);
  if (!pipeline_->add_to_key(step.tables, scratch_, key)) return {};
  key.insert(key.end(), shape.begin(), shape.end());
  return key;
}

void Runtime::Impl::require_whole_step() const {
  const int layers = geometry_.layers;
  if (step_->appended == layers && (step_->attended == 0 || step_->attended == layers)) return;
  throw UsageError(
      fmt::format("run_layers: {} appended and {} attended of {} layers; go through all of them",
                  step_->appended, step_->attended, layers));
}

Graph Runtime::Impl::record_layers(StreamView stream, const std::function<void()>& layers,
                                   bool* attends) {
  OpenStep& step = *step_;
  const auto forget = [&step] {
    step.recording = false;
    step.appended = step.attended = 0;
  };
  step.recording = true;
  try {
    Graph graph = device_.graphs()->record_graph(stream, pipeline_->streams(), "decode step", [&] {
      layers();
      require_whole_step();
    });
    *attends = step.attended > 0;
    forget();
    return graph;
  } catch (...) {
    forget();
    throw;
  }
}

// What the device has against it is no failure of the step: that runs as it is enqueued.
void Runtime::Impl::record_graph(StepGraphs::Entry& entry, StreamView stream,
                                 const std::function<void()>& layers) {
  const auto refuse = [&](const Error& error) {
    entry.refused = true;
    if (std::exchange(graphs_refused_, true)) return;
    log_warning(fmt::format("steps run without CUDA graphs: {}", error.what()));
  };
  try {
    try {
      entry.graph = record_layers(stream, layers, &entry.attends);
    } catch (const BudgetError& error) {
      if (!reclaim_copies(MemorySpace::kDevice, error.asked_bytes())) throw;
      entry.graph = record_layers(stream, layers, &entry.attends);
    }
    ++graph_metrics_.recorded;
  } catch (const DeviceError& error) {
    refuse(error);
  } catch (const BudgetError& error) {
    refuse(error);
  }
}

bool Runtime::Impl::launch_graph(const StepGraphs::Entry& entry, StreamView stream) {
  if (!device_.graphs()->launch_graph(entry.graph.view())) return false;
  OpenStep& step = *step_;
  step.launched = true;
  step.compute = stream;
  step.appended = geometry_.layers;
  step.attended = entry.attends ? geometry_.layers : 0;
  if (!settings_.rows_on_device) {
    for (int layer = 0; layer < geometry_.layers; ++layer) {
      counters_.add_written_back(layer, step.tokens);
    }
  }
  ++graph_metrics_.launched;
  return true;
}

void Runtime::Impl::run_layers(StreamView stream, std::span<const uint64_t> shape,
                               const std::function<void()>& layers) {
  if (!step_ || step_->appended > 0) {
    throw UsageError("run_layers: allowed once a step, between begin_step and the first append");
  }
  if (step_->failure) throw DeviceError(*step_->failure);
  const std::optional<StepKey> key = graph_key(stream, shape);
  StepGraphs::Entry* const entry = key ? graphs_.find(*key) : nullptr;
  if (entry == nullptr) return layers();
  if (entry->graph && launch_graph(*entry, stream)) return;
  if (!entry->refused) record_graph(*entry, stream, layers);
  if (entry->refused || !launch_graph(*entry, stream)) layers();
}

GraphMetrics Runtime::Impl::graph_metrics() const {
  GraphMetrics metrics = graph_metrics_;
  metrics.device_bytes = graphs_.bytes(device_);
  return metrics;
}

}  // namespace fasa
