// The files of a GGUF model: one, or all parts of one (NAME-00001-of-00003.gguf).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/io/mapped_file.h"
#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Whether `path` names a GGUF file, or a folder of GGUF files without a config.json.
bool is_gguf(const std::string& path);

// All files of the model at `path`, in order. `path`: a file, any part of a model, or a folder that
// holds one model; vision projectors (mmproj) in a folder are ignored. Whether parts exist is not
// checked. Throws InputError for a folder of several models, naming them.
std::vector<std::string> gguf_paths(const std::string& path);

enum class GgufScope : uint8_t { kKeys, kAll };

class GgufFiles {
 public:
  // `scope` kKeys: opens the first part alone, which has all keys. Throws InputError, also for
  // missing parts and for parts of different models.
  explicit GgufFiles(const std::string& path, GgufScope scope = GgufScope::kAll);

  // Keys of the first part, tensors of all.
  const GgufHeader& header() const { return *header_; }
  // Throws InputError if a file was truncated while it was open.
  void require_whole(const GgufTensor& tensor) const { files_[tensor.part]->require_whole(); }

 private:
  void add_parts(const std::vector<std::string>& paths);

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::unique_ptr<GgufHeader> header_;
};

}  // namespace fasa
