// Pictures of a profile as SVG, for the HTML report.
#pragma once

#include <string>

#include "runtime/profile/profiled_decode.h"

namespace fasa {

// Seconds from the begin of the decode's last step: its length, and `layers` layers in its middle.
double step_end(const ProfiledDecode& decode);
TimeSpan middle_of_step(const ProfiledDecode& decode, int layers);
// One lane per stream that did something in the last step, between two times of it.
std::string streams_svg(const ProfiledDecode& decode, TimeSpan shown);
std::string cause_key();  // what the lanes' colours mean

std::string hit_rate_svg(const Profile& profile);
// For each layer a bar of compute and waits, and beside it one of transfers.
std::string layer_bars_svg(const Profile& profile);
std::string bar_key();

}  // namespace fasa
