// The only place where exceptions become statuses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "bindings/c/fasa.h"
#include "runtime/base/error.h"

namespace fasa::c {

// The status of the exception being handled. Stores its message as the thread's last error.
fasa_status status_of_exception() noexcept;

template <typename Work>
fasa_status guarded(const Work& work) noexcept {
  try {
    work();
    return FASA_OK;
  } catch (...) {
    return status_of_exception();
  }
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw UsageError(fmt::format("{} is null", name));
  return *pointer;
}

// Checks for null only: an array may be misaligned or lie where host code cannot read.
inline void require_given(const void* array, const char* name) {
  if (array == nullptr) throw UsageError(fmt::format("{} is null", name));
}

// Size of the struct's first version: a struct that grows needs a specialisation with its first
// size.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<fasa_kv_memory> = offsetof(fasa_kv_memory, host_tables);

// Throws UsageError if `size` is no version of the struct.
template <typename T>
void require_struct_size(size_t size, const char* name) {
  constexpr size_t kFirst = kFirstSize<T>;
  if (size >= kFirst && size <= 4096) return;
  throw UsageError(fmt::format(
      "{}.struct_size = {}: allowed: at least {}; initialise the struct with its _INIT value", name,
      size, kFirst));
}

// Copies an options struct of any version; missing fields are 0. Throws UsageError if a newer
// version sets fields that this library does not know.
template <typename T>
T options_of(const T* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t size = required(given, name).struct_size;
  require_struct_size<T>(size, name);
  T options;
  std::memcpy(&options, given, sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw UsageError(
        fmt::format("{}: the caller was built for a newer version of fasa and sets fields that "
                    "this version ({}) does not have; update the library",
                    name, fasa_version()));
  }
  return options;
}

// Writes a results struct of any version; fields that it lacks are omitted.
template <typename T>
void give(const T& values, T* result, const char* name) {
  const size_t size = required(result, name).struct_size;
  require_struct_size<T>(size, name);
  std::memcpy(reinterpret_cast<char*>(result) + sizeof(size_t),
              reinterpret_cast<const char*>(&values) + sizeof(size_t),
              std::min(size, sizeof(T)) - sizeof(size_t));
}

}  // namespace fasa::c
