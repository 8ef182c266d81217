// A read-only memory mapping of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fasa {

// Neither copyable nor movable: views point into the mapping.
class MappedFile {
 public:
  // Throws InputError if the path cannot be opened or is not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;  // views point into the mapping
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  // Throws InputError if the file was truncated: reading beyond its end would kill the process.
  void require_whole() const;

 private:
  void close_all();
  std::string path_;
  int file_ = -1;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace fasa
