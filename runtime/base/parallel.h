// Loops over oneTBB's threads. The library is not instrumented for the thread sanitizer, so this
// file announces what it passes between threads; only parallel.cc calls it.
#pragma once

#include <oneapi/tbb/task_arena.h>

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace fasa {

enum class Split : uint8_t {
  kAuto,    // blocks as large as an even load allows
  kFinest,  // blocks of `grain`, for work of uneven length
};

namespace parallel_detail {

// A non-owning callable of (begin, end); the callable must outlive the call.
struct BlockBody {
  void (*call)(const void* body, int64_t begin, int64_t end);
  const void* body;
};
void run_blocks(int64_t first, int64_t last, int64_t grain, Split split, BlockBody body);
void run_in(tbb::task_arena& arena, BlockBody body);  // body(0, 1)

// Work before a give() of any thread happens before work after a take(). A no-op in builds without
// the thread sanitizer.
class HandOver {
 public:
#if defined(__SANITIZE_THREAD__)
  void give() const { __tsan_release(const_cast<char*>(&place_)); }
  void take() const { __tsan_acquire(const_cast<char*>(&place_)); }

 private:
  char place_ = 0;  // an address of its own
#else
  void give() const {}
  void take() const {}
#endif
};

// Work that other threads may run for the thread that created it, which waits for them.
template <typename Body>
class SharedWork {
 public:
  explicit SharedWork(const Body& body) : body_(body) { start_.give(); }
  ~SharedWork() { end_.take(); }
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  BlockBody part() const {
    return {[](const void* work, int64_t begin, int64_t end) {
              const auto& shared = *static_cast<const SharedWork*>(work);
              shared.start_.take();
              const Giver done{shared.end_};
              shared.body_(begin, end);
            },
            this};
  }

 private:
  struct Giver {  // after an exception too
    const HandOver& end;
    ~Giver() { end.give(); }
  };
  const Body& body_;
  HandOver start_;
  HandOver end_;
};

}  // namespace parallel_detail

// Runs body(begin, end) over blocks that cover [first, last), none shorter than about half of
// `grain`. Rethrows an exception of a body once all blocks are done.
template <typename Index, typename Body>
void parallel_blocks(Index first, Index last, Index grain, const Body& body,
                     Split split = Split::kAuto) {
  const auto block = [&](int64_t begin, int64_t end) {
    body(static_cast<Index>(begin), static_cast<Index>(end));
  };
  const parallel_detail::SharedWork work(block);
  parallel_detail::run_blocks(static_cast<int64_t>(first), static_cast<int64_t>(last),
                              static_cast<int64_t>(grain), split, work.part());
}

// Runs body(i) for every i in [first, last); otherwise as parallel_blocks.
template <typename Index, typename Body>
void parallel_for(Index first, Index last, const Body& body) {
  parallel_blocks(first, last, Index{1}, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) body(i);
  });
}

// Runs body() in the arena, on this thread or, where the arena is full, on one of its own.
template <typename Body>
void execute_in(tbb::task_arena& arena, const Body& body) {
  const auto once = [&](int64_t, int64_t) { body(); };
  const parallel_detail::SharedWork work(once);
  parallel_detail::run_in(arena, work.part());
}

}  // namespace fasa
