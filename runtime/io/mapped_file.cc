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

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    throw InputError(fmt::format("{}: can't be opened: {}", path, std::strerror(errno)));
  }
  struct stat status = {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    throw InputError(fmt::format("{}: is no regular file", path));
  }
  size_ = static_cast<uint64_t>(status.st_size);
  void* mapping = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  const int reason = errno;
  close(file);
  if (mapping == MAP_FAILED) {
    throw InputError(fmt::format("{}: can't be mapped: {}", path, std::strerror(reason)));
  }
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fasa
