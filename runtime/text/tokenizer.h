// A model's tokenizer: text to token ids and back, as defined by its tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

// Origin of a part of a prompt. kTrusted: a chat template's own text; control tokens spelt in it
// become their ids. kUser: text typed by a user; it stays text, whatever it spells.
enum class Trust { kTrusted, kUser };

struct Segment {
  std::string_view text;
  Trust trust = Trust::kTrusted;
};

struct EncodeOptions {
  // Adds the post-processor's tokens around a text; for most models one at its beginning.
  bool add_special = false;
  // Added tokens spelt in the text become their ids; otherwise the text counts as a user's (see
  // Trust).
  bool parse_special = true;
};

// Text to ids and back, nothing added: the interface for evaluation and calibration.
class TextCoder {
 public:
  virtual ~TextCoder() = default;
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Ids at the beginning of every prompt.
  virtual std::span<const int32_t> prefix() const { return {}; }
};

struct TokenizerParts;

// Immutable and thread-safe once loaded. Text is UTF-8; each invalid sequence is read as one
// U+FFFD, as in Python's `decode("utf-8", "replace")`. Encoding throws InputError if a pattern of
// the file exceeds its work limit on a text.
class Tokenizer final : public TextCoder {
 public:
  // Reads tokenizer.json and, if present, tokenizer_config.json. Throws InputError naming the file
  // and the position if it is unreadable, not JSON, beyond a limit, inconsistent, or has an
  // unsupported part.
  static Tokenizer load(const std::filesystem::path& model_dir);
  // Null if the folder has no tokenizer.json.
  static std::unique_ptr<Tokenizer> load_if_present(const std::filesystem::path& model_dir);
  // `config`: the text of tokenizer_config.json, "" for none. `name`: the folder, for errors.
  static Tokenizer parse(std::string_view json, std::string_view config, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer() override;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  // The ids of the concatenated segments: pieces may span segments, control tokens must not contain
  // user text.
  std::vector<int32_t> encode(std::span<const Segment> segments, bool add_special) const;
  // Ids that `add_special` puts before and after a text.
  std::span<const int32_t> prefix() const override;
  std::span<const int32_t> suffix() const;

  // Unused ids are skipped; incomplete characters become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const override { return decode(ids, false); }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> token_id(std::string_view piece) const;
  // As spelt in the vocabulary ("Ġthe", "▁the", "<|im_end|>"); "" for an unused id.
  std::string_view piece(int32_t id) const;
  // The bytes that the id adds within a text, not always whole characters; "" for none.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const;  // matched by its spelling, before text is split
  int64_t vocab_size() const;       // the largest id plus one

  // Tokens that end an answer: the config's eos_token, and special ones spelt as end_tokens.h says.
  std::span<const int32_t> ends() const;

 private:
  friend class DecodeStream;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes ids one at a time. The concatenated results of push() and finish() equal decode() of all
// ids; each result is whole UTF-8 characters. Not thread-safe.
class DecodeStream {
 public:
  // `tokenizer` must outlive it. `shown`: special tokens that are not skipped.
  explicit DecodeStream(const Tokenizer& tokenizer, bool skip_special = false,
                        std::vector<int32_t> shown = {});
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;
  ~DecodeStream();

  // The text that became final with this id: "" while a character is incomplete.
  std::string push(int32_t id);
  // Returns the held-back text and resets the stream.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fasa::text
