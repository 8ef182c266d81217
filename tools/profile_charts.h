// Pictures of a profile as SVG, for the HTML report.
#pragma once

#include <string>

#include "runtime/profile/profiled_decode.h"

namespace fasa {

// Seconds since the start of the last step: its end, and the span of `layers` layers in its middle.
double step_end(const ProfiledDecode& decode);
TimeSpan middle_of_step(const ProfiledDecode& decode, int layers);
// One row per stream with work in the last step, within `shown`.
std::string streams_svg(const ProfiledDecode& decode, TimeSpan shown);
std::string cause_key();  // the legend of streams_svg's colours

std::string hit_rate_svg(const Profile& profile);
// For each layer one bar of compute and waits, and beside it one of transfers.
std::string layer_bars_svg(const Profile& profile);
std::string bar_key();

}  // namespace fasa
