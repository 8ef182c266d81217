// Many reads of a file at a time: what a disk does one after the other takes it many times as long.
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
  size_t piece = 0;  // bytes that a checksum is of; the last piece may have fewer
  const uint64_t* checksums = nullptr;
};

// A pool's owner is one thread; the pool's own begin with the first reads.
class ReadPool {
 public:
  static constexpr int kThreads = 64;

  ReadPool() = default;
  ~ReadPool();
  ReadPool(const ReadPool&) = delete;  // its threads refer to it
  ReadPool& operator=(const ReadPool&) = delete;

  // Waits for all. False: something could not be read, or is not what its checksum says; the rest may
  // not have been read then.
  bool read(int file, std::span<const CheckedRead> reads);
  uint64_t bytes_read() const { return bytes_read_; }  // so far

 private:
  void start();
  void work();
  void take_reads(std::unique_lock<std::mutex>& lock);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable work_ready_, done_;
  // Under the mutex.
  bool ending_ = false;
  int file_ = -1;
  std::span<const CheckedRead> reads_;
  size_t next_ = 0;
  size_t under_way_ = 0;
  bool good_ = true;
  uint64_t bytes_read_ = 0;  // the owner's
};

}  // namespace fasa::serve
