// The tokenizer of a model: text to token ids and back, as its tokenizer.json says.
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

// Who wrote a part of a prompt. A chat template's own words are kTrusted: control tokens spelt in
// them become their ids. What a user typed is kUser: it stays text, whatever it spells.
enum class Trust { kTrusted, kUser };

struct Segment {
  std::string_view text;
  Trust trust = Trust::kTrusted;
};

struct EncodeOptions {
  // The tokens that the post-processor adds around a text: for most models one at its beginning.
  bool add_special = false;
  // Added tokens spelt in the text become their ids; else the text is a user's (see Trust).
  bool parse_special = true;
};

// Text to ids and back with nothing added: what evaluation and calibration ask of a tokenizer.
class TextCoder {
 public:
  virtual ~TextCoder() = default;
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // What the ids of every prompt begin with.
  virtual std::span<const int32_t> prefix() const { return {}; }
};

struct TokenizerParts;

// Immutable once loaded: any number of threads may use one at a time. Text is UTF-8; what is not
// is read as U+FFFD, one for each wrong sequence, as Python's `decode("utf-8", "replace")` does.
// Encoding throws InputError where a pattern of the file takes more work on a text than is allowed.
class Tokenizer final : public TextCoder {
 public:
  // Reads tokenizer.json and, where it is there, tokenizer_config.json. Throws InputError naming
  // the file and the place: unreadable, not JSON, beyond a limit, contradicting itself, or with a
  // part that is not supported.
  static Tokenizer load(const std::filesystem::path& model_dir);
  // Null where the folder has no tokenizer.json.
  static std::unique_ptr<Tokenizer> load_if_present(const std::filesystem::path& model_dir);
  // `config`: the text of tokenizer_config.json, "" for none. `name`: the folder, for errors.
  static Tokenizer parse(std::string_view json, std::string_view config, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer() override;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  // The ids of the segments' concatenation: pieces may span segments, control tokens may not touch
  // a user's.
  std::vector<int32_t> encode(std::span<const Segment> segments, bool add_special) const;
  // What the ids of a text lie between with `add_special`: mostly one token, and nothing.
  std::span<const int32_t> prefix() const override;
  std::span<const int32_t> suffix() const;

  // Ids that stand for nothing are left out; incomplete characters become U+FFFD.
  std::string decode(std::span<const int32_t> ids) const override { return decode(ids, false); }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> token_id(std::string_view piece) const;
  // As the vocabulary spells it ("Ġthe", "▁the", "<|im_end|>"); "" for an id that stands for none.
  std::string_view piece(int32_t id) const;
  // What it adds to a text's bytes, within the text: not whole characters always. "" for none.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;  // one more than the largest id

  // From tokenizer_config.json, `unk` from the model where it has one.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> unk_id() const;

 private:
  friend class DecodeStream;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  std::unique_ptr<const TokenizerParts> parts_;
};

// Ids to text one at a time. What the pushes and finish() return, put together, is decode() of all
// ids; every piece is whole UTF-8 characters. Not thread-safe.
class DecodeStream {
 public:
  // `tokenizer` outlives it. `shown`: ids that are no special ones here.
  explicit DecodeStream(const Tokenizer& tokenizer, bool skip_special = false,
                        std::vector<int32_t> shown = {});
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;
  ~DecodeStream();

  // The text that this id makes certain: "" while a character is incomplete.
  std::string push(int32_t id);
  // What was held back; the stream is as new afterwards.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fasa::text
