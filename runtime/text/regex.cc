#include "runtime/text/regex.h"

#include <fmt/format.h>
#include <oniguruma.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

struct Newer {
  char32_t first, last;
  // A Unicode 8 code point with the same general category, script class (Han or not) and UTF-8
  // length, and not punctuation.
  char32_t older;
};

// Assigned in Unicode 15.0, 15.1 and 16.0 (and one mark whose category changed), ascending.
constexpr auto kNewer = std::to_array<Newer>({
    {0x897, 0x897, 0x941},       {0xcf3, 0xcf3, 0x903},       {0xece, 0xece, 0x941},
    {0x1b4e, 0x1b4f, 0x2e4f},    {0x1b7f, 0x1b7f, 0x2e4f},    {0x1c89, 0x1c89, 0x1e00},
    {0x1c8a, 0x1c8a, 0x1e01},    {0x2427, 0x2429, 0x2100},    {0x2ffc, 0x2fff, 0x2100},
    {0x31e4, 0x31e5, 0x2100},    {0x31ef, 0x31ef, 0x2100},    {0xa7cb, 0xa7cc, 0x1e00},
    {0xa7cd, 0xa7cd, 0x1e01},    {0xa7da, 0xa7da, 0x1e00},    {0xa7db, 0xa7db, 0x1e01},
    {0xa7dc, 0xa7dc, 0x1e00},    {0x105c0, 0x105f3, 0x10450}, {0x10d40, 0x10d49, 0x104a0},
    {0x10d4a, 0x10d4d, 0x10450}, {0x10d4e, 0x10d4e, 0x16b40}, {0x10d4f, 0x10d4f, 0x10450},
    {0x10d50, 0x10d65, 0x10400}, {0x10d69, 0x10d6d, 0x101fd}, {0x10d6e, 0x10d6e, 0x10ead},
    {0x10d6f, 0x10d6f, 0x16b40}, {0x10d70, 0x10d85, 0x10428}, {0x10d8e, 0x10d8f, 0x1d6c1},
    {0x10ec2, 0x10ec4, 0x10450}, {0x10efc, 0x10eff, 0x101fd}, {0x1123f, 0x11240, 0x10450},
    {0x11241, 0x11241, 0x101fd}, {0x11380, 0x11389, 0x10450}, {0x1138b, 0x1138b, 0x10450},
    {0x1138e, 0x1138e, 0x10450}, {0x11390, 0x113b5, 0x10450}, {0x113b7, 0x113b7, 0x10450},
    {0x113b8, 0x113ba, 0x11000}, {0x113bb, 0x113c0, 0x101fd}, {0x113c2, 0x113c2, 0x11000},
    {0x113c5, 0x113c5, 0x11000}, {0x113c7, 0x113ca, 0x11000}, {0x113cc, 0x113cd, 0x11000},
    {0x113ce, 0x113ce, 0x101fd}, {0x113cf, 0x113cf, 0x11000}, {0x113d0, 0x113d0, 0x101fd},
    {0x113d1, 0x113d1, 0x10450}, {0x113d2, 0x113d2, 0x101fd}, {0x113d3, 0x113d3, 0x10450},
    {0x113d4, 0x113d5, 0x1144b}, {0x113d7, 0x113d8, 0x1144b}, {0x113e1, 0x113e2, 0x101fd},
    {0x116d0, 0x116e3, 0x104a0}, {0x1171e, 0x1171e, 0x11000}, {0x11b00, 0x11b09, 0x1144b},
    {0x11bc0, 0x11be0, 0x10450}, {0x11be1, 0x11be1, 0x1144b}, {0x11bf0, 0x11bf9, 0x104a0},
    {0x11f00, 0x11f01, 0x101fd}, {0x11f02, 0x11f02, 0x10450}, {0x11f03, 0x11f03, 0x11000},
    {0x11f04, 0x11f10, 0x10450}, {0x11f12, 0x11f33, 0x10450}, {0x11f34, 0x11f35, 0x11000},
    {0x11f36, 0x11f3a, 0x101fd}, {0x11f3e, 0x11f3f, 0x11000}, {0x11f40, 0x11f40, 0x101fd},
    {0x11f41, 0x11f41, 0x11000}, {0x11f42, 0x11f42, 0x101fd}, {0x11f43, 0x11f4f, 0x1144b},
    {0x11f50, 0x11f59, 0x104a0}, {0x11f5a, 0x11f5a, 0x101fd}, {0x1342f, 0x1342f, 0x10450},
    {0x13439, 0x1343f, 0x110bd}, {0x13440, 0x13440, 0x101fd}, {0x13441, 0x13446, 0x10450},
    {0x13447, 0x13455, 0x101fd}, {0x13460, 0x143fa, 0x10450}, {0x16100, 0x1611d, 0x10450},
    {0x1611e, 0x16129, 0x101fd}, {0x1612a, 0x1612c, 0x11000}, {0x1612d, 0x1612f, 0x101fd},
    {0x16130, 0x16139, 0x104a0}, {0x16d40, 0x16d42, 0x16b40}, {0x16d43, 0x16d6a, 0x10450},
    {0x16d6b, 0x16d6c, 0x16b40}, {0x16d6d, 0x16d6f, 0x1144b}, {0x16d70, 0x16d79, 0x104a0},
    {0x18cff, 0x18cff, 0x10450}, {0x1b132, 0x1b132, 0x10450}, {0x1b155, 0x1b155, 0x10450},
    {0x1cc00, 0x1ccef, 0x10137}, {0x1ccf0, 0x1ccf9, 0x104a0}, {0x1cd00, 0x1ceb3, 0x10137},
    {0x1d2c0, 0x1d2d3, 0x10107}, {0x1df25, 0x1df2a, 0x10428}, {0x1e030, 0x1e06d, 0x16b40},
    {0x1e08f, 0x1e08f, 0x101fd}, {0x1e4d0, 0x1e4ea, 0x10450}, {0x1e4eb, 0x1e4eb, 0x16b40},
    {0x1e4ec, 0x1e4ef, 0x101fd}, {0x1e4f0, 0x1e4f9, 0x104a0}, {0x1e5d0, 0x1e5ed, 0x10450},
    {0x1e5ee, 0x1e5ef, 0x101fd}, {0x1e5f0, 0x1e5f0, 0x10450}, {0x1e5f1, 0x1e5fa, 0x104a0},
    {0x1e5ff, 0x1e5ff, 0x1144b}, {0x1f6dc, 0x1f6dc, 0x10137}, {0x1f774, 0x1f776, 0x10137},
    {0x1f77b, 0x1f77f, 0x10137}, {0x1f7d9, 0x1f7d9, 0x10137}, {0x1f8b2, 0x1f8bb, 0x10137},
    {0x1f8c0, 0x1f8c1, 0x10137}, {0x1fa75, 0x1fa77, 0x10137}, {0x1fa87, 0x1fa89, 0x10137},
    {0x1fa8f, 0x1fa8f, 0x10137}, {0x1faad, 0x1faaf, 0x10137}, {0x1fabb, 0x1fabf, 0x10137},
    {0x1fac6, 0x1fac6, 0x10137}, {0x1face, 0x1facf, 0x10137}, {0x1fada, 0x1fadc, 0x10137},
    {0x1fadf, 0x1fadf, 0x10137}, {0x1fae8, 0x1fae9, 0x10137}, {0x1faf7, 0x1faf8, 0x10137},
    {0x1fbcb, 0x1fbef, 0x10137}, {0x2b739, 0x2b739, 0x20000}, {0x2ebf0, 0x2ee5d, 0x20000},
    {0x31350, 0x323af, 0x20000},
});

const Newer* find_newer(char32_t code_point) {
  const auto after =
      std::upper_bound(kNewer.begin(), kNewer.end(), code_point,
                       [](char32_t value, const Newer& range) { return value < range.first; });
  if (after == kNewer.begin()) return nullptr;
  const Newer& range = *(after - 1);
  return code_point <= range.last ? &range : nullptr;
}

// Characters added by Unicode 15 and 16, which an older library does not know: replaces each one by
// an older one of the same general category, script class and number of bytes, so offsets stay the
// same; "" if the text has none.
std::string with_older_characters(std::string_view text) {
  constexpr char kFirstLead = '\xe0';  // all newer characters take at least three bytes
  std::string older;
  for (size_t at = 0; at < text.size(); ++at) {
    if (static_cast<unsigned char>(text[at]) < static_cast<unsigned char>(kFirstLead)) continue;
    const Newer* newer = find_newer(code_point_at(text, at));
    if (newer != nullptr) {
      if (older.empty()) older = text;
      std::string character;
      append_utf8(character, newer->older);
      older.replace(at, character.size(), character);
    }
    at += utf8_bytes(text[at]) - 1;
  }
  return older;
}

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
