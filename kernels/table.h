// The launchers of one kind of device. A launcher enqueues in stream order, allocates nothing and
// waits for nothing; on the cpu device the work is done on return.
#pragma once

#include "kernels/params.h"
#include "runtime/base/stream_view.h"

namespace fasa {

struct KernelTable {
  void (*append)(const AppendParams&, StreamView);
  void (*write_back)(const WriteBackParams&, StreamView);
  void (*restore)(const RestoreParams&, StreamView);
  void (*select)(const SelectParams&, StreamView);
  void (*resolve)(const ResolveParams&, StreamView);
  void (*speculate)(const SpeculateParams&, StreamView);
  void (*gather)(const GatherParams&, StreamView);
  void (*attend)(const AttendParams&, StreamView);
  void (*prefill)(const PrefillParams&, StreamView);
  void (*read_rows)(const ReadRowsParams&, StreamView) = nullptr;  // null: rows cannot be read back
  // Bytes of device memory that a select over `count` sequences works in; null: none. Contents
  // need not be kept, and what a smaller select works in fits into a larger one's.
  uint64_t (*select_scratch)(const CacheLayout&, int count, int set_capacity) = nullptr;
};

}  // namespace fasa
