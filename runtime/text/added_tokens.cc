#include "runtime/text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/text/json_part.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxTokens = 1 << 17;
constexpr size_t kMaxTokenBytes = 1024;  // limits the search at each byte of a prompt

bool is_all_white_space(std::string_view text) {
  for (size_t at = 0; at < text.size(); at += utf8_bytes(text[at])) {
    if (!is_white_space(code_point_at(text, at))) return false;
  }
  return true;
}

size_t white_space_before(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t last = character_before(text, end);
    if (!is_white_space(code_point_at(text, last))) break;
    end = last;
  }
  return end;
}

size_t white_space_behind(std::string_view text, size_t begin) {
  while (begin < text.size() && is_white_space(code_point_at(text, begin))) {
    begin += utf8_bytes(text[begin]);
  }
  return begin;
}

AddedToken read_token(const JsonPart& part, const NormalizerChain& normalizer) {
  AddedToken token;
  token.id = static_cast<int32_t>(part.integer("id", 0, kMaxTokenId));
  token.content = part.required_text("content");
  if (token.content.empty() || token.content.size() > kMaxTokenBytes) {
    part.fail("content", fmt::format("1 to {} bytes", kMaxTokenBytes));
  }
  token.single_word = part.boolean_or("single_word", false);
  token.lstrip = part.boolean_or("lstrip", false);
  token.rstrip = part.boolean_or("rstrip", false);
  token.normalized = part.boolean_or("normalized", true);
  token.special = part.boolean_or("special", false);
  token.is_control = !is_all_white_space(token.content);
  MappedText spelling{token.content, {}};
  if (token.normalized) normalizer.apply(spelling);
  token.spelling = std::move(spelling.text);
  if (token.spelling.size() > kMaxTokenBytes) {
    part.fail("content", fmt::format("up to {} bytes when it is normalized", kMaxTokenBytes));
  }
  return token;
}

// Reads all tokens. Hugging Face ignores the ids in the file: a token gets its id in the
// vocabulary, or the next free id. A file with other ids is an error, since it would be read
// differently there.
std::vector<AddedToken> read_tokens(const nlohmann::json& part, const Vocabulary& vocabulary,
                                    const NormalizerChain& normalizer, const std::string& place) {
  std::vector<AddedToken> tokens;
  if (part.is_null()) return tokens;
  if (!part.is_array() || part.size() > kMaxTokens) {
    throw InputError(fmt::format("{}: unsupported value; allowed: an array of up to {} tokens",
                                 place, kMaxTokens));
  }
  auto next = static_cast<int64_t>(vocabulary.size());
  std::unordered_set<std::string_view> seen;
  tokens.reserve(part.size());
  for (size_t i = 0; i < part.size(); ++i) {
    const JsonPart object(part[i], fmt::format("{}[{}]", place, i));
    AddedToken token = read_token(object, normalizer);
    const auto known = vocabulary.find(token.content);
    const int64_t id = known ? *known : next++;
    if (token.id != id) {
      object.fail("id", fmt::format("{}, {}", id,
                                    known ? "the id of this piece in the vocabulary"
                                          : "the next id after the vocabulary"));
    }
    tokens.push_back(std::move(token));
    if (!seen.insert(tokens.back().content).second) object.fail("content", "each token only once");
  }
  return tokens;
}

std::vector<const AddedToken*> tokens_of(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<const AddedToken*> chosen;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) chosen.push_back(&token);
  }
  return chosen;
}

}  // namespace

TokenFinder::TokenFinder(std::vector<const AddedToken*> tokens, const std::string& place)
    : nodes_(1), word_character_(R"([\w\x{200c}\x{200d}])", place) {
  for (const AddedToken* token : tokens) add(token, place);
}

void TokenFinder::add(const AddedToken* token, const std::string& place) {
  if (token->spelling.empty()) return;  // a token that normalizes to nothing is never found
  uint32_t node = 0;
  for (const char character : token->spelling) {
    const auto byte = static_cast<uint8_t>(character);
    auto& children = nodes_[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& known) { return known.first == byte; });
    if (child != children.end()) {
      node = child->second;
      continue;
    }
    const auto added = static_cast<uint32_t>(nodes_.size());
    children.emplace_back(byte, added);
    nodes_.emplace_back();
    node = added;
  }
  if (nodes_[node].token != nullptr) {
    throw InputError(fmt::format(
        "{}: \"{}\" and \"{}\" are equal after normalization; allowed: tokens that differ", place,
        nodes_[node].token->content, token->content));
  }
  nodes_[node].token = token;
  begins_[static_cast<uint8_t>(token->spelling[0])] = true;
}

// Bytes written by a user never form a control token, not even a part of one.
const AddedToken* TokenFinder::longest_at(const MappedText& text, size_t at,
                                          const UserBytes& user) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  bool touches_user = false;
  for (; at < text.text.size(); ++at) {
    const auto& children = nodes_[node].children;
    const auto byte = static_cast<uint8_t>(text.text[at]);
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& known) { return known.first == byte; });
    if (child == children.end()) break;
    node = child->second;
    touches_user |= !user.empty() && user[text.origins[at]] != 0;
    const AddedToken* token = nodes_[node].token;
    if (token != nullptr && !(touches_user && token->is_control)) longest = token;
  }
  return longest;
}

bool TokenFinder::is_word_at(std::string_view text, size_t at) const {
  RegexSearch search(word_character_, text.substr(at, utf8_bytes(text[at])));
  return search.next().has_value();
}

std::vector<TokenSpan> TokenFinder::find(const MappedText& mapped, const UserBytes& user) const {
  const std::string_view text = mapped.text;
  std::vector<TokenSpan> spans;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        begins_[static_cast<uint8_t>(text[at])] ? longest_at(mapped, at, user) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    Span found{at, at + token->spelling.size()};
    at = found.end;
    if (token->single_word) {
      const bool before = found.begin > 0 && is_word_at(text, character_before(text, found.begin));
      const bool behind = found.end < text.size() && is_word_at(text, found.end);
      if (before || behind) continue;
    }
    if (token->lstrip) found.begin = std::max(white_space_before(text, found.begin), done);
    if (token->rstrip) found.end = white_space_behind(text, found.end);
    // A token may begin in the white space that the previous token took. As in Hugging Face, both
    // count, and the text continues after the later one.
    if (done < found.begin) spans.push_back({{done, found.begin}, nullptr});
    spans.push_back({found, token});
    done = found.end;
  }
  if (done < text.size()) spans.push_back({{done, text.size()}, nullptr});
  return spans;
}

AddedTokens::AddedTokens(const nlohmann::json& part, const Vocabulary& vocabulary,
                         const NormalizerChain& normalizer, const std::string& place)
    : tokens_(read_tokens(part, vocabulary, normalizer, place)),
      raw_(tokens_of(tokens_, false), place),
      normalized_(tokens_of(tokens_, true), place) {
  for (const AddedToken& token : tokens_) {
    by_id_.emplace(token.id, &token);
    by_content_.emplace(token.content, &token);
    if (token.special) special_.insert(token.content);
    end_id_ = std::max(end_id_, token.id + 1);
  }
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : found->second;
}

}  // namespace fasa::text
