// The public C++ interface: a KV cache in tiers for many sequences, and attention from it.
//
//   Runtime (doors/runtime.h)             fasa owns the pages; callers have sequences and steps
//   PagedRuntime (doors/paged_runtime.h)  the caller owns page ids, as serving engines do
//   sparse_decode (doors/sparse_decode.h) one decode step over plain tensors, nothing is kept
#pragma once

#include "offload/open_device.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/doors/paged_runtime.h"
#include "runtime/doors/runtime.h"
#include "runtime/doors/sparse_decode.h"
