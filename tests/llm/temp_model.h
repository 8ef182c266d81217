// Temporary folders for one test, and safetensors files assembled by hand.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace fasa::llm_test {

// A folder that is removed with its contents.
class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "fasa-llm-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp: " + path_);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;  // the destructor removes the folder
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  void copy_from(const std::string& folder) const {
    std::filesystem::copy(folder, path_, std::filesystem::copy_options::recursive);
  }

 private:
  std::string path_;
};

// `length`: the header length that the file states; the true one by default.
inline std::string safetensors_bytes(const std::string& header, const std::string& data,
                                     std::optional<uint64_t> length = std::nullopt) {
  const uint64_t said = length.value_or(header.size());
  std::string bytes(sizeof(said), '\0');
  std::memcpy(bytes.data(), &said, sizeof(said));
  return bytes + header + data;
}

}  // namespace fasa::llm_test
