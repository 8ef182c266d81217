#include "runtime/text/splitter.h"

#include <algorithm>

namespace fasa::text {
namespace {

struct Part {
  Span span;
  bool is_match;
};

// Appends a word's matches and the text between them, in order.
void add_parts(RegexSearch& search, Span word, bool invert, std::vector<Part>& parts) {
  search.enter(word);
  size_t end = word.begin;
  while (const auto match = search.next()) {
    if (end != match->begin) parts.push_back({{end, match->begin}, invert});
    parts.push_back({*match, !invert});
    end = match->end;
  }
  if (end != word.end) parts.push_back({{end, word.end}, invert});
}

// Merges each match with the previous part, unless that is a match too.
void merge_with_previous(std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !after_match && !merged.empty()) {
      merged.back().span.end = part.span.end;
    } else {
      merged.push_back(part);
    }
    after_match = part.is_match;
  }
  parts = std::move(merged);
}

void merge_with_next(std::vector<Part>& parts) {
  std::vector<Part> merged;  // in reverse order
  bool before_match = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->is_match && !before_match && !merged.empty()) {
      merged.back().span.begin = part->span.begin;
    } else {
      merged.push_back(*part);
    }
    before_match = part->is_match;
  }
  std::reverse(merged.begin(), merged.end());
  parts = std::move(merged);
}

void merge_alike(std::vector<Part>& parts) {
  std::vector<Part> merged;
  bool before = false;
  for (const Part& part : parts) {
    if (part.is_match == before && !merged.empty()) {
      merged.back().span.end = part.span.end;
    } else {
      merged.push_back(part);
    }
    before = part.is_match;
  }
  parts = std::move(merged);
}

}  // namespace

void Splitter::apply(Words& words) const {
  RegexSearch search(pattern_, words.text.text);
  std::vector<Span> spans;
  spans.reserve(words.spans.size());
  std::vector<Part> parts;
  for (const Span word : words.spans) {
    parts.clear();
    add_parts(search, word, invert_, parts);
    if (behavior_ == SplitBehavior::kMergedWithPrevious) merge_with_previous(parts);
    if (behavior_ == SplitBehavior::kMergedWithNext) merge_with_next(parts);
    if (behavior_ == SplitBehavior::kContiguous) merge_alike(parts);
    for (const Part& part : parts) {
      const bool dropped = behavior_ == SplitBehavior::kRemoved && part.is_match;
      if (!dropped && part.span.size() > 0) spans.push_back(part.span);
    }
  }
  words.spans = std::move(spans);
}

}  // namespace fasa::text
