// For wheels: what the static libraries of GCC 12 and libcrypt ask of glibc 2.36, so that systems
// with glibc 2.34 can load them.
#include <sys/random.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

extern "C" {

void arc4random_buf(void* bytes, size_t count) noexcept {
  for (size_t done = 0; done < count;) {
    const ssize_t more = ::getrandom(static_cast<char*>(bytes) + done, count - done, 0);
    if (more > 0) done += static_cast<size_t>(more);
  }
}

uint32_t arc4random() noexcept {
  uint32_t value = 0;
  arc4random_buf(&value, sizeof(value));
  return value;
}

}  // extern "C"
