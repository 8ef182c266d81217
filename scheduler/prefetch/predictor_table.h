// The predictors by name. To add one, write a class in a file of its own with the static members
// listed in predictor.h, and add a line to predictor_table.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "offload/device.h"
#include "scheduler/prefetch/predictor.h"
#include "scheduler/prefetch/query_source.h"
#include "scheduler/prefetch_options.h"

namespace fasa {

// Arguments of a predictor's factory. Device and source outlive the predictor.
struct PredictorParts {
  Device& device;
  QuerySource* source = nullptr;  // null: no query source
  int layers = 0;
};

std::optional<PredictorKind> find_predictor(std::string_view name);
std::string_view predictor_name(PredictorKind kind);
// All names, "auto, none, ...", and a description of each, for help and errors.
const std::string& predictor_names();
const std::string& predictor_help();

// True if it requires a query source.
bool needs_queries(PredictorKind kind);
// Scratch that it needs: its maximum depth in a model of `layers` layers, with a query source that
// looks `source_depth` layers ahead (0: no source), and whether it writes sets.
PredictionScratch predictor_scratch(PredictorKind kind, int layers, int source_depth);
// Returns the none predictor if a required query source is missing.
std::unique_ptr<Predictor> make_predictor(PredictorKind kind, const PredictorParts& parts);

}  // namespace fasa
