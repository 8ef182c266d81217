#include "runtime/text/regex.h"

#include <fmt/format.h>
#include <oniguruma.h>
#include <time.h>

#include <mutex>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/newer_unicode.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr unsigned kMaxParseDepth = 250;
// Ten million backtracking steps per match is the default of the library and of Hugging Face. A
// search tries a match at each position. Real patterns backtrack less than once per byte.
constexpr unsigned long kMaxRetriesInMatch = 10'000'000;
constexpr unsigned long kMaxRetriesInSearch = 50'000'000;
// Entries of about 40 bytes; a run of blanks takes one each.
constexpr unsigned kMaxStack = 4 << 20;
// Time limits for patterns that are slow everywhere without exceeding the limit per match. Real
// patterns take 0.1 us per byte.
constexpr double kMaxSeconds = 4, kMaxSecondsPerByte = 4e-6;
constexpr unsigned kMatchesPerTimeCheck = 8;

std::string error_text(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info != nullptr ? onig_error_code_to_str(buffer, code, info)
                                     : onig_error_code_to_str(buffer, code);
  return {reinterpret_cast<const char*>(buffer), static_cast<size_t>(length)};
}

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

double seconds_for(std::string_view text) {
  return kMaxSeconds + static_cast<double>(text.size()) * kMaxSecondsPerByte;
}

// CPU time of this thread, so that load on the machine does not matter.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The library's syntax without features that no tokenizer uses: the absence operator, which the
// retry limit does not bound, and callouts.
OnigSyntaxType* initialized_syntax() {
  static OnigSyntaxType syntax;
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    onig_set_parse_depth_limit(kMaxParseDepth);
    onig_copy_syntax(&syntax, ONIG_SYNTAX_DEFAULT);
    constexpr unsigned kLeftOut = ONIG_SYN_OP2_QMARK_TILDE_ABSENT_GROUP |
                                  ONIG_SYN_OP2_QMARK_BRACE_CALLOUT_CONTENTS |
                                  ONIG_SYN_OP2_ASTERISK_CALLOUT_NAME;
    onig_set_syntax_op2(&syntax, onig_get_syntax_op2(&syntax) & ~kLeftOut);
  });
  return &syntax;
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* regex) const { onig_free(regex); }
void RegexSearch::FreeRegion::operator()(re_registers* region) const {
  onig_region_free(region, 1);
}
void RegexSearch::FreeLimits::operator()(OnigMatchParamStruct* limits) const {
  onig_free_match_param(limits);
}

Regex::Regex(std::string_view pattern, std::string where) : where_(std::move(where)) {
  if (pattern.size() > kMaxPatternBytes) {
    throw InputError(fmt::format("{}: the pattern has {} bytes; allowed: up to {}", where_,
                                 pattern.size(), kMaxPatternBytes));
  }
  OnigSyntaxType* syntax = initialized_syntax();
  regex_t* regex = nullptr;
  OnigErrorInfo info{};
  const OnigUChar* begin = bytes_of(pattern);
  const int code = onig_new(&regex, begin, begin + pattern.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, syntax, &info);
  if (code != ONIG_NORMAL) {
    throw InputError(fmt::format("{}: not a valid regular expression: {}; given: {}", where_,
                                 error_text(code, &info), cut_text(pattern, 200)));
  }
  regex_.reset(regex);
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex),
      older_(with_older_characters(text)),
      text_(older_.empty() ? text : older_),
      region_(onig_region_new()),
      limits_(onig_new_match_param()),
      deadline_(thread_seconds() + seconds_for(text)) {
  if (region_ == nullptr || limits_ == nullptr) throw std::bad_alloc();
  onig_initialize_match_param(limits_.get());
  onig_set_retry_limit_in_match_of_match_param(limits_.get(), kMaxRetriesInMatch);
  onig_set_retry_limit_in_search_of_match_param(limits_.get(), kMaxRetriesInSearch);
  onig_set_match_stack_limit_size_of_match_param(limits_.get(), kMaxStack);
  enter({0, text.size()});
}

RegexSearch::~RegexSearch() = default;

void RegexSearch::enter(Span stretch) {
  stretch_ = stretch;
  at_ = stretch.begin;
  last_end_.reset();
}

std::optional<Span> RegexSearch::next() {
  const OnigUChar* bytes = bytes_of(text_);
  while (at_ <= stretch_.end) {
    if (++matches_ % kMatchesPerTimeCheck == 0) check_time();
    const int found = onig_search_with_param(
        regex_.regex_.get(), bytes + stretch_.begin, bytes + stretch_.end, bytes + at_,
        bytes + stretch_.end, region_.get(), ONIG_OPTION_NONE, limits_.get());
    if (found == ONIG_MISMATCH) break;
    if (found < 0) fail(found);
    const Span match{stretch_.begin + static_cast<size_t>(region_->beg[0]),
                     stretch_.begin + static_cast<size_t>(region_->end[0])};
    if (match.size() != 0 || last_end_ != match.end) {
      at_ = match.end;
      last_end_ = match.end;
      return match;
    }
    at_ += at_ < stretch_.end ? utf8_bytes(text_[at_]) : 1;
  }
  at_ = stretch_.end + 1;
  return std::nullopt;
}

void RegexSearch::check_time() {
  if (thread_seconds() < deadline_) return;
  throw InputError(
      fmt::format("{}: matching this pattern takes longer than {:.0f} s on a text of {} bytes; use "
                  "a simpler pattern or a shorter text",
                  regex_.where_, seconds_for(text_), text_.size()));
}

void RegexSearch::fail(int code) const {
  throw InputError(
      fmt::format("{}: matching this pattern takes too many steps on the text ({}); allowed: {} "
                  "retries per match and {} per search",
                  regex_.where_, error_text(code), kMaxRetriesInMatch, kMaxRetriesInSearch));
}

}  // namespace fasa::text
