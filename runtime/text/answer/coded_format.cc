#include <algorithm>
#include <utility>

#include "runtime/text/answer/answer_reader.h"

namespace fasa::text {
namespace {

// All texts of a row, so that marks become codes.
template <typename Change>
void change_texts(AnswerFormat& row, Change change) {
  for (auto* const regions : {&row.thoughts, &row.contents}) {
    for (Region& region : *regions) {
      change(region.open);
      change(region.close);
    }
  }
  for (std::string& aside : row.asides) change(aside);
  CallFormat& calls = row.calls;
  for (std::string* const text :
       {&row.channels.open, &row.channels.message, &row.channels.end, &row.channels.start,
        &row.channels.constraint, &calls.section_open, &calls.section_close, &calls.open,
        &calls.name_open, &calls.name_close, &calls.id_open, &calls.tags.key_open,
        &calls.tags.key_close, &calls.tags.value_open, &calls.tags.value_close, &calls.quote,
        &calls.close}) {
    change(*text);
  }
}

std::string channel_opening(const ChannelFormat& channels, const std::string& name) {
  return channels.open + name + channels.message;
}

}  // namespace

CodedFormat::CodedFormat(const AnswerFormat& format, const Tokenizer& tokenizer)
    : row(format), codes(format, tokenizer) {
  change_texts(row, [&](std::string& text) { text = codes.coded(std::move(text)); });
  for (const std::string& end : row.ends) {
    const auto id = tokenizer.token_id(end);
    if (id && tokenizer.is_added(*id)) ends.push_back(*id);
  }
}

AnswerStart answer_start(const CodedFormat& coded, std::string_view whole_prompt) {
  using Start = AnswerStart::Kind;
  constexpr size_t kMaxMarks = 256;  // bytes of all marks at a prompt's end
  whole_prompt = whole_prompt.substr(0, without_trailing_blanks(whole_prompt));
  const AnswerFormat& format = coded.row;
  const std::string end = coded.codes.coded(std::string(
      whole_prompt.substr(whole_prompt.size() - std::min(whole_prompt.size(), kMaxMarks))));
  std::string_view prompt = end;
  const ChannelFormat& channels = format.channels;
  if (!channels.open.empty()) {
    if (prompt.ends_with(channel_opening(channels, channels.thought))) return {Start::kThought};
    return {prompt.ends_with(channels.message) ? Start::kContent : Start::kHeader};
  }
  for (const std::string& aside : format.asides) {
    if (prompt.ends_with(aside)) prompt.remove_suffix(aside.size());
  }
  const auto opened = [&](const Region& region) {
    return !region.open.empty() && prompt.ends_with(without_blanks(region.open));
  };
  for (size_t i = 0; i < format.thoughts.size(); ++i) {
    if (opened(format.thoughts[i])) return {Start::kThought, i};
  }
  const bool content = std::any_of(format.contents.begin(), format.contents.end(), opened);
  return {content ? Start::kContent : Start::kNothing};
}

}  // namespace fasa::text
