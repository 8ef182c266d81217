// Folders made for one test, and safetensors files written by hand.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace fasa::llm_test {

// Removed with all in it.
class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "fasa-llm-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp: " + path_);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;  // removes its folder once
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

// `length`: what the file says of its header's bytes, the truth by default.
inline std::string safetensors_bytes(const std::string& header, const std::string& data,
                                     std::optional<uint64_t> length = std::nullopt) {
  const uint64_t said = length.value_or(header.size());
  std::string bytes(sizeof(said), '\0');
  std::memcpy(bytes.data(), &said, sizeof(said));
  return bytes + header + data;
}

}  // namespace fasa::llm_test
