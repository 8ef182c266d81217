#include "runtime/text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <new>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/json_part.h"
#include "runtime/text/replacement.h"

namespace fasa::text {
namespace {

// Unicode's canonical normal forms, by utf8proc.
enum class CanonicalForm { kComposed, kDecomposed };  // NFC, NFD

// Below U+0300 no character is a mark or composes with the one before it, and NFC changes none;
// some from U+00C0 on decompose in NFD.
constexpr char32_t kFirstMark = 0x300;

bool is_joining_jamo(char32_t c) { return c >= 0x1160 && c <= 0x11ff; }

// Whether a text can be split before this character and each part normalized separately.
bool may_cut_before(char32_t c) {
  if (c < kFirstMark) return true;
  // Three Tibetan vowels are not marks but decompose into marks.
  if (c == 0xf73 || c == 0xf75 || c == 0xf81 || is_joining_jamo(c)) return false;
  constexpr uint16_t kNone = 0xffff, kSecond = 0x8000;  // in utf8proc's table of pairs
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  const uint16_t pairs = property->comb_index;
  return property->combining_class == 0 && (pairs == kNone || pairs < kSecond);
}

class CanonicalText {
 public:
  CanonicalText(const MappedText& text, CanonicalForm form)
      : text_(text), built_(text), composes_(form == CanonicalForm::kComposed) {}

  MappedText make() {
    const std::string_view text = text_.text;
    size_t copied = 0;
    for (size_t at = 0; at < text.size();) {
      const char32_t first = code_point_at(text, at);
      size_t end = at + utf8_bytes(text[at]);
      const size_t one = end;
      while (end < text.size() && !may_cut_before(code_point_at(text, end))) {
        end += utf8_bytes(text[end]);
      }
      if (end != one || !is_normal_alone(first)) {
        built_.copy({copied, at});
        add_run({at, end});
        copied = end;
      }
      at = end;
    }
    built_.copy({copied, text.size()});
    return built_.take();
  }

 private:
  bool is_normal_alone(char32_t c) const {
    if (c < 0x80 || (composes_ && c < kFirstMark)) return true;
    constexpr uint16_t kNone = 0xffff;
    const auto point = static_cast<utf8proc_int32_t>(c);
    const bool syllable = c >= 0xac00 && c <= 0xd7a3;  // decomposes by arithmetic
    return utf8proc_get_property(point)->decomp_seqindex == kNone && (composes_ || !syllable);
  }

  void add_run(Span run) {
    const auto options = static_cast<utf8proc_option_t>(
        UTF8PROC_STABLE | (composes_ ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text_.text.data()) + run.begin;
    const auto length = static_cast<utf8proc_ssize_t>(run.size());
    // Usually enough: a run decomposes into at most as many characters as it has bytes.
    points_.resize(run.size() + 8);
    auto count = utf8proc_decompose(bytes, length, points_.data(),
                                    static_cast<utf8proc_ssize_t>(points_.size()), options);
    if (count > static_cast<utf8proc_ssize_t>(points_.size())) {
      points_.resize(static_cast<size_t>(count));
      count = utf8proc_decompose(bytes, length, points_.data(), count, options);
    }
    if (count >= 0) count = utf8proc_normalize_utf32(points_.data(), count, options);
    if (count < 0) throw std::bad_alloc();  // valid UTF-8 gives no other error
    std::string normal;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      append_utf8(normal, static_cast<char32_t>(points_[i]));
    }
    built_.put(normal, run.begin);
  }

  const MappedText& text_;
  TextBuilder built_;
  bool composes_;
  std::vector<utf8proc_int32_t> points_;
};

MappedText canonical(const MappedText& text, CanonicalForm form) {
  return CanonicalText(text, form).make();
}

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const JsonPart& part) : text_(part.required_text("prepend")) {
    if (text_.size() > kMaxContentBytes) part.fail("prepend", "up to 1024 bytes");
  }
  MappedText apply(const MappedText& text) const override {
    if (text.text.empty()) return text;
    TextBuilder built(text);
    built.put(text_, 0);
    built.copy({0, text.text.size()});
    return built.take();
  }

 private:
  std::string text_;
};

// Replaces each match of a pattern, or each occurrence of a text.
class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonPart& part) : replacement_(part) {}
  MappedText apply(const MappedText& text) const override {
    TextBuilder built(text);
    size_t copied = 0;
    replacement_.for_each_match(text.text, [&](Span match) {
      built.copy({copied, match.begin});
      built.put(replacement_.content(), match.begin);
      copied = match.end;
      if (built.size() > max_normalized_bytes(text.text.size())) {
        throw InputError(
            fmt::format("{}: the replacement makes the text too long", replacement_.where()));
      }
    });
    built.copy({copied, text.text.size()});
    return built.take();
  }

 private:
  Replacement replacement_;
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const JsonPart& part)
      : left_(part.boolean_or("strip_left", false)),
        right_(part.boolean_or("strip_right", false)) {}
  MappedText apply(const MappedText& text) const override {
    Span kept{0, text.text.size()};
    while (left_ && kept.size() > 0 && is_white_space(code_point_at(text.text, kept.begin))) {
      kept.begin += utf8_bytes(text.text[kept.begin]);
    }
    while (right_ && kept.size() > 0) {
      const size_t last = character_before(text.text, kept.end);
      if (!is_white_space(code_point_at(text.text, last))) break;
      kept.end = last;
    }
    TextBuilder built(text);
    built.copy(kept);
    return built.take();
  }

 private:
  bool left_, right_;
};

class Canonical final : public Normalizer {
 public:
  explicit Canonical(CanonicalForm form) : form_(form) {}
  MappedText apply(const MappedText& text) const override { return canonical(text, form_); }

 private:
  CanonicalForm form_;
};

std::unique_ptr<const Normalizer> make_step(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "NFC") return std::make_unique<Canonical>(CanonicalForm::kComposed);
  if (type == "NFD") return std::make_unique<Canonical>(CanonicalForm::kDecomposed);
  if (type == "Prepend") return std::make_unique<Prepend>(part);
  if (type == "Replace") return std::make_unique<Replace>(part);
  if (type == "Strip") return std::make_unique<Strip>(part);
  part.refuse("NFC, NFD, Prepend, Replace, Strip, Sequence");
}

}  // namespace

NormalizerChain::NormalizerChain(const nlohmann::json& part, const std::string& place)
    : place_(place) {
  if (part.is_null()) return;
  for (const JsonPart& step : steps_of(part, place, "normalizers")) {
    steps_.push_back(make_step(step));
  }
}

void NormalizerChain::apply(MappedText& text) const {
  const size_t most = max_normalized_bytes(text.text.size());
  for (const auto& step : steps_) {
    text = step->apply(text);
    if (text.text.size() <= most) continue;
    throw InputError(fmt::format("{}: the normalized text has {} bytes; allowed: {}", place_,
                                 text.text.size(), most));
  }
}

}  // namespace fasa::text
