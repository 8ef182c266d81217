// Chooses the bodies that multiply packed weights by instruction set: tests run every target that
// the processor has in one process.
#pragma once

#include "kernels/cpu/model/packed_body_types.h"
#include "kernels/packed_format.h"
#include "kernels/target.h"

namespace fasa::cpu {

const PackedBodies& packed_bodies(Target target);

// What bodies are told of a format. `whole_numbers`: for activations in int8, a table is rounded to
// whole numbers of at most 127 units.
PackedShape packed_shape(const PackedFormat& format, const PackedPanel& panel, bool whole_numbers);

}  // namespace fasa::cpu
