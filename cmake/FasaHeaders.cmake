# Precompiled headers of libraries that most units use. They only save time: each unit includes what
# it uses, and the clang presets build without them. Units with flags of their own (those of an
# instruction set) set SKIP_PRECOMPILE_HEADERS.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/headers.cc "")
add_library(fasa_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/headers.cc)
target_link_libraries(fasa_headers PRIVATE fasa_flags fmt::fmt)
target_precompile_headers(fasa_headers PRIVATE
  <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem>
  <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
  <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)
if(FASA_TESTS)
  add_library(fasa_test_headers OBJECT ${CMAKE_CURRENT_BINARY_DIR}/headers.cc)
  target_link_libraries(fasa_test_headers PRIVATE fasa_flags fmt::fmt GTest::gtest GTest::gmock)
  get_target_property(shared_headers fasa_headers PRECOMPILE_HEADERS)
  target_precompile_headers(fasa_test_headers PRIVATE ${shared_headers} <gmock/gmock.h>
                                                      <gtest/gtest.h>)
endif()
