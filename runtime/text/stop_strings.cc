#include "runtime/text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fasa::text {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) {
    if (string.empty()) throw UsageError("a stop string is empty; give at least one byte");
  }
}

size_t StopStrings::possible_beginning() const {
  size_t longest = 0;
  for (const std::string& string : strings_) {
    for (size_t size = std::min(string.size() - 1, held_.size()); size > longest; --size) {
      if (held_.ends_with(std::string_view(string).substr(0, size))) longest = size;
    }
  }
  return longest;
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return "";
  held_ += text;
  size_t begin = 0, end = std::string::npos;
  for (const std::string& string : strings_) {
    const size_t found = held_.find(string);
    if (found == std::string::npos || found + string.size() > end) continue;
    begin = found + string.size() < end ? found : std::min(begin, found);
    end = found + string.size();
  }
  if (end != std::string::npos) found_ = held_.substr(begin, end - begin);
  const size_t certain = stopped() ? begin : held_.size() - possible_beginning();
  std::string out = held_.substr(0, certain);
  held_.erase(0, stopped() ? held_.size() : certain);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace fasa::text
