// Pictures of an analysis as SVG, for the HTML report.
#pragma once

#include <string>

#include "runtime/lab/analyze/analysis.h"

namespace fasa {

// FC x query head, one block a layer, and the scale of its colours.
std::string agreement_heatmaps_svg(const Analysis& analysis);
std::string agreement_cdf_svg(const Analysis& analysis);
std::string compound_svg(const CompoundTable& table);
std::string fifths_svg(const FifthsTable& fifths);
std::string size_overlap_svg(const std::vector<double>& overlap);
// Distant attention that selections capture, by budget.
std::string selections_svg(const std::vector<SelectionAttention>& selections,
                           CapturedAttention SelectionAttention::*queries);
// Distant attention that slices keep of the oracle's, by bytes.
std::string slices_svg(const std::vector<SliceChoiceAttention>& slices, size_t kind);

}  // namespace fasa
