#include "runtime/io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/error.h"

namespace fasa {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw UsageError(fmt::format("cannot write {}: {}; {}", path, std::strerror(error),
                               full ? "free space, or give a path on another disk"
                                    : "give a path in an existing, writable folder"));
}

// A temporary file beside `path`, removed unless it was renamed.
class AsideFile {
 public:
  explicit AsideFile(const std::string& path) : path_(path) {
    struct stat info {};
    if (path.empty()) fail("''", ENOENT);
    if (::stat(path.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) fail(path, EISDIR);
      if (::access(path.c_str(), W_OK) != 0) fail(path, errno);
    }
    static std::atomic<unsigned> counter{0};
    name_ = fmt::format("{}.{}.{}.part", path, ::getpid(), counter++);
    file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail(path, errno);
  }
  ~AsideFile() {
    if (file_ >= 0) ::close(file_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  AsideFile(const AsideFile&) = delete;  // owns a file on disk
  AsideFile& operator=(const AsideFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(file_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(path_, count < 0 ? errno : EIO);
      text.remove_prefix(static_cast<size_t>(count));
    }
  }
  void commit() {
    const int error = ::fsync(file_) == 0 ? 0 : errno;
    const int closed = ::close(file_);
    file_ = -1;
    if (error != 0 || closed != 0) fail(path_, error != 0 ? error : errno);
    if (::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, errno);
    name_.clear();
  }

 private:
  std::string path_, name_;
  int file_ = -1;
};

// Devices and pipes are written in place: a rename would replace them.
bool is_special(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

}  // namespace

void check_writable(const std::string& path) {
  if (is_special(path)) {
    if (::access(path.c_str(), W_OK) != 0) fail(path, errno);
    return;
  }
  const AsideFile probe(path);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  if (is_special(path)) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) fail(path, errno);
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) fail(path, errno);
    return;
  }
  AsideFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace fasa
