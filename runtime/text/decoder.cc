#include "runtime/text/decoder.h"

#include <fmt/format.h>

#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/json_part.h"
#include "runtime/text/replacement.h"

namespace fasa::text {
namespace {

using Part = DecoderStep::Part;
using Parts = std::vector<Part>;

// Limit on the result of chained replacements of one piece.
constexpr size_t kMaxDecodedBytes = 1 << 22;

// Creates a step that holds a reference to its description.
template <typename Step, typename Description>
class DecoderOf final : public Decoder {
 public:
  explicit DecoderOf(Description description) : description_(std::move(description)) {}
  std::unique_ptr<DecoderStep> start() const override {
    return std::make_unique<Step>(description_);
  }
  std::string bytes_of(std::string piece) const override {
    return Step::bytes_of(description_, std::move(piece));
  }

 private:
  Description description_;
};

// Base of steps that leave pieces within a text unchanged.
struct KeepsPieces {
  template <typename Description>
  static std::string bytes_of(const Description&, std::string piece) {
    return piece;
  }
};

// Base of steps that need whole pieces. If an earlier step joined all pieces into one, they run at
// the end.
class WholePieceStep : public DecoderStep {
 public:
  void push(Part part, Parts& out) final {
    if (part.ends && held_.empty()) {
      push_piece(std::move(part.text), out);
      return;
    }
    held_ += part.text;
    if (!part.ends) return;
    push_piece(std::move(held_), out);
    held_.clear();
  }

 protected:
  virtual void push_piece(std::string piece, Parts& out) = 0;

 private:
  std::string held_;
};

struct ByteLevelDescription {};

// Joins all pieces into one, made of the bytes that they spell.
class ByteLevelStep final : public DecoderStep {
 public:
  explicit ByteLevelStep(const ByteLevelDescription&) {}
  static std::string bytes_of(const ByteLevelDescription&, std::string piece) {
    return ByteAlphabet::get().bytes_of(piece).value_or(piece);
  }

  void push(Part part, Parts& out) override {
    piece_ += part.text;
    if (!part.ends) return;
    const auto bytes = ByteAlphabet::get().bytes_of(piece_);
    bytes_ += bytes ? *bytes : piece_;
    piece_.clear();
    emit(false, out);
  }
  void finish(Parts& out) override { emit(true, out); }

 private:
  void emit(bool at_end, Parts& out) {
    std::string text;
    size_t at = 0;
    while (at < bytes_.size()) {
      const Utf8Sequence sequence = utf8_sequence(bytes_, at);
      if (sequence.kind == SequenceKind::kCut && !at_end) break;
      if (sequence.kind == SequenceKind::kWhole) {
        text.append(bytes_, at, sequence.bytes);
      } else {
        text += kReplacement;
      }
      at += sequence.bytes;
    }
    bytes_.erase(0, at);
    if (!text.empty() || at_end) out.push_back({std::move(text), at_end});
  }

  std::string piece_;  // incomplete piece
  std::string bytes_;  // incomplete character
};

class ReplaceStep final : public WholePieceStep {
 public:
  explicit ReplaceStep(const Replacement& replacement) : replacement_(replacement) {}
  static std::string bytes_of(const Replacement& replacement, const std::string& piece) {
    std::string replaced;
    size_t copied = 0;
    replacement.for_each_match(piece, [&](Span match) {
      replaced.append(piece, copied, match.begin - copied);
      replaced += replacement.content();
      copied = match.end;
      if (replaced.size() > kMaxDecodedBytes) {
        throw InputError(
            fmt::format("{}: this replacement expands a vocabulary entry beyond {} bytes; fix it "
                        "in tokenizer.json",
                        replacement.where(), kMaxDecodedBytes));
      }
    });
    replaced.append(piece, copied);
    return replaced;
  }

 private:
  void push_piece(std::string piece, Parts& out) override {
    out.push_back({bytes_of(replacement_, piece)});
  }

  const Replacement& replacement_;
};

struct ByteFallbackDescription {};

// Runs of pieces like <0xE2> become the characters that their bytes spell. If the bytes are not
// valid UTF-8, each becomes U+FFFD, so a run's text is known only after its last piece.
class ByteFallbackStep final : public WholePieceStep {
 public:
  explicit ByteFallbackStep(const ByteFallbackDescription&) {}
  static std::string bytes_of(const ByteFallbackDescription&, std::string piece) {
    const auto byte = byte_of(piece);
    return byte ? std::string(1, static_cast<char>(*byte)) : piece;
  }
  void finish(Parts& out) override { end_run(out); }

 private:
  static std::optional<unsigned char> byte_of(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
    int byte = 0;
    for (size_t i = 3; i < 5; ++i) {
      const char digit = piece[i];
      int value = 0;
      if (digit >= '0' && digit <= '9') {
        value = digit - '0';
      } else if (digit >= 'a' && digit <= 'f') {
        value = digit - 'a' + 10;
      } else if (digit >= 'A' && digit <= 'F') {
        value = digit - 'A' + 10;
      } else if (digit == '+' && i == 3) {
        value = 0;  // Rust's from_str_radix allows a sign
      } else {
        return std::nullopt;
      }
      byte = byte * 16 + value;
    }
    return static_cast<unsigned char>(byte);
  }

  void push_piece(std::string piece, Parts& out) override {
    if (const auto byte = byte_of(piece)) {
      run_ += static_cast<char>(*byte);
      return;
    }
    end_run(out);
    out.push_back({std::move(piece)});
  }

  void end_run(Parts& out) {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      out.push_back({run_});
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out.push_back({std::string(kReplacement)});
    }
    run_.clear();
  }

  std::string run_;  // bytes
};

struct FuseDescription {};

// Joins all pieces into one.
class FuseStep final : public DecoderStep, public KeepsPieces {
 public:
  explicit FuseStep(const FuseDescription&) {}
  void push(Part part, Parts& out) override { out.push_back({std::move(part.text), false}); }
  void finish(Parts& out) override { out.push_back({}); }
};

struct StripDescription {
  std::string character;
  int64_t start, stop;  // maximum removed at a piece's beginning and end
};

class StripStep final : public DecoderStep, public KeepsPieces {
 public:
  explicit StripStep(const StripDescription& strip) : strip_(strip) {}

  void push(Part part, Parts& out) override {
    std::string text;
    const std::string& character = strip_.character;
    for (size_t at = 0; at < part.text.size();) {
      const size_t bytes = utf8_bytes(part.text[at]);
      const bool is_it = part.text.compare(at, bytes, character) == 0;
      if (is_it && stripped_ < strip_.start && at_start_) {
        ++stripped_;
      } else if (is_it && held_ < strip_.stop) {
        at_start_ = false;
        ++held_;  // removed if nothing else follows
      } else {
        at_start_ = false;
        // Only the last ones of a run are removed, so the first ones are released.
        if (!is_it) release(text);
        text.append(part.text, at, bytes);
      }
      at += bytes;
    }
    if (!text.empty() || part.ends) out.push_back({std::move(text), part.ends});
    if (!part.ends) return;
    at_start_ = true;
    stripped_ = held_ = 0;
  }

 private:
  void release(std::string& text) {
    for (; held_ > 0; --held_) text += strip_.character;
  }

  const StripDescription& strip_;
  bool at_start_ = true;
  int64_t stripped_ = 0;  // removed at this piece's beginning
  int64_t held_ = 0;      // pending at its end
};

struct MetaspaceDescription {
  std::string mark;
  bool prepends;
};

// Replaces marks by blanks; in the first piece it removes marks that were prepended.
class MetaspaceStep final : public WholePieceStep {
 public:
  explicit MetaspaceStep(const MetaspaceDescription& metaspace) : metaspace_(metaspace) {}
  static std::string bytes_of(const MetaspaceDescription& metaspace, const std::string& piece) {
    return with_blanks(metaspace, piece, " ");
  }

 private:
  static std::string with_blanks(const MetaspaceDescription& metaspace, const std::string& piece,
                                 const char* blank) {
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = utf8_bytes(piece[at]);
      if (piece.compare(at, bytes, metaspace.mark) != 0) {
        text.append(piece, at, bytes);
      } else {
        text += blank;
      }
      at += bytes;
    }
    return text;
  }

  void push_piece(std::string piece, Parts& out) override {
    out.push_back({with_blanks(metaspace_, piece, first_ && metaspace_.prepends ? "" : " ")});
    first_ = false;
  }

  const MetaspaceDescription& metaspace_;
  bool first_ = true;
};

struct JoinDescription {};

// Joins pieces with blanks: the behaviour without a decoder.
class JoinStep final : public WholePieceStep, public KeepsPieces {
 public:
  explicit JoinStep(const JoinDescription&) {}

 private:
  void push_piece(std::string piece, Parts& out) override {
    out.push_back({first_ ? std::move(piece) : " " + piece});
    first_ = false;
  }
  bool first_ = true;
};

template <typename Step, typename Description>
std::unique_ptr<const Decoder> make(Description description) {
  return std::make_unique<DecoderOf<Step, Description>>(std::move(description));
}

std::unique_ptr<const Decoder> make_step(const JsonPart& part) {
  constexpr int64_t kMax = 1 << 20;
  const std::string type = part.type();
  if (type == "ByteLevel") return make<ByteLevelStep>(ByteLevelDescription{});
  if (type == "ByteFallback") return make<ByteFallbackStep>(ByteFallbackDescription{});
  if (type == "Fuse") return make<FuseStep>(FuseDescription{});
  if (type == "Replace") return make<ReplaceStep>(Replacement(part));
  if (type == "Strip") {
    return make<StripStep>(StripDescription{
        part.character("content"), part.integer("start", 0, kMax), part.integer("stop", 0, kMax)});
  }
  if (type == "Metaspace") {
    const bool prepends = part.boolean_or("add_prefix_space", true) &&
                          part.text("prepend_scheme").value_or("always") != "never";
    return make<MetaspaceStep>(MetaspaceDescription{part.character("replacement"), prepends});
  }
  part.refuse("ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
}

}  // namespace

DecoderChain::DecoderChain(const nlohmann::json& part, const std::string& place) {
  if (part.is_null()) {
    steps_.push_back(make<JoinStep>(JoinDescription{}));
    return;
  }
  for (const JsonPart& step : steps_of(part, place, "decoders")) steps_.push_back(make_step(step));
}

std::vector<std::unique_ptr<DecoderStep>> DecoderChain::start() const {
  std::vector<std::unique_ptr<DecoderStep>> steps;
  for (const auto& step : steps_) steps.push_back(step->start());
  return steps;
}

std::string DecoderChain::bytes_of(std::string_view piece) const {
  std::string bytes(piece);
  for (const auto& step : steps_) bytes = step->bytes_of(std::move(bytes));
  return bytes;
}

}  // namespace fasa::text
