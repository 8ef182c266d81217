#include "runtime/io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace fasa {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // Opening a named pipe would wait for a writer.
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) {
    throw InputError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  }
  struct stat status = {};
  if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close_all();
    throw InputError(fmt::format("{}: not a regular file", path));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  void* mapping = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
  if (mapping == MAP_FAILED) {
    const int reason = errno;
    close_all();
    throw InputError(fmt::format("{}: cannot be mapped: {}", path, std::strerror(reason)));
  }
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() { close_all(); }

void MappedFile::close_all() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  close(file_);
}

void MappedFile::require_whole() const {
  struct stat status = {};
  if (fstat(file_, &status) == 0 && static_cast<uint64_t>(status.st_size) >= size_) return;
  throw InputError(
      fmt::format("{}: the file had {} bytes when it was opened and has {} now; do not change a "
                  "model's files while they are in use",
                  path_, size_, status.st_size));
}

}  // namespace fasa
