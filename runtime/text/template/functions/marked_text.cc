#include "runtime/text/template/functions/marked_text.h"

#include <algorithm>

namespace fasa::jinja {
namespace {

// The run that contains `offset`.
std::vector<MarkedText::Run>::const_iterator run_at(const std::vector<MarkedText::Run>& runs,
                                                    size_t offset) {
  return std::upper_bound(runs.begin(), runs.end(), offset,
                          [](size_t at, const MarkedText::Run& run) { return at < run.end; });
}

}  // namespace

void MarkedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
  const std::string_view bytes = other.bytes_;
  for (auto run = run_at(other.runs_, begin); begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
  }
}

MarkedText MarkedText::part(size_t begin, size_t end) const {
  MarkedText part;
  part.append(*this, begin, end);
  return part;
}

Origin MarkedText::origin_at(size_t offset) const { return run_at(runs_, offset)->origin; }

}  // namespace fasa::jinja
