// Memory-mapped readers of safetensors: one file, and a model's folder of one or many.
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

// Where a tensor lies in its file, as the header says.
struct SafetensorsEntry {
  std::string dtype;  // as written: F32, F16, BF16, I64, ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of the data that follows the header, bytes
  uint64_t end = 0;
};

// Reads and checks the header in the first bytes of a file of `file_bytes` bytes. Throws InputError
// for a header that is cut off, too large or no JSON, and for tensors whose offsets lie outside the
// file, overlap, leave holes, or don't match dtype and shape. `data_begin` is set to the header's
// end.
std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::span<const std::byte> bytes,
                                                                 uint64_t file_bytes,
                                                                 const std::string& name,
                                                                 uint64_t* data_begin);

// Owns a mapping of one file; not copyable or movable, because views point into it. The file must
// keep its bytes that long: reading a page that was truncated away ends the process with SIGBUS,
// which a library cannot turn into an error. view() checks the size again, so a file truncated
// before that is an error. To replace a model's files, rename new ones over them.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  // Throws InputError where the dtype is none of F32, F16, BF16, and where the file has been cut.
  WeightView view(const std::string& name) const;
  RawTensor raw(const std::string& name) const;  // of any dtype

 private:
  std::string path_;
  MappedFile file_;
  uint64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

// All tensors of a folder: model.safetensors, or the shards of model.safetensors.index.json.
class WeightFiles final : public WeightSource {
 public:
  explicit WeightFiles(const std::string& dir);

  bool has(const std::string& name) const override;
  std::vector<std::string> names() const override;
  WeightView require(const std::string& name, std::span<const int64_t> shape) const override;
  const std::string& source() const override { return source_; }
  RawTensor raw(const std::string& name) const;  // that the folder has

 private:
  void load_shards(const std::string& dir, const std::string& index);
  std::string source_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> owner_;
};

}  // namespace fasa
