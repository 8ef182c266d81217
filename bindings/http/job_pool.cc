#include "bindings/http/job_pool.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace fasa::serve {

bool JobPool::add(std::function<void()> job) {
  size_t waiting = waiting_.load();
  do {
    if (waiting >= max_waiting_) return false;
  } while (!waiting_.compare_exchange_weak(waiting, waiting + 1));
  boost::asio::post(pool_, [this, job = std::move(job)] {
    --waiting_;
    job();
  });
  return true;
}

void JobPool::stop() {
  pool_.stop();
  pool_.join();
}

}  // namespace fasa::serve
