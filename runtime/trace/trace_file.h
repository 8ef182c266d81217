// Writes a device's timeline as a file for ui.perfetto.dev and chrome://tracing: the Trace Event
// Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (JSON
// object form; times in microseconds on the device's clock).
#pragma once

#include <string>

#include "offload/device.h"
#include "offload/timeline/timeline.h"

namespace fasa {

struct TraceSource {
  std::string device;
  bool virtual_clock = false;
};

// One track per stream, with complete events ("X") for its operations and for its idle times; args
// hold layer, cause, bytes, link time, and what was waited for. A first track has a span for each
// step and, in it, for each layer. An arrow goes from a fetch of rows to the work that waited for
// it. Counters ("C"): bytes in flight
// over the link by direction, hit rate by decode step, device memory in use. Events are sorted by
// time.
std::string trace_json(const Timeline& timeline, const TraceSource& source);

// Records a device from construction to destruction; the device must outlive it.
class DeviceTrace {
 public:
  explicit DeviceTrace(Device& device);
  ~DeviceTrace();
  DeviceTrace(const DeviceTrace&) = delete;  // the device refers to its timeline
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  const Timeline& timeline() const { return timeline_; }
  // Writes the work done by synchronized streams so far. Throws UsageError if the file cannot be
  // written and leaves an old file unchanged (check_writable() finds a bad path before the work).
  // Warns if the run was too long to be recorded completely.
  void write(const std::string& path) const;

 private:
  Device& device_;
  Timeline timeline_;
};

}  // namespace fasa
