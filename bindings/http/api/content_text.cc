#include "bindings/http/api/content_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "bindings/http/api_error.h"
#include "runtime/base/log.h"

namespace fasa::serve {
namespace {

struct MediaType {
  std::string_view type, name;
};
constexpr MediaType kMedia[] = {
    {"image", "image"},     {"image_url", "image"},       {"input_image", "image"},
    {"audio", "audio"},     {"input_audio", "audio"},     {"audio_url", "audio"},
    {"video", "video"},     {"video_url", "video"},       {"file", "file"},
    {"input_file", "file"}, {"container_upload", "file"}, {"computer_screenshot", "image"}};

bool is_thinking(const Json& part) {
  const std::string type = part.is_object() ? text_of(part, "type") : "";
  return type == "thinking" || type == "redacted_thinking" || type == "reasoning";
}

// Texts one after the other; notes on lines of their own.
class PartTexts {
 public:
  void add(const std::string& text, bool note) {
    if (text.empty()) return;
    const bool apart = !text_.empty() && (note || note_) && !text_.ends_with('\n');
    text_ += (apart ? "\n" : "") + text;
    note_ = note;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool note_ = false;  // the last one
};

class ContentReader {
 public:
  explicit ContentReader(OtherParts others) : others_(others) {}

  std::string read(const Json& content, const std::string& path) {
    if (content.is_null()) return "";
    if (content.is_string()) return content.get<std::string>();
    if (content.is_array()) {
      PartTexts texts;
      for (size_t i = 0; i < content.size(); ++i) {
        if (is_thinking(content[i])) continue;
        const auto [text, note] = part(content[i], fmt::format("{}[{}]", path, i));
        texts.add(text, note);
      }
      return texts.take();
    }
    if (others_ == OtherParts::kRefused) {
      throw ApiError::bad_field(path, kind_of(content) + "; allowed: a string or a list of parts");
    }
    return content.contains("type") ? part(content, path).text : content.dump();
  }

 private:
  struct PartText {
    std::string text;
    bool note = false;  // it stands for something else
  };

  PartText part(const Json& part, const std::string& path) {
    if (part.is_null()) return {};
    if (part.is_string()) return {part.get<std::string>()};
    if (!part.is_object()) {
      if (others_ == OtherParts::kNoted) return {part.dump()};
      throw ApiError::bad_field(path, kind_of(part) + "; allowed: an object with a type");
    }
    const std::string type = text_of(part, "type");
    if (part.contains("text") && part["text"].is_string()) return {text_of(part, "text")};
    if (type == "refusal") return {text_of(part, "refusal")};
    if (type == "tool_reference")
      return {fmt::format("[tool {}]", text_of(part, "tool_name")), true};
    if (type == "document" || type == "search_result") return document(part, type, path);
    if (type == "text" || type.ends_with("_text")) return {};
    return other(part, type, path);
  }

  // A document of text, with its title.
  PartText document(const Json& part, const std::string& type, const std::string& path) {
    const auto source = part.find("source");
    std::string text;
    if (const auto content = part.find("content"); content != part.end()) {
      text = read(*content, path + ".content");
    } else if (source != part.end() && source->is_object()) {
      if (source->contains("content")) text = read((*source)["content"], path + ".source.content");
      if (text_of(*source, "type") == "text") text = text_of(*source, "data");
    }
    if (text.empty()) return other(part, type, path);
    const std::string title = text_of(part, "title");
    return {title.empty() ? text : fmt::format("[{}]\n{}", title, text), true};
  }

  PartText other(const Json& part, const std::string& type, const std::string& path) {
    const auto found = std::find_if(std::begin(kMedia), std::end(kMedia),
                                    [&](const MediaType& one) { return one.type == type; });
    if (others_ == OtherParts::kRefused) {
      throw ApiError(400, "invalid_request_error",
                     fmt::format("{}.type: \"{}\"; allowed: text, because this server does not "
                                 "read media",
                                 path, type.substr(0, 40)),
                     path + ".type", "unsupported_value");
    }
    if (type.empty()) return {part.dump(), true};
    std::string name(found == std::end(kMedia) ? std::string_view(type) : found->name);
    for (const char* const title : {"filename", "title", "name"}) {
      const std::string shown = text_of(part, title);
      if (shown.empty()) continue;
      name += " " + shown;
      break;
    }
    return {fmt::format("[{} omitted]", name), true};
  }

  const OtherParts others_;
};

}  // namespace

std::string content_text(const Json& content, const std::string& path, OtherParts others) {
  return ContentReader(others).read(content, path);
}

std::string thinking_text(const Json& content) {
  std::string text;
  for (const Json& part : content.is_array() ? content : Json::array()) {
    if (!is_thinking(part)) continue;
    for (const char* const name : {"thinking", "text", "content", "summary"}) {
      const auto found = part.find(name);
      if (found == part.end()) continue;
      text += content_text(*found, name, OtherParts::kNoted);
      break;
    }
  }
  return text;
}

std::optional<size_t> newest_user_message(const Json& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const std::string role = messages[i].is_object() ? text_of(messages[i], "role") : "";
    if (role == "user") return i;
    if (role != "system" && role != "developer") break;
  }
  return std::nullopt;
}

void log_skipped(const std::string& type) {
  constexpr size_t kMost = 100;  // types are the clients' words
  static std::mutex mutex;
  static std::set<std::string> known;
  const std::lock_guard lock(mutex);
  if (known.size() >= kMost || !known.insert(type.substr(0, 60)).second) return;
  log_warning(fmt::format("\"{}\" of a request is not shown to the model", type.substr(0, 60)));
}

}  // namespace fasa::serve
