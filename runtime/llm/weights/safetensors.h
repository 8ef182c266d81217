// Memory-mapped readers of safetensors: a single file, and a model's folder with one or more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/io/mapped_file.h"
#include "runtime/llm/weights/raw_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// Location of a tensor in its file, from the header.
struct SafetensorsEntry {
  std::string dtype;  // as written: F32, F16, BF16, I64, ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of the data, in bytes after the header
  uint64_t end = 0;
};

// Reads and checks the header in the first bytes of a file of `file_bytes` bytes. Throws InputError
// for a header that is truncated, too large or not JSON, and for tensors whose offsets are outside
// the file, overlap, leave gaps, or do not match dtype and shape. Sets `data_begin` to the end of
// the header.
std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::span<const std::byte> bytes,
                                                                 uint64_t file_bytes,
                                                                 const std::string& name,
                                                                 uint64_t* data_begin);

// Owns a mapping of one file; neither copyable nor movable, because views point into it. The file
// must not shrink while it is mapped: reading a truncated page ends the process with SIGBUS, which
// a library cannot turn into an error. view() checks the size again and throws for a file truncated
// before the call. To replace a model's files, rename new ones over them.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  // Throws InputError if the dtype is not F32, F16 or BF16, or if the file was truncated.
  WeightView view(const std::string& name) const;
  RawTensor raw(const std::string& name) const;  // of any dtype

 private:
  std::string path_;
  MappedFile file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

// All tensors of a folder: the shards of model.safetensors.index.json, or model.safetensors if
// there is no index or one of its files is missing.
class WeightFiles final : public WeightSource {
 public:
  explicit WeightFiles(const std::string& dir);

  bool has(const std::string& name) const override;
  std::vector<std::string> names() const override;
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return source_; }
  RawTensor raw(const std::string& name) const;  // the folder must have it

 private:
  // `shards`: tensor -> name of its file, of the index.
  void open_shards(const std::string& dir, const std::map<std::string, std::string>& shards);
  std::string source_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> owner_;
};

}  // namespace fasa
