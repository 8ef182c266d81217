// Regular expressions as in Hugging Face's tokenizers: Oniguruma syntax on UTF-8, with limits on
// time and memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct re_pattern_buffer;
struct re_registers;
struct OnigMatchParamStruct;

namespace fasa::text {

struct Span {
  size_t begin = 0, end = 0;  // bytes of a text
  size_t size() const { return end - begin; }
};

// Compiled once; thread-safe.
class Regex {
 public:
  // `where`: the pattern's location, for errors. Throws InputError for an invalid pattern and for
  // one that is too long or too deeply nested.
  Regex(std::string_view pattern, std::string where);
  const std::string& where() const { return where_; }

 private:
  friend class RegexSearch;
  struct Free {
    void operator()(re_pattern_buffer* regex) const;
  };
  std::string where_;
  std::unique_ptr<re_pattern_buffer, Free> regex_;
};

// Finds a pattern's matches in parts of one text. Not thread-safe.
class RegexSearch {
 public:
  // Both arguments must outlive the search. `text` must be valid UTF-8.
  RegexSearch(const Regex& regex, std::string_view text);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;  // owns the library's buffers
  RegexSearch& operator=(const RegexSearch&) = delete;

  // Restricts the search to `stretch`; the pattern sees its ends as the beginning and end of the
  // text.
  void enter(Span stretch);
  // The next match; an empty one is skipped where the previous match ended. Throws InputError if
  // the pattern exceeds its limit of steps, memory or time.
  std::optional<Span> next();

 private:
  struct FreeRegion {
    void operator()(re_registers* region) const;
  };
  struct FreeLimits {
    void operator()(OnigMatchParamStruct* limits) const;
  };
  void check_time();
  [[noreturn]] void fail(int code) const;

  const Regex& regex_;
  std::string older_;      // copy of the text without characters that the library does not know
  std::string_view text_;  // the searched text
  std::unique_ptr<re_registers, FreeRegion> region_;
  std::unique_ptr<OnigMatchParamStruct, FreeLimits> limits_;
  Span stretch_;
  size_t at_ = 0;
  std::optional<size_t> last_end_;
  double deadline_;  // on the thread's clock
  unsigned matches_ = 0;
};

}  // namespace fasa::text
