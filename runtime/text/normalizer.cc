#include "runtime/text/normalizer.h"

#include <fmt/format.h>

#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/canonical_form.h"
#include "runtime/text/json_part.h"
#include "runtime/text/replacement.h"

namespace fasa::text {
namespace {

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
