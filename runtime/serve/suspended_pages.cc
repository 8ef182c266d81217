#include "runtime/serve/suspended_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace fasa::serve {
namespace {

// Neighbouring pieces are merged into one read up to this size: with 64 reads outstanding, disks
// then reach their full rate.
constexpr size_t kMaxAtATime = size_t{256} << 10;

}  // namespace

PageFile::PageFile(std::string path, int flags) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0600);
}

PageFile::~PageFile() {
  if (file_ >= 0) ::close(file_);
}

SuspendedPages::SuspendedPages(ReadPool& pool, uint64_t session, std::unique_ptr<PageFile> file,
                               const PageFormat& format, Content content)
    : pool_(pool),
      session_(session),
      file_(std::move(file)),
      format_(format),
      pages_(std::move(content.pages)),
      state_(std::move(content.state)),
      checksums_(pages_.size() * format.pieces()),
      present_(pages_.size() * format.pieces()) {
  // Disables read-ahead: bytes beside a piece are not needed.
  ::posix_fadvise(file_->get(), 0, 0, POSIX_FADV_RANDOM);
}

void SuspendedPages::read_added() {
  if (!lost_ && pool_.read(file_->get(), reads_)) return;
  lost_ = true;
  throw LostSession(session_,
                    fmt::format("{}: the content is not what was written", file_->path()));
}

void SuspendedPages::read_page_headers(int64_t first, std::span<std::byte> page_headers) {
  reads_.clear();
  const size_t bytes = format_.header_bytes();
  for (size_t at = 0; at < page_headers.size(); at += bytes) {
    const int64_t page = first + static_cast<int64_t>(at / bytes);
    reads_.push_back({.offset = offset_of(page),
                      .to = page_headers.subspan(at, bytes),
                      .piece = bytes,
                      .checksums = &pages_[static_cast<size_t>(page)].checksum});
  }
  read_added();
  for (size_t at = 0; at < page_headers.size(); at += bytes) {
    const size_t page = static_cast<size_t>(first) + at / bytes;
    std::memcpy(&checksums_[page * format_.pieces()],
                page_headers.data() + at + format_.bytes.slices,
                format_.pieces() * sizeof(uint64_t));
  }
}

// Adds a piece of a page's rows; merges it with the one before if they are neighbours.
void SuspendedPages::add(int64_t page, size_t piece, std::byte* block) {
  const size_t index = static_cast<size_t>(page) * format_.pieces() + piece;
  const size_t bytes = format_.piece_bytes(piece);
  const uint64_t offset =
      offset_of(page) + format_.rows_begin() + uint64_t{piece} * PageFormat::kPiece;
  std::byte* const to = block + piece * PageFormat::kPiece;
  if (!reads_.empty()) {
    CheckedRead& last = reads_.back();
    const bool follows = last.offset + last.to.size() == offset &&
                         last.to.data() + last.to.size() == to && piece > 0;
    if (follows && last.to.size() < kMaxAtATime) {
      last.to = {last.to.data(), last.to.size() + bytes};
      return;
    }
  }
  reads_.push_back({.offset = offset,
                    .to = {to, bytes},
                    .piece = PageFormat::kPiece,
                    .checksums = &checksums_[index]});
}

void SuspendedPages::read_rows(int64_t first, std::span<std::byte> rows) {
  reads_.clear();
  for (size_t at = 0; at < rows.size(); at += format_.bytes.rows) {
    const int64_t page = first + static_cast<int64_t>(at / format_.bytes.rows);
    for (size_t piece = 0; piece < format_.pieces(); ++piece) add(page, piece, rows.data() + at);
  }
  read_added();
}

void SuspendedPages::read_state(size_t first, std::span<std::byte> bytes) {
  reads_.clear();
  const size_t piece = format_.page_bytes();
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const StoredPage& stored = state_.pieces[first + at / piece];
    reads_.push_back({.offset = stored.place * piece,
                      .to = bytes.subspan(at, std::min(piece, bytes.size() - at)),
                      .piece = piece,
                      .checksums = &stored.checksum});
  }
  read_added();
}

void SuspendedPages::has_until(int64_t page) {
  complete_ = std::max(complete_, page);
  std::fill_n(present_.begin(), static_cast<size_t>(complete_) * format_.pieces(), true);
}

void SuspendedPages::load(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) {
  reads_.clear();
  for (const RowBytes& part : wanted) {
    if (part.page < complete_) continue;
    const size_t begin = static_cast<size_t>(part.page) * format_.pieces();
    const size_t last = static_cast<size_t>(part.offset + part.bytes - 1) / PageFormat::kPiece;
    for (size_t piece = static_cast<size_t>(part.offset) / PageFormat::kPiece; piece <= last;
         ++piece) {
      if (present_[begin + piece]) continue;
      present_[begin + piece] = true;  // or all is lost
      add(part.page, piece, blocks[static_cast<size_t>(part.page)]);
    }
  }
  read_added();
}

bool SuspendedPages::load_more(int64_t pages, size_t max_bytes,
                               std::span<std::byte* const> blocks) {
  reads_.clear();
  size_t bytes = 0;
  for (; complete_ < pages && bytes < max_bytes; ++complete_) {
    const size_t begin = static_cast<size_t>(complete_) * format_.pieces();
    for (size_t piece = 0; piece < format_.pieces(); ++piece) {
      if (present_[begin + piece]) continue;
      present_[begin + piece] = true;
      bytes += format_.piece_bytes(piece);
      add(complete_, piece, blocks[static_cast<size_t>(complete_)]);
    }
  }
  read_added();
  return complete_ >= pages;
}

}  // namespace fasa::serve
