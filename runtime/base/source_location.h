// The position of a call in the sources: std::source_location, which clang 14 lacks.
#pragma once

namespace fasa {

struct SourceLocation {
  const char* file;
  int line;
  // The caller's, as a default argument or member.
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace fasa
