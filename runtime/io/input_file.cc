#include "runtime/io/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/units.h"

namespace fasa {
namespace {

class Descriptor {
 public:
  // Opening a named pipe without a writer would block.
  explicit Descriptor(const std::string& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {}
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  Descriptor(const Descriptor&) = delete;  // closes the file
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

[[noreturn]] void fail(const std::string& path, const FileRule& rule, std::string_view why) {
  throw InputError(fmt::format("{}: the {} cannot be read: {}", path, rule.what, why));
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Anonymous pipes have their own file system.
bool is_shell_pipe(int file, mode_t mode) {
  struct statfs system = {};
  return S_ISFIFO(mode) && ::fstatfs(file, &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

void require_readable(const std::string& path, int file, const struct stat& status,
                      const FileRule& rule) {
  if (S_ISREG(status.st_mode)) {
    if (static_cast<uint64_t>(status.st_size) <= rule.max_bytes) return;
    fail(path, rule,
         fmt::format("it has {}; allowed: at most {}",
                     format_bytes(static_cast<uint64_t>(status.st_size)),
                     format_bytes(rule.max_bytes)));
  }
  const bool pipes = rule.pipes == FileRule::Pipes::kOfShell;
  if (is_shell_pipe(file, status.st_mode)) {
    if (!pipes) fail(path, rule, "it is a pipe; allowed: a regular file");
    ::fcntl(file, F_SETFL, O_RDONLY);  // from here on, reads wait for the pipe's writer
    return;
  }
  fail(path, rule,
       fmt::format("it is {}; allowed: a regular file{}", kind_of(status.st_mode),
                   pipes ? ", or a pipe made by the shell" : ""));
}

}  // namespace

std::string read_file(const std::string& path, const FileRule& rule) {
  const Descriptor file(path);
  if (file.get() < 0) fail(path, rule, std::strerror(errno));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail(path, rule, std::strerror(errno));
  require_readable(path, file.get(), status, rule);
  std::string bytes;
  size_t got = 0;
  // One byte more than the reported size: a file that grew is still read to its end, up to the
  // limit.
  size_t next = static_cast<size_t>(std::max<off_t>(status.st_size, 1 << 16)) + 1;
  while (true) {
    bytes.resize(got + next);
    const ssize_t count = ::read(file.get(), bytes.data() + got, next);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, rule, std::strerror(errno));
    got += static_cast<size_t>(count);
    if (got > rule.max_bytes) {
      fail(path, rule,
           fmt::format("it is too large; allowed: at most {}", format_bytes(rule.max_bytes)));
    }
    if (count == 0) break;
    next = std::min<size_t>(std::max<size_t>(got, 1 << 16), (1 << 20) + rule.max_bytes - got);
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace fasa
