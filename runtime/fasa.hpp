// The public C++ interface: a tiered KV cache for many sequences, and attention over it.
//
//   Runtime (api/sequences/runtime.h)             fasa owns pages; callers have sequences and steps
//   PagedRuntime (api/pages/paged_runtime.h)      the caller owns page ids, as serving engines do
//   sparse_decode (api/stateless/sparse_decode.h) one decode step over plain tensors, no cache
#pragma once

#include "offload/open_device.h"
#include "runtime/api/pages/paged_runtime.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/api/stateless/sparse_decode.h"
#include "runtime/calibrate/fc_map.h"
