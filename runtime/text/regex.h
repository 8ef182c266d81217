// Regular expressions as Hugging Face's tokenizers understand them: Oniguruma's syntax on UTF-8,
// with limits on what a pattern may cost.
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

// Compiled once, then read by any number of threads.
class Regex {
 public:
  // `where` names the pattern's place in its file. Throws InputError for what is no pattern, or is
  // longer or deeper than allowed.
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

// Finds a pattern's matches in one text, stretch by stretch. Of one thread.
class RegexSearch {
 public:
  // Both outlive the search. `text` is valid UTF-8.
  RegexSearch(const Regex& regex, std::string_view text);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;  // owns the library's buffers
  RegexSearch& operator=(const RegexSearch&) = delete;

  // From here on matches lie in `stretch`, whose ends are the pattern's beginning and end of text.
  void enter(Span stretch);
  // The next match behind the one before, empty ones only where none ended. Throws InputError when
  // the pattern takes more steps, memory or time than it may.
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
  std::string older_;      // the text, where it has characters that the library does not know
  std::string_view text_;  // the one that is searched
  std::unique_ptr<re_registers, FreeRegion> region_;
  std::unique_ptr<OnigMatchParamStruct, FreeLimits> limits_;
  Span stretch_;
  size_t at_ = 0;
  std::optional<size_t> last_end_;
  double deadline_;  // on the thread's clock
  unsigned matches_ = 0;
};

}  // namespace fasa::text
