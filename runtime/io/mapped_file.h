// A file's bytes, mapped for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fasa {

// Neither copies nor moves: views point into the mapping.
class MappedFile {
 public:
  // Throws InputError where the path can't be opened or is no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;  // views point into the mapping
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  // Throws InputError where the file has been cut since: reading what is gone would be fatal.
  void require_whole() const;

 private:
  void close_all();
  std::string path_;
  int file_ = -1;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace fasa
