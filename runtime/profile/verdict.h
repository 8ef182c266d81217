// A profile in two sentences.
#pragma once

#include <string>

#include "runtime/profile/profile.h"

namespace fasa {

// "Transfers are 91 % hidden; waits for rows cost 0.047 of 5.370 ms (0.9 %). Most of the step is
// scoring (61 %)." Times are a step's.
std::string verdict(const Profile& profile);

}  // namespace fasa
