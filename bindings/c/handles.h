// The objects behind the handles. A runtime shares its device, so handles may be destroyed in any
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/c/fasa.h"
#include "runtime/api/pages/table_reader.h"
#include "runtime/fasa.hpp"

// NOLINTBEGIN(readability-identifier-naming): the C header's names.
struct fasa_config {
  fasa::Config config;
  std::string json;  // built on demand
};

struct fasa_device {
  std::shared_ptr<fasa::Device> device;
  std::string name;
};

struct fasa_stream {
  std::shared_ptr<fasa::Device> device;
  fasa::Stream own;  // ours, or the device's record of the caller's; none on the cpu device
  fasa::StreamView view;
};

struct fasa_fc_map {
  fasa::FcMap map;
  std::string path;
};

struct fasa_runtime {
  std::shared_ptr<fasa::Device> device;
  fasa::Stream stream;               // runs calls without a stream
  std::vector<fasa::Stream> failed;  // former values of `stream`; an open step may still use them
  uint64_t serial;                   // unique among the runtimes of this process
  fasa::Runtime runtime;
};

struct fasa_paged {
  std::shared_ptr<fasa::Device> device;
  fasa::Stream stream;
  fasa::PagedRuntime paged;
  fasa::TableReader tables{*device};
};
// NOLINTEND(readability-identifier-naming)
