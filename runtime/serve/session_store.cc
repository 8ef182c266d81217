#include "runtime/serve/session_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/io/input_file.h"
#include "runtime/io/output_file.h"

namespace fasa::serve {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRows = ".rows";
constexpr const char* kManifest = ".session";
constexpr FileRule kManifestFile = {.what = "session", .most_bytes = uint64_t{1} << 30};

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw UsageError(fmt::format("cannot {} {}: {}", what, path, std::strerror(error)));
}

void make_folder(const std::string& dir) {
  std::error_code error;
  fs::create_directories(fs::path(dir).parent_path(), error);
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) fail(dir, "make the folder", errno);
  if (!fs::is_directory(dir, error)) fail(dir, "use as a folder", ENOTDIR);
  struct stat status {};
  if (::stat(dir.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw UsageError(fmt::format(
        "sessions_dir {}: others on this machine could read what is said; chmod 700 it", dir));
  }
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path) {
    file_ = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  }
  ~File() {
    if (file_ >= 0) ::close(file_);
  }
  File(const File&) = delete;  // closes once
  File& operator=(const File&) = delete;

  bool open() const { return file_ >= 0; }
  int get() const { return file_; }
  void sync() const {
    if (::fdatasync(file_) != 0) fail(path_, "write", errno);
  }

 private:
  const std::string path_;
  int file_ = -1;
};

// False: the file has fewer bytes, or can't be read.
bool read_all(int file, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t count = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return true;
}

// The number that a file's name begins with, "12.rows".
std::optional<uint64_t> number_of(const fs::path& path, const char* suffix) {
  if (path.extension() != suffix) return std::nullopt;
  const std::string stem = path.stem().string();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
  const bool whole = error == std::errc() && end == stem.data() + stem.size() && number > 0;
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

SessionStore::SessionStore(StoreOptions options) : options_(std::move(options)) {
  make_folder(options_.dir);
  lock_folder();
  try {
    scan();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

SessionStore::~SessionStore() { ::close(lock_); }

void SessionStore::lock_folder() {
  const std::string lock = (fs::path(options_.dir) / "lock").string();
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) fail(lock, "write", errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  throw UsageError(fmt::format(
      "sessions_dir {}: another process keeps its sessions there; allowed: a folder of one's own",
      options_.dir));
}

// Which files are there, then what they hold; what a killed process left half goes.
void SessionStore::scan() {
  std::vector<uint64_t> rows;
  std::error_code error;
  for (fs::directory_iterator entry(options_.dir, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const auto number = number_of(entry->path(), kManifest)) stored_[*number];
    if (const auto number = number_of(entry->path(), kRows)) rows.push_back(*number);
    if (entry->path().extension() == ".part") ::unlink(entry->path().c_str());
  }
  if (error) fail(options_.dir, "read", error.value());
  for (const uint64_t number : rows) {
    if (!stored_.contains(number)) ::unlink(path(number, kRows).c_str());
    next_ = std::max(next_, number + 1);
  }
  std::vector<uint64_t> numbers;
  for (const auto& [number, stored] : stored_) numbers.push_back(number);
  for (const uint64_t number : numbers) load(number);
  std::sort(found_.begin(), found_.end(),
            [](const auto& a, const auto& b) { return a.written < b.written; });
}

void SessionStore::load(uint64_t session) {
  next_ = std::max(next_, session + 1);
  Stored& stored = stored_[session];
  try {
    struct stat status {};
    const bool has_rows = ::stat(path(session, kRows).c_str(), &status) == 0;
    const std::string bytes = read_file(path(session, kManifest), kManifestFile);
    SessionManifest manifest = decode_manifest(bytes, path(session, kManifest));
    const auto tokens = static_cast<uint64_t>(manifest.conversation.log.size());
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    if (!has_rows || tokens * manifest.token_bytes > file_bytes) {
      throw InputError(fmt::format(
          "{}: it has {} bytes, and its manifest names {}; the session is "
          "computed again",
          path(session, kRows), has_rows ? file_bytes : 0, tokens * manifest.token_bytes));
    }
    commits_ = std::max(commits_, manifest.written);
    stored.manifest_bytes = bytes.size();
    stored.chunks = std::move(manifest.chunks);
    stored.written = stored.committed = manifest.conversation.log.size();
    stored.foreign = manifest.fingerprint != options_.fingerprint ||
                     manifest.token_bytes != options_.token_bytes;
    stored.foreign_bytes = file_bytes;
    used_bytes_ += bytes_of(stored);
    if (!stored.foreign)
      found_.push_back({session, manifest.written, std::move(manifest.conversation)});
  } catch (const InputError& error) {
    log_warning(error.what());
    remove(session);
  }
}

uint64_t SessionStore::create() {
  stored_[next_];
  return next_++;
}

void SessionStore::write(uint64_t session, int64_t tokens, std::span<const std::byte> rows) {
  constexpr size_t kPiece = size_t{1} << 20;
  Stored& stored = stored_.at(session);
  const std::string name = path(session, kRows);
  changing();
  const File file(name, O_WRONLY | O_CREAT);
  if (!file.open()) fail(name, "write", errno);
  const RowChunk chunk{
      .first = stored.written,
      .tokens = tokens,
      .offset = static_cast<uint64_t>(stored.written) * options_.token_bytes,
      .checksum = XXH3_64bits(rows.data(), rows.size()),
  };
  for (size_t done = 0; done < rows.size();) {
    changing();
    const size_t piece = std::min(kPiece, rows.size() - done);
    const ssize_t count =
        ::pwrite(file.get(), rows.data() + done, piece, static_cast<off_t>(chunk.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name, "write", count < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(count);
  }
  // On its way to the disk while the next is computed, so that commit() has little to wait for.
  ::sync_file_range(file.get(), static_cast<off_t>(chunk.offset), static_cast<off_t>(rows.size()),
                    SYNC_FILE_RANGE_WRITE);
  stored.chunks.push_back(chunk);
  stored.written += tokens;
  used_bytes_ += rows.size();
}

void SessionStore::commit(uint64_t session, const Conversation& conversation) {
  Stored& stored = stored_.at(session);
  changing();
  File(path(session, kRows), O_WRONLY | O_CREAT).sync();
  changing();
  const std::string bytes = encode_manifest({.written = commits_ + 1,
                                             .fingerprint = options_.fingerprint,
                                             .token_bytes = options_.token_bytes,
                                             .conversation = conversation,
                                             .chunks = stored.chunks});
  write_file_atomically(path(session, kManifest), bytes);
  changing();
  const File folder(options_.dir, O_RDONLY | O_DIRECTORY);
  if (folder.open()) ::fsync(folder.get());
  ++commits_;
  used_bytes_ += bytes.size() - stored.manifest_bytes;
  stored.manifest_bytes = bytes.size();
  stored.committed = stored.written;
}

int64_t SessionStore::written(uint64_t session) const {
  const auto found = stored_.find(session);
  return found == stored_.end() ? 0 : found->second.written;
}

int64_t SessionStore::committed(uint64_t session) const {
  const auto found = stored_.find(session);
  return found == stored_.end() ? 0 : found->second.committed;
}

RowChunk SessionStore::chunk_at(uint64_t session, int64_t token) const {
  const auto found = stored_.find(session);
  if (found == stored_.end() || token >= found->second.written) {
    throw InputError(fmt::format("token {} of session {} is not on disk", token, session));
  }
  const auto& chunks = found->second.chunks;
  return *std::prev(
      std::upper_bound(chunks.begin(), chunks.end(), token,
                       [](int64_t at, const RowChunk& chunk) { return at < chunk.first; }));
}

void SessionStore::read(uint64_t session, const RowChunk& chunk,
                        std::vector<std::byte>* rows) const {
  const std::string name = path(session, kRows);
  const File file(name, O_RDONLY);
  rows->resize(static_cast<size_t>(chunk.tokens) * options_.token_bytes);
  if (!file.open() || !read_all(file.get(), *rows, chunk.offset)) {
    throw InputError(fmt::format("{}: bytes {} to {} can't be read: {}", name, chunk.offset,
                                 chunk.offset + rows->size(), std::strerror(errno)));
  }
  // What comes next is read while this is put in its place.
  ::posix_fadvise(file.get(), static_cast<off_t>(chunk.offset + rows->size()),
                  static_cast<off_t>(rows->size()), POSIX_FADV_WILLNEED);
  if (XXH3_64bits(rows->data(), rows->size()) != chunk.checksum) {
    throw InputError(fmt::format("{}: tokens {} to {} are not what was written", name, chunk.first,
                                 chunk.first + chunk.tokens - 1));
  }
}

// The manifest first: rows without one are nobody's.
void SessionStore::remove(uint64_t session) noexcept {
  try {
    changing();
    ::unlink(path(session, kManifest).c_str());
    changing();
    ::unlink(path(session, kRows).c_str());
    const auto found = stored_.find(session);
    if (found == stored_.end()) return;
    used_bytes_ -= bytes_of(found->second);
    stored_.erase(found);
  } catch (const std::exception&) {
    // No memory for a path: the files stay until the next start.
  }
}

bool SessionStore::make_room(uint64_t bytes) {
  while (used_bytes() + bytes > options_.limit_bytes) {
    const auto foreign = std::find_if(stored_.begin(), stored_.end(),
                                      [](const auto& one) { return one.second.foreign; });
    if (foreign == stored_.end()) return false;
    remove(foreign->first);
  }
  return true;
}

uint64_t SessionStore::bytes_of(const Stored& stored) const {
  return stored.manifest_bytes +
         (stored.foreign ? stored.foreign_bytes
                         : static_cast<uint64_t>(stored.written) * options_.token_bytes);
}

std::string SessionStore::path(uint64_t session, const char* suffix) const {
  return (fs::path(options_.dir) / fmt::format("{}{}", session, suffix)).string();
}

void SessionStore::changing() const {
  if (options_.before_change) options_.before_change();
}

std::string store_salt(const std::string& dir) {
  constexpr std::string_view kDigits =
      "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLength = 16;
  make_folder(dir);
  const std::string path = (fs::path(dir) / "salt").string();
  std::string salt;
  std::error_code error;
  if (fs::exists(path, error)) {
    salt = read_file(path, {.what = "salt", .most_bytes = size_t{4096}});
    if (salt.size() == kLength && salt.find_first_not_of(kDigits) == std::string::npos) return salt;
    log_warning(fmt::format(
        "{}: no salt; a new one is drawn, and no API key finds its sessions again", path));
  }
  std::random_device device;
  salt.clear();
  while (salt.size() < kLength) salt += kDigits[device() % kDigits.size()];
  write_file_atomically(path, salt);
  return salt;
}

}  // namespace fasa::serve
