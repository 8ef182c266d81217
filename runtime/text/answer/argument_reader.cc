#include "runtime/text/answer/argument_reader.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/text/answer/mark_search.h"
#include "runtime/text/answer/parameter_type.h"
#include "runtime/text/answer/value_reader.h"

namespace fasa::text {
namespace {

using Progress = ArgumentReader::Progress;

constexpr size_t kMaxKey = 256;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Bytes of the text that the reader took, and how it ended.
std::pair<size_t, ValueReader::State> read_part(ValueReader& reader, std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const ValueReader::State state = reader.push(text[at]);
    if (state == ValueReader::State::kDone) return {at + 1, state};
    if (state != ValueReader::State::kOpen) return {at, state};
  }
  return {text.size(), ValueReader::State::kOpen};
}

// kJson and kPairs: {...}.
class ObjectArguments final : public ArgumentReader {
 public:
  explicit ObjectArguments(ValueDialect dialect) : reader_(std::move(dialect)) {}

  Progress read(std::string& text, bool) override {
    if (!begun_) text.erase(0, leading_blanks(text));
    if (text.empty()) return Progress::kMore;
    if (!begun_ && text[0] != '{') return Progress::kFailed;
    begun_ = true;
    const auto [taken, state] = read_part(reader_, text);
    json_ += reader_.take();
    text.erase(0, taken);
    if (state == ValueReader::State::kOpen) return Progress::kMore;
    return state == ValueReader::State::kDone ? Progress::kDone : Progress::kFailed;
  }

 private:
  ValueReader reader_;
};

// kKeywords: (key=value, ...).
class KeywordArguments final : public ArgumentReader {
 public:
  Progress read(std::string& text, bool) override {
    for (;;) {
      if (place_ != Place::kValue || !inside_) text.erase(0, leading_blanks(text));
      if (text.empty()) return Progress::kMore;
      switch (place_) {
        case Place::kOpen:
          if (text[0] != '(') return Progress::kFailed;
          text.erase(0, 1);
          place_ = Place::kKey;
          break;
        case Place::kKey:
        case Place::kNext:
          if (text[0] == ')') {
            json_ += first_ ? "{}" : "}";
            begun_ = true;
            text.erase(0, 1);
            return Progress::kDone;
          }
          if (place_ == Place::kNext) {
            if (text[0] != ',') return Progress::kFailed;
            text.erase(0, 1);
            place_ = Place::kKey;
          } else if (const Progress key = read_key(text); key != Progress::kDone) {
            return key;
          }
          break;
        case Place::kValue:
          if (const Progress value = read_argument(text); value != Progress::kDone) return value;
      }
    }
  }

 private:
  enum class Place { kOpen, kKey, kValue, kNext };

  Progress read_key(std::string& text) {
    const size_t end = text.find_first_of("=,(){}[]\"' \n\t");
    if (end == std::string::npos && text.size() <= kMaxKey) return Progress::kMore;
    const size_t equals = end == std::string::npos ? end : text.find_first_not_of(" \n\t", end);
    if (end == 0 || (equals != std::string::npos && text[equals] != '=')) return Progress::kFailed;
    if (equals == std::string::npos)
      return text.size() <= kMaxKey ? Progress::kMore : Progress::kFailed;
    json_ += (first_ ? "{" : ", ") + quoted(text.substr(0, end)) + ": ";
    first_ = false;
    begun_ = true;
    text.erase(0, equals + 1);
    reader_ = std::make_unique<ValueReader>(ValueDialect{.python_texts = true});
    inside_ = false;
    place_ = Place::kValue;
    return Progress::kDone;
  }
  Progress read_argument(std::string& text) {
    inside_ = true;
    const auto [taken, state] = read_part(*reader_, text);
    json_ += reader_->take();
    text.erase(0, taken);
    if (state == ValueReader::State::kOpen) return Progress::kMore;
    place_ = Place::kNext;
    return state == ValueReader::State::kFailed ? Progress::kFailed : Progress::kDone;
  }

  Place place_ = Place::kOpen;
  std::unique_ptr<ValueReader> reader_;
  bool first_ = true;
  bool inside_ = false;  // a value has begun
};

// kTags: a mark for each key and value; texts as they are, the schema says which values are texts.
class TagArguments final : public ArgumentReader {
 public:
  TagArguments(const CallFormat& format, const CallableFunction& function)
      : function_(function),
        key_open_(without_blanks(format.tags.key_open)),
        key_close_(without_blanks(format.tags.key_close)),
        value_open_(format.tags.value_open),
        value_close_(without_blanks(format.tags.value_close)),
        strips_first_((value_open_.empty() ? format.tags.key_close : value_open_).ends_with('\n')),
        strips_last_(format.tags.value_close.starts_with('\n')),
        behind_value_(words_of(format.close)) {
    behind_value_.push_back(key_open_);
  }

  Progress read(std::string& text, bool over) override {
    for (;;) {
      const Progress progress = place_ == Place::kKey       ? read_key_open(text, over)
                                : place_ == Place::kName    ? read_name(text)
                                : place_ == Place::kOpening ? read_opening(text, over)
                                                            : read_value_text(text, over);
      if (progress != Progress::kDone || ended_) return progress;
    }
  }

 private:
  enum class Place { kKey, kName, kOpening, kValue };

  Progress read_key_open(std::string& text, bool over) {
    text.erase(0, leading_blanks(text));
    if (text.empty()) return Progress::kMore;
    const MarkMatch match = match_mark(text, key_open_);
    if (match.open(over)) return Progress::kMore;
    if (match.yes()) {
      text.erase(0, match.size);
      place_ = Place::kName;
      return Progress::kDone;
    }
    json_ += first_ ? "{}" : "}";
    ended_ = true;
    return Progress::kDone;
  }
  Progress read_name(std::string& text) {
    const size_t end = text.find(key_close_);
    if (end == std::string::npos) {
      return text.size() <= kMaxKey ? Progress::kMore : Progress::kFailed;
    }
    const std::string key(without_blanks(std::string_view(text).substr(0, end)));
    if (key.empty() || key.size() > kMaxKey) return Progress::kFailed;
    json_ += (first_ ? "{" : ", ") + quoted(key) + ": ";
    first_ = false;
    begun_ = true;
    text.erase(0, end + key_close_.size());
    kinds_ = parameter_kinds(function_.parameters, key);
    place_ = Place::kOpening;
    return Progress::kDone;
  }
  Progress read_opening(std::string& text, bool over) {
    if (!without_blanks(value_open_).empty()) {
      const MarkMatch match = match_mark(text, value_open_);
      if (match.open(over)) return Progress::kMore;
      if (!match.yes()) return Progress::kFailed;
      text.erase(0, match.size);
    }
    if (strips_first_) {
      if (text.empty()) return Progress::kMore;
      if (text[0] == '\n') text.erase(0, 1);
    }
    place_ = Place::kValue;
    searched_ = 0;
    in_text_ = false;
    return Progress::kDone;
  }
  // The value's end; a closing mark that nothing of the format follows is part of the value.
  FoundMark find_end(const std::string& text, bool over, bool& open) const {
    FoundMark end;
    for (size_t at = searched_; (at = text.find(value_close_, at)) != std::string::npos; ++at) {
      const std::string_view behind = std::string_view(text).substr(at + value_close_.size());
      bool fits = over && without_blanks(behind).empty();
      open = !over && without_blanks(behind).empty();
      for (const std::string& mark : behind_value_) {
        const MarkMatch match = match_mark(behind, mark);
        fits |= match.yes() || (over && match.kind == MarkMatch::Kind::kOpen);
        open |= match.open(over);
      }
      if (!fits && !open) continue;
      end.at = at;
      open &= !fits;
      return end;
    }
    open = false;
    return end;
  }
  Progress read_value_text(std::string& text, bool over) {
    bool open = false;
    const FoundMark end = find_end(text, over, open);
    if (end.found() && !open) {
      size_t size = end.at;
      if (strips_last_ && size > 0 && text[size - 1] == '\n') --size;
      end_value(text.substr(0, size));
      text.erase(0, end.at + value_close_.size());
      place_ = Place::kKey;
      return Progress::kDone;
    }
    if (!kinds_.only_text()) {  // decided by the whole value
      searched_ = open ? end.at : text.size() - std::min(text.size(), value_close_.size());
      return Progress::kMore;
    }
    size_t certain = text.size();
    if (open) certain = end.at;
    if (!open && !over) certain -= possible_mark(text, {&value_close_, 1});
    if (!over && strips_last_ && certain > 0 && text[certain - 1] == '\n') --certain;
    add_text(text.substr(0, certain));
    text.erase(0, certain);
    return Progress::kMore;
  }
  void add_text(const std::string& bytes) {
    if (!in_text_) json_ += '"';
    in_text_ = true;
    for (const char byte : bytes) {
      const bool plain = static_cast<unsigned char>(byte) >= 0x20 && byte != '"' && byte != '\\';
      if (plain) {
        json_ += byte;
      } else {
        const std::string escaped = quoted(std::string(1, byte));
        json_ += escaped.substr(1, escaped.size() - 2);
      }
    }
  }
  void end_value(const std::string& text) {
    std::string json;
    if (!in_text_ && kinds_.reads_as(text, json)) {
      json_ += json;
      return;
    }
    add_text(text);
    json_ += '"';
  }

  const CallableFunction& function_;
  const std::string key_open_, key_close_, value_open_, value_close_;
  const bool strips_first_, strips_last_;  // a newline at the ends of values belongs to the marks
  std::vector<std::string> behind_value_;
  ParameterKinds kinds_;
  Place place_ = Place::kKey;
  bool first_ = true;
  bool ended_ = false;
  bool in_text_ = false;  // the text of the value has begun
  size_t searched_ = 0;   // bytes of a held value without a closing mark
};

}  // namespace

const CallableFunction* find_function(const std::vector<CallableFunction>& functions,
                                      std::string_view name) {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const CallableFunction& one) { return one.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

std::unique_ptr<ArgumentReader> make_argument_reader(const CallFormat& format,
                                                     const CallableFunction& function) {
  switch (format.arguments) {
    case ArgumentForm::kTags:
      return std::make_unique<TagArguments>(format, function);
    case ArgumentForm::kKeywords:
      return std::make_unique<KeywordArguments>();
    case ArgumentForm::kPairs:
      return std::make_unique<ObjectArguments>(
          ValueDialect{.quote = format.quote, .bare_keys = true});
    default:
      return std::make_unique<ObjectArguments>(ValueDialect{});
  }
}

}  // namespace fasa::text
