// The reader of parts with headers: channels.
#include <utility>

#include "runtime/text/answer/answer_reader.h"

namespace fasa::text {
namespace {

using Kind = AnswerPiece::Kind;

constexpr size_t kMaxHeader = 1024;

}  // namespace

bool AnswerReader::step_between() {
  const size_t blanks = leading_blanks(held_);
  if (blanks == held_.size()) return false;
  const MarkMatch match = match_mark(held_, row_.channels.start + row_.channels.role);
  if (match.open(over_)) return false;
  header_.clear();
  if (match.yes()) held_.erase(0, match.size);
  const std::string& start = row_.channels.start;
  const bool stray = !match.yes() && held_.compare(blanks, start.size(), start) == 0;
  state_ = stray ? State::kContent : State::kHeader;
  if (stray) add_content(blanks + start.size());
  return true;
}

bool AnswerReader::step_header() {
  const ChannelFormat& channels = row_.channels;
  header_ += std::exchange(held_, {});
  if (header_.empty()) return false;
  const MarkMatch channel = match_mark(header_, channels.open);
  const MarkMatch recipient = match_mark(header_, channels.recipient);
  const bool possible =
      channel.kind != MarkMatch::Kind::kNo || recipient.kind != MarkMatch::Kind::kNo;
  const size_t end = possible ? header_.find(channels.message) : std::string::npos;
  if (end <= kMaxHeader) {
    held_ = header_.substr(end + channels.message.size());
    header_.resize(end);
    return enter_header(header_);
  }
  const bool grows = header_.size() < kMaxHeader + channels.message.size();
  if (possible && grows && !over_) return false;
  held_ = std::exchange(header_, {});
  joins_ = said_;
  state_ = State::kContent;
  return true;
}

// A part begins: its channel, and whether it is a call.
bool AnswerReader::enter_header(const std::string& header) {
  const ChannelFormat& channels = row_.channels;
  const size_t open = header.find(channels.open);
  const size_t recipient = header.find(channels.recipient);
  std::string_view channel;
  if (open != std::string::npos)
    channel = std::string_view(header).substr(open + channels.open.size());
  channel = channel.substr(0, name_size(channel));
  channel_call_.function = nullptr;
  if (recipient != std::string::npos) {
    const std::string_view name =
        std::string_view(header).substr(recipient + channels.recipient.size());
    channel_call_.function = find_function(reading_->functions, name.substr(0, name_size(name)));
  }
  if (channel_call_.function != nullptr) {
    channel_call_.arguments = make_argument_reader(row_.calls, *channel_call_.function);
    state_ = State::kChannelCall;
    return true;
  }
  const bool plain =
      recipient == std::string::npos && (channel == channels.content || channel == channels.call);
  if (recipient == std::string::npos && channel == channels.thought) {
    return open_thought(0, {});
  }
  if (!plain) held_.insert(0, header + channels.message);
  header_.clear();
  joins_ = said_;
  state_ = State::kContent;
  skips_blanks_ = false;
  return true;
}

bool AnswerReader::step_channel_call() {
  const bool announced = channel_call_.arguments->begun();
  const ArgumentReader::Progress progress = channel_call_.arguments->read(held_, over_);
  const bool done = progress == ArgumentReader::Progress::kDone;
  if (channel_call_.arguments->begun()) {
    std::vector<AnswerPiece> pieces;
    if (!announced)
      pieces.push_back({Kind::kCallBegin, channel_call_.function->name, calls_.count++});
    std::string json = channel_call_.arguments->take();
    if (!json.empty()) {
      pieces.push_back({Kind::kCallArguments, std::move(json), calls_.count - 1, done});
    }
    pass_calls(std::move(pieces));
  }
  if (progress == ArgumentReader::Progress::kMore && !over_) return false;
  state_ = State::kContent;
  if (!channel_call_.arguments->begun()) {
    held_ = std::exchange(header_, {}) + row_.channels.message + held_;
  }
  header_.clear();
  skips_blanks_ = channel_call_.arguments->begun();
  return !held_.empty();
}

}  // namespace fasa::text
