// From exceptions to statuses: the one place where they turn.
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

// Of the exception that is being handled; its text becomes the thread's last error.
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

// Of an array, which may be misaligned or lie where host code cannot look.
inline void require_given(const void* array, const char* name) {
  if (array == nullptr) throw UsageError(fmt::format("{} is null", name));
}

// Of a struct's first version: one that grew has its smaller size here.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);
template <>
inline constexpr size_t kFirstSize<fasa_kv_memory> = offsetof(fasa_kv_memory, host_tables);

// Throws UsageError where `size` is no struct's of any version.
template <typename T>
void require_struct_size(size_t size, const char* name) {
  constexpr size_t kFirst = kFirstSize<T>;
  if (size >= kFirst && size <= 4096) return;
  throw UsageError(
      fmt::format("{}.struct_size = {}: allowed: at least {}; begin from the struct's _INIT value",
                  name, size, kFirst));
}

// A struct with options, of whatever version: what it lacks is 0. Throws UsageError where a newer
// one asks for what this library does not know.
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
    throw UsageError(fmt::format(
        "{}: the caller was built for a newer fasa and sets what this one ({}) does not know", name,
        fasa_version()));
  }
  return options;
}

// A struct with results, of whatever version: what it has no room for is left out.
template <typename T>
void give(const T& values, T* result, const char* name) {
  const size_t size = required(result, name).struct_size;
  require_struct_size<T>(size, name);
  std::memcpy(reinterpret_cast<char*>(result) + sizeof(size_t),
              reinterpret_cast<const char*>(&values) + sizeof(size_t),
              std::min(size, sizeof(T)) - sizeof(size_t));
}

}  // namespace fasa::c
