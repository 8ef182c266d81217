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
#include <chrono>
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
constexpr FileRule kManifestFile = {.what = "session", .max_bytes = uint64_t{1} << 30};

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
        "sessions_dir {}: other users of this machine can read the folder; run chmod 700 on it",
        dir));
  }
}

void sync(const PageFile& file) {
  if (::fdatasync(file.get()) != 0) fail(file.path(), "write", errno);
}

template <typename Visit>
void for_each_place(const std::vector<StoredPage>& pages, const std::vector<StoredState>& states,
                    const Visit& visit) {
  for (const StoredPage& page : pages) visit(page.place);
  for (const StoredState& state : states) {
    for (const StoredPage& piece : state.pieces) visit(piece.place);
  }
}

// Parses the number at the beginning of a file name such as "12.rows".
std::optional<uint64_t> number_of(const fs::path& path, const char* suffix) {
  if (path.extension() != suffix) return std::nullopt;
  const std::string stem = path.stem().string();
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
  const bool whole = error == std::errc() && end == stem.data() + stem.size() && number > 0;
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

SessionStore::SessionStore(StoreOptions options)
    : options_(std::move(options)), format_{options_.page} {
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
      "sessions_dir {}: another process uses this folder; give each process its own folder",
      options_.dir));
}

// Lists the files, then reads them; removes what a killed process left incomplete.
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

void SessionStore::take_places(Stored& stored, SessionManifest& manifest, uint64_t places) {
  std::vector<bool> taken(static_cast<size_t>(places));
  for_each_place(manifest.pages, manifest.states,
                 [&](uint64_t place) { taken[static_cast<size_t>(place)] = true; });
  for (uint64_t place = 0; place < places; ++place) {
    if (!taken[static_cast<size_t>(place)]) stored.free.push_back(place);
  }
  stored.pages = std::move(manifest.pages);
  stored.states = std::move(manifest.states);
  stored.places = places;
}

void SessionStore::load(uint64_t session) {
  next_ = std::max(next_, session + 1);
  Stored& stored = stored_[session];
  try {
    struct stat status {};
    const bool has_rows = ::stat(path(session, kRows).c_str(), &status) == 0;
    const std::string bytes = read_file(path(session, kManifest), kManifestFile);
    SessionManifest manifest = decode_manifest(bytes, path(session, kManifest));
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    uint64_t places = 0;
    for_each_place(manifest.pages, manifest.states,
                   [&](uint64_t place) { places = std::max(places, place + 1); });
    if (!has_rows || places * manifest.page_bytes > file_bytes) {
      throw InputError(fmt::format(
          "{}: the file has {} bytes, but its manifest expects {}; the session will be recomputed",
          path(session, kRows), has_rows ? file_bytes : 0, places * manifest.page_bytes));
    }
    commits_ = std::max(commits_, manifest.written);
    stored.manifest_bytes = bytes.size();
    stored.foreign =
        manifest.fingerprint != options_.fingerprint || manifest.page_bytes != format_.page_bytes();
    stored.foreign_bytes = file_bytes;
    if (!stored.foreign) take_places(stored, manifest, places);
    stored.written = stored.committed = manifest.conversation.log.size();
    used_bytes_ += taken_by(stored);
    if (!stored.foreign) {
      FoundSession found{session, manifest.written, std::move(manifest.conversation),
                         static_cast<int64_t>(manifest.first_page)};
      for (const StoredState& state : stored.states) found.states.push_back(state.point.tokens);
      found_.push_back(std::move(found));
    }
  } catch (const InputError& error) {
    log_warning(error.what());
    remove(session);
  }
}

uint64_t SessionStore::create() {
  stored_[next_];
  return next_++;
}

void SessionStore::write(uint64_t session, int tokens, std::span<const std::byte> rows,
                         std::span<const std::byte> slices) {
  Stored& stored = stored_.at(session);
  const auto page = static_cast<size_t>(stored.written / kPageTokens);
  std::vector<std::byte> bytes(format_.page_bytes());
  std::copy(slices.begin(), slices.end(), bytes.begin());
  std::copy(rows.begin(), rows.end(), bytes.begin() + static_cast<ptrdiff_t>(format_.rows_begin()));
  for (size_t piece = 0; piece < format_.pieces(); ++piece) {
    const uint64_t checksum =
        XXH3_64bits(rows.data() + piece * PageFormat::kPiece, format_.piece_bytes(piece));
    std::memcpy(bytes.data() + format_.bytes.slices + piece * sizeof(checksum), &checksum,
                sizeof(checksum));
  }
  const bool again = page < stored.pages.size();
  const StoredPage written = put(session, stored, bytes, format_.header_bytes());
  if (again) {
    stored.replaced.push_back(stored.pages.back().place);
    stored.pages.back() = written;
  } else {
    stored.pages.push_back(written);
  }
  stored.written = static_cast<int64_t>(page) * kPageTokens + tokens;
}

// Writes a whole location; the checksum is that of the first `checked` bytes.
StoredPage SessionStore::put(uint64_t session, Stored& stored, std::span<const std::byte> bytes,
                             size_t checked) {
  const uint64_t place = stored.free.empty() ? stored.places : stored.free.back();
  write_at(path(session, kRows), bytes, place * format_.page_bytes());
  if (!stored.free.empty()) {
    stored.free.pop_back();
  } else {
    ++stored.places;
    used_bytes_ += format_.page_bytes();
  }
  return {place, XXH3_64bits(bytes.data(), checked)};
}

void SessionStore::write_at(const std::string& name, std::span<const std::byte> bytes,
                            uint64_t offset) const {
  constexpr size_t kPiece = size_t{1} << 20;
  changing();
  const PageFile file(name, O_WRONLY | O_CREAT);
  if (!file.open()) fail(name, "write", errno);
  for (size_t done = 0; done < bytes.size();) {
    changing();
    const size_t piece = std::min(kPiece, bytes.size() - done);
    const ssize_t count =
        ::pwrite(file.get(), bytes.data() + done, piece, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(name, "write", count < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(count);
  }
  // Starts writing while the next page is computed, so that commit() waits less.
  ::sync_file_range(file.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes.size()),
                    SYNC_FILE_RANGE_WRITE);
}

bool SessionStore::flush(uint64_t session, double seconds) {
  std::future<void>& flush = stored_.at(session).flush;
  if (!flush.valid()) {
    flush = std::async(std::launch::async,
                       [name = path(session, kRows)] { sync(PageFile(name, O_WRONLY)); });
  }
  const std::chrono::duration<double> most(std::min(seconds, 1e9));
  if (flush.wait_for(most) != std::future_status::ready) return false;
  flush.get();
  return true;
}

void SessionStore::commit(uint64_t session, const Conversation& conversation, int64_t first_page) {
  Stored& stored = stored_.at(session);
  changing();
  sync(PageFile(path(session, kRows), O_WRONLY | O_CREAT));
  changing();
  const std::string bytes = encode_manifest({.written = commits_ + 1,
                                             .fingerprint = options_.fingerprint,
                                             .page_bytes = format_.page_bytes(),
                                             .conversation = conversation,
                                             .first_page = static_cast<uint64_t>(first_page),
                                             .pages = stored.pages,
                                             .states = whole_states(stored)});
  write_file_atomically(path(session, kManifest), bytes);
  changing();
  const PageFile folder(options_.dir, O_RDONLY | O_DIRECTORY);
  if (folder.open()) ::fsync(folder.get());
  ++commits_;
  used_bytes_ += bytes.size() - stored.manifest_bytes;
  stored.manifest_bytes = bytes.size();
  stored.committed = stored.written;
  stored.free.insert(stored.free.end(), stored.replaced.begin(), stored.replaced.end());
  stored.replaced.clear();
}

int64_t SessionStore::written(uint64_t session) const {
  const auto found = stored_.find(session);
  return found == stored_.end() ? 0 : found->second.written;
}

int64_t SessionStore::committed(uint64_t session) const {
  const auto found = stored_.find(session);
  return found == stored_.end() ? 0 : found->second.committed;
}

std::shared_ptr<SuspendedPages> SessionStore::open(uint64_t session, int64_t pages, int64_t state,
                                                   ReadPool& pool) const {
  const auto found = stored_.find(session);
  auto file = std::make_unique<PageFile>(path(session, kRows), O_RDONLY);
  if (found == stored_.end() || pages > static_cast<int64_t>(found->second.pages.size()) ||
      !file->open()) {
    throw LostSession(
        session, fmt::format("{}: the file does not have {} readable pages", file->path(), pages));
  }
  const auto& all = found->second.pages;
  SuspendedPages::Content content{.pages = {all.begin(), all.begin() + pages}};
  if (state > 0) {
    const auto& states = found->second.states;
    const auto at = std::find_if(states.begin(), states.end(), [&](const StoredState& one) {
      return one.point.tokens == state && is_whole(one);
    });
    if (at == states.end()) {
      throw LostSession(session,
                        fmt::format("{}: the session has no state of layers with linear attention "
                                    "at {} tokens",
                                    file->path(), state));
    }
    content.state = *at;
  }
  return std::make_shared<SuspendedPages>(pool, session, std::move(file), format_,
                                          std::move(content));
}

// Removes the manifest first: rows without a manifest are ignored.
void SessionStore::remove(uint64_t session) noexcept {
  try {
    changing();
    ::unlink(path(session, kManifest).c_str());
    changing();
    ::unlink(path(session, kRows).c_str());
    const auto found = stored_.find(session);
    if (found == stored_.end()) return;
    used_bytes_ -= taken_by(found->second);
    stored_.erase(found);
  } catch (const std::exception&) {
    // Out of memory while building the path: the files stay until the next start.
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

uint64_t SessionStore::taken_by(const Stored& stored) const {
  return stored.manifest_bytes +
         (stored.foreign ? stored.foreign_bytes : stored.places * format_.page_bytes());
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
    salt = read_file(path, {.what = "salt", .max_bytes = size_t{4096}});
    if (salt.size() == kLength && salt.find_first_not_of(kDigits) == std::string::npos) return salt;
    log_warning(
        fmt::format("{}: the salt is invalid; a new one is used, so sessions stored by users with "
                    "API keys can no longer be resumed",
                    path));
  }
  std::random_device device;
  salt.clear();
  while (salt.size() < kLength) salt += kDigits[device() % kDigits.size()];
  write_file_atomically(path, salt);
  return salt;
}

}  // namespace fasa::serve
