#include "runtime/serve/read_pool.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace fasa::serve {
namespace {

bool read_whole(int file, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return true;
}

bool is_written(const CheckedRead& read) {
  const uint64_t* checksum = read.checksums;
  for (size_t at = 0; at < read.to.size(); at += read.piece) {
    const size_t bytes = std::min(read.piece, read.to.size() - at);
    if (XXH3_64bits(read.to.data() + at, bytes) != *checksum++) return false;
  }
  return true;
}

}  // namespace

ReadPool::~ReadPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Starts as many threads as the system allows; the owner's thread reads too.
void ReadPool::start() {
  threads_.reserve(kThreads);
  try {
    while (threads_.size() < kThreads) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    return;
  }
}

bool ReadPool::read(int file, std::span<const CheckedRead> reads) {
  if (reads.empty()) return true;
  if (threads_.empty() && reads.size() > 1) start();
  for (const CheckedRead& read : reads) bytes_read_ += read.to.size();
  std::unique_lock lock(mutex_);
  file_ = file;
  reads_ = reads;
  next_ = 0;
  good_ = true;
  const size_t helpers = std::min(threads_.size(), reads.size() - 1);
  for (size_t i = 0; i < helpers; ++i) work_ready_.notify_one();
  take_reads(lock);
  done_.wait(lock, [this] { return under_way_ == 0; });
  reads_ = {};
  return good_;
}

void ReadPool::take_reads(std::unique_lock<std::mutex>& lock) {
  while (next_ < reads_.size()) {
    const CheckedRead read = reads_[next_++];
    const int file = file_;
    ++under_way_;
    lock.unlock();
    const bool good = read_whole(file, read.offset, read.to) && is_written(read);
    lock.lock();
    --under_way_;
    if (good) continue;
    good_ = false;
    next_ = reads_.size();
  }
}

void ReadPool::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    work_ready_.wait(lock, [this] { return ending_ || next_ < reads_.size(); });
    take_reads(lock);
    if (under_way_ == 0) done_.notify_one();
  }
}

}  // namespace fasa::serve
