// Chooses the bodies that multiply packed weights by instruction set: tests run every supported
// target in one process.
#pragma once

#include "kernels/cpu/model/packed_body_types.h"
#include "kernels/packed_format.h"
#include "kernels/target.h"

namespace fasa::cpu {

const PackedBodies& packed_bodies(Target target);

// Whether the values of codes are whole numbers of at most 127 units, or of 8 bits.
bool is_whole(const PackedFormat& format);

// A format as the bodies see it. `whole_numbers`: for rounded activations, a table is rounded to
// integers of at most 127 units.
PackedShape packed_shape(const PackedFormat& format, const PackedPanel& panel, bool whole_numbers);

}  // namespace fasa::cpu
