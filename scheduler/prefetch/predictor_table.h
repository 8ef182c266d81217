// The predictors by name. To add one: a class in a file of its own, with what every row of the
// table says, and a line in predictor_table.cc.
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

// What a predictor is made of. Device and source outlive it.
struct PredictorParts {
  Device& device;
  QuerySource* source = nullptr;  // null: nobody estimates queries
  int layers = 0;
};

std::optional<PredictorKind> find_predictor(std::string_view name);
std::string_view predictor_name(PredictorKind kind);
// All names, "auto, none, ...", and what each of them predicts: for help and errors.
const std::string& predictor_names();
const std::string& predictor_help();

// Whether it predicts by estimated queries, or would where there are some.
bool takes_queries(PredictorKind kind);
// Whether it can't predict without.
bool needs_queries(PredictorKind kind);
// How far ahead it predicts at most, in so many layers with a source that sees `source_depth` of
// them (0: without one), and whether by sets of its own.
PredictionScratch predictor_scratch(PredictorKind kind, int layers, int source_depth);
// One that predicts nothing where it needs queries and there are none.
std::unique_ptr<Predictor> make_predictor(PredictorKind kind, const PredictorParts& parts);

}  // namespace fasa
