// In-memory files and folders for readers that take paths; written anew for each input.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace fasa::testing {

class FuzzFolder {
 public:
  FuzzFolder() {
    const bool in_memory = std::filesystem::is_directory("/dev/shm");
    path_ = in_memory ? "/dev/shm/fasa-fuzz-XXXXXX"
                      : (std::filesystem::temp_directory_path() / "fasa-fuzz-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~FuzzFolder() { std::filesystem::remove_all(path_); }
  FuzzFolder(const FuzzFolder&) = delete;  // removes its folder once
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const void* data, size_t bytes) const {
    std::ofstream(file(name), std::ios::binary)
        .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    return file(name);
  }
  std::string write(const std::string& name, const std::string& text) const {
    return write(name, text.data(), text.size());
  }

 private:
  std::string path_;
};

}  // namespace fasa::testing
