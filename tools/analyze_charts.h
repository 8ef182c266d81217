// Pictures of an analysis as SVG, for the HTML report.
#pragma once

#include <string>

#include "runtime/lab/analyze/analysis.h"

namespace fasa {

// FC x query head, one block per layer, with the colour scale.
std::string agreement_heatmaps_svg(const Analysis& analysis);
std::string agreement_cdf_svg(const Analysis& analysis);
std::string compound_svg(const CompoundTable& table);
std::string fifths_svg(const FifthsTable& fifths);
std::string size_overlap_svg(const std::vector<double>& overlap);
// Distant attention captured by each selection, against the budget.
std::string selections_svg(const std::vector<SelectionAttention>& selections,
                           CapturedAttention SelectionAttention::*queries);
// Distant attention kept by each slice format, relative to the oracle's, against bytes.
std::string slices_svg(const std::vector<SliceChoiceAttention>& slices, size_t kind);

}  // namespace fasa
