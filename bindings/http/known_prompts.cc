#include "bindings/http/known_prompts.h"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace fasa::serve {
namespace {

uint64_t hash_of(const Json& json) {
  const std::string text = json_text(json);
  return XXH3_64bits(text.data(), text.size());
}

// The tools first, then each message.
std::vector<uint64_t> hashes_of(const Json& context) {
  const auto tools = context.find("tools");
  std::vector<uint64_t> hashes = {tools == context.end() ? 0 : hash_of(*tools)};
  for (const Json& message : context["messages"]) hashes.push_back(hash_of(message));
  return hashes;
}

// An answer whose text begins at a byte of the known text.
KnownAnswer known_answer(const EndedAnswer& answer, size_t begin) {
  KnownAnswer known{.begin = begin,
                    .end = begin + answer.text.size(),
                    .said = begin,
                    .content = answer.content,
                    .calls = {}};
  if (!answer.reasoning.empty()) {
    const size_t at = answer.text.find(answer.reasoning);
    known.said = at == std::string::npos ? known.end : begin + at + answer.reasoning.size();
  }
  for (const ToolCall& call : answer.calls)
    known.calls.push_back({call.id, call.name, call.arguments});
  return known;
}

Json parsed_arguments(const Json& arguments) {
  return arguments.is_string() ? Json::parse(arguments.get<std::string>(), nullptr, false)
                               : arguments;
}

// Whether a message of the request has the answer's content and calls, by their ids.
bool is_message_of(const Json& message, const KnownAnswer& answer) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->size() != answer.calls.size()) return false;
  for (size_t i = 0; i < calls->size(); ++i) {
    const Json& call = (*calls)[i];
    const KnownAnswer::Call& known = answer.calls[i];
    const Json& function = call["function"];
    const bool same = call.value("id", "") == known.id &&
                      function.value("name", "") == known.name &&
                      parsed_arguments(function["arguments"]) == parsed_arguments(known.arguments);
    if (!same) return false;
  }
  return text::without_blanks(message.value("content", "")) == text::without_blanks(answer.content);
}

// How a prompt that begins like a known text goes on with its conversation.
enum class Parting { kTemplate, kClient, kOther };

// All that it has again: then the template parts them. Some messages again, at their places: the
// client does. The first one alone may be a system message that conversations share.
Parting parting_of(const KnownText& known, const std::vector<uint64_t>& messages) {
  constexpr size_t kFirst = 2;  // behind the tools and the first message
  const size_t both = std::min(known.messages.size(), messages.size());
  if (both == 0) return Parting::kOther;
  const auto end = known.messages.begin() + static_cast<ptrdiff_t>(both);
  const bool all =
      both == known.messages.size() && std::equal(known.messages.begin(), end, messages.begin());
  if (all) return Parting::kTemplate;
  for (size_t i = kFirst; i < both; ++i) {
    if (known.messages[i] == messages[i]) return Parting::kClient;
  }
  return Parting::kOther;
}

// Where the prompt renders an answer of this server with the same content and calls: there the
// token begins that ends it.
size_t end_of_answer(const KnownAnswer& answer, const ChatRequest& request,
                     const text::ChatPrompt& prompt, const PromptSetting& setting,
                     const text::Tokenizer& tokenizer) {
  const Json& messages = request.context["messages"];
  const auto found = std::find_if(messages.begin(), messages.end(), [&](const Json& message) {
    return is_message_of(message, answer);
  });
  if (found == messages.end()) return 0;
  const auto count = static_cast<size_t>(found - messages.begin()) + 1;
  const size_t behind = end_of_messages(prompt, request, count, setting);
  size_t end = 0;
  for (const int32_t id : tokenizer.ends()) {
    const std::string_view mark = tokenizer.piece(id);
    if (mark.size() > behind) continue;
    const size_t at = prompt.text().rfind(mark, behind - mark.size());
    if (at != std::string::npos) end = std::max(end, at);
  }
  return end;
}

}  // namespace

EncodedPrompt KnownPrompts::encode(const std::string& salt, const ChatRequest& request,
                                   const text::ChatPrompt& prompt, const PromptSetting& setting) {
  EncodedPrompt encoded{.text = prompt.text(), .ids = {}, .messages = hashes_of(request.context)};
  std::optional<KnownText> known;  // a copy, so that others need not wait
  {
    const std::lock_guard lock(mutex_);
    const KnownText* const found = known_.find(salt, prompt.text());
    if (found != nullptr) known = *found;
  }
  if (known) {
    const KnownBeginning same =
        known_beginning(*known, prompt.text(), [&](const KnownAnswer& answer) {
          return end_of_answer(answer, request, prompt, setting, tokenizer_);
        });
    const Parting parting = parting_of(*known, encoded.messages);
    if (parting != Parting::kOther) {
      encoded.parting = parting == Parting::kTemplate ? Loss::kTemplate : Loss::kClient;
      encoded.parted_tokens = static_cast<int64_t>(known->ids.size() - same.ids);
    }
    const auto rest = tokenizer_.encode(prompt.segments(same.prompt_bytes), false);
    if (same.ids > 0 && !rest.empty() && tokenizer_.is_special(rest[0])) {
      const auto begin = known->ids.begin();
      encoded.ids.assign(begin, begin + static_cast<ptrdiff_t>(same.ids));
      encoded.ids.insert(encoded.ids.end(), rest.begin(), rest.end());
      encoded.text = known->text.substr(0, same.bytes) + prompt.text().substr(same.prompt_bytes);
      std::erase_if(known->answers, [&](const auto& one) { return one.end > same.bytes; });
      encoded.answers = std::move(known->answers);
      return encoded;
    }
  }
  encoded.ids = tokenizer_.encode(prompt.segments(), false);
  return encoded;
}

void KnownPrompts::remember(std::string salt, EncodedPrompt prompt, const EndedAnswer& answer) {
  const size_t begin = prompt.text.size();
  KnownText known(tokenizer_, std::move(salt), prompt.text + answer.text, std::move(prompt.ids));
  known.messages = std::move(prompt.messages);
  known.answers = std::move(prompt.answers);
  if (!answer.calls.empty()) known.answers.push_back(known_answer(answer, begin));
  remember(std::move(known));
}

void KnownPrompts::remember(KnownText text) {
  const std::lock_guard lock(mutex_);
  known_.remember(std::move(text));
}

}  // namespace fasa::serve
