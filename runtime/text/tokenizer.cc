#include "runtime/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/io/input_file.h"
#include "runtime/text/tokenizer_file.h"
#include "runtime/text/tokenizer_parts.h"

namespace fasa::text {
namespace {

namespace fs = std::filesystem;

std::string read_limited(const fs::path& path) {
  FileRule rule;
  rule.max_bytes = kMaxFileBytes;
  return read_file(path.string(), rule);
}

// Encodes one prompt.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, UserBytes user)
      : parts_(parts), user_(std::move(user)), words_(parts.bpe) {}

  std::vector<int32_t> encode(MappedText prompt) {
    for (const TokenSpan& found : parts_.added.in_raw_text().find(prompt, user_)) {
      if (found.token != nullptr) {
        ids_.push_back(found.token->id);
      } else {
        add_text(part_of(prompt, found.span));
      }
    }
    return std::move(ids_);
  }

 private:
  static MappedText part_of(const MappedText& text, Span span) {
    TextBuilder part(text);
    part.copy(span);
    return part.take();
  }

  void add_text(MappedText text) {
    parts_.normalizer.apply(text);
    for (const TokenSpan& found : parts_.added.in_normalized_text().find(text, user_)) {
      if (found.token != nullptr) {
        ids_.push_back(found.token->id);
        continue;
      }
      const Words words = parts_.pre_tokenizer.apply(part_of(text, found.span));
      for (const Span word : words.spans) {
        words_.append(std::string_view(words.text.text).substr(word.begin, word.size()), ids_);
      }
    }
  }

  const TokenizerParts& parts_;
  UserBytes user_;
  WordEncoder words_;
  std::vector<int32_t> ids_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const fs::path& model_dir) {
  const fs::path config = model_dir / "tokenizer_config.json";
  std::error_code error;
  return parse(read_limited(model_dir / "tokenizer.json"),
               fs::exists(config, error) ? read_limited(config) : "", model_dir.string());
}

std::unique_ptr<Tokenizer> Tokenizer::load_if_present(const fs::path& model_dir) {
  std::error_code error;
  if (!fs::exists(model_dir / "tokenizer.json", error)) return nullptr;
  return std::make_unique<Tokenizer>(load(model_dir));
}

Tokenizer Tokenizer::parse(std::string_view json, std::string_view config,
                           const std::string& name) {
  return Tokenizer(std::make_unique<const TokenizerParts>(read_parts(json, config, name)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  return encode(text, EncodeOptions{});
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Segment segment{text, options.parse_special ? Trust::kTrusted : Trust::kUser};
  return encode({&segment, 1}, options.add_special);
}

std::vector<int32_t> Tokenizer::encode(std::span<const Segment> segments, bool add_special) const {
  MappedText prompt;
  UserBytes user;
  const bool any_user = std::any_of(segments.begin(), segments.end(), [](const Segment& segment) {
    return segment.trust == Trust::kUser;
  });
  for (const Segment& segment : segments) {
    prompt.text += valid_utf8(segment.text);
    if (any_user) user.resize(prompt.text.size(), segment.trust == Trust::kUser ? 1 : 0);
  }
  if (prompt.text.size() > UINT32_MAX / 2) {
    throw UsageError(fmt::format("the text has {} bytes; allowed: up to {}", prompt.text.size(),
                                 UINT32_MAX / 2));
  }
  if (any_user || parts_->pre_tokenizer.needs_origins()) {
    prompt.origins.resize(prompt.text.size());
    std::iota(prompt.origins.begin(), prompt.origins.end(), 0u);
  }
  std::vector<int32_t> ids = Encoding(*parts_, std::move(user)).encode(std::move(prompt));
  if (!add_special) return ids;
  ids.insert(ids.begin(), prefix().begin(), prefix().end());
  ids.insert(ids.end(), suffix().begin(), suffix().end());
  return ids;
}

std::span<const int32_t> Tokenizer::prefix() const { return parts_->around.prefix; }
std::span<const int32_t> Tokenizer::suffix() const { return parts_->around.suffix; }

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeStream stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text += stream.finish();
}

std::optional<int32_t> Tokenizer::token_id(std::string_view piece) const {
  return parts_->find(piece);
}

std::string_view Tokenizer::piece(int32_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token != nullptr ? std::string_view(token->content) : parts_->bpe.vocabulary().piece(id);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const auto spelling = parts_->spelling(id);
  return spelling ? parts_->decoder.bytes_of(*spelling) : "";
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token != nullptr && token->special;
}

bool Tokenizer::is_added(int32_t id) const { return parts_->added.find(id) != nullptr; }

int64_t Tokenizer::vocab_size() const {
  return std::max(parts_->bpe.vocabulary().end_id(), parts_->added.end_id());
}

std::span<const int32_t> Tokenizer::ends() const { return parts_->ends; }

}  // namespace fasa::text
