// Parallel reads of a file: disks need many outstanding reads for their full rate.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace fasa::serve {

struct CheckedRead {
  uint64_t offset = 0;  // in the file
  std::span<std::byte> to;
  size_t piece = 0;  // bytes per checksum; the last piece may be shorter
  const uint64_t* checksums = nullptr;
};

// One thread owns and calls a pool. Its own threads start with the first reads.
class ReadPool {
 public:
  static constexpr int kThreads = 64;

  ReadPool() = default;
  ~ReadPool();
  ReadPool(const ReadPool&) = delete;  // its threads refer to it
  ReadPool& operator=(const ReadPool&) = delete;

  // Waits for all. False: a read failed, or data does not match its checksum; other reads may then
  // be missing.
  bool read(int file, std::span<const CheckedRead> reads);
  uint64_t bytes_read() const { return bytes_read_; }  // so far

 private:
  void start();
  void work();
  void take_reads(std::unique_lock<std::mutex>& lock);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable work_ready_, done_;
  // Guarded by the mutex.
  bool ending_ = false;
  int file_ = -1;
  std::span<const CheckedRead> reads_;
  size_t next_ = 0;
  size_t under_way_ = 0;
  bool good_ = true;
  uint64_t bytes_read_ = 0;  // the owner's thread only
};

}  // namespace fasa::serve
