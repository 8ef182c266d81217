#include <algorithm>
#include <utility>

#include "runtime/text/answer/answer_reader.h"

namespace fasa::text {
namespace {

std::string channel_opening(const ChannelFormat& channels, const std::string& name) {
  return channels.open + name + channels.message;
}

}  // namespace

CodedFormat::CodedFormat(const AnswerFormat& format, const Tokenizer& tokenizer)
    : row(format), codes(format, tokenizer) {
  row.each_text([&](std::string& text) { text = codes.coded(std::move(text)); });
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
