// Token ids of chats' prompts: as far as a prompt goes on with a conversation that was answered
// here, it has that conversation's ids, so that the cache's prefix matches.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/http/api/chat_prompt.h"
#include "bindings/http/reply.h"
#include "runtime/serve/known_texts.h"

namespace fasa::serve {

struct EncodedPrompt {
  std::string text;  // of the ids: calls as the model wrote them
  std::vector<int32_t> ids;
  std::vector<uint64_t> messages = {};    // see KnownText
  std::vector<KnownAnswer> answers = {};  // of the text
  // Tokens of the conversation so far that it does not repeat, about, and why.
  int64_t parted_tokens = 0;
  Loss parting = Loss::kTemplate;
};

// Thread-safe.
class KnownPrompts {
 public:
  explicit KnownPrompts(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  EncodedPrompt encode(const std::string& salt, const ChatRequest& request,
                       const text::ChatPrompt& prompt, const PromptSetting& setting);
  // Before the client gets the answer's end, and so before its next request.
  void remember(std::string salt, EncodedPrompt prompt, const EndedAnswer& answer);
  void remember(KnownText text);

 private:
  static constexpr size_t kBytes = size_t{64} << 20;

  const text::Tokenizer& tokenizer_;
  std::mutex mutex_;
  KnownTexts known_{kBytes};
};

}  // namespace fasa::serve
