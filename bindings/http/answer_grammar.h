// What an answer must be where a request asks for JSON, or for a call: grammars of whole answers.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "bindings/http/tool_fields.h"
#include "bindings/http/tool_format.h"
#include "runtime/text/grammar/byte_grammar.h"
#include "runtime/text/grammar/token_grammar.h"

namespace fasa::serve {

// What may stand before it.
enum class ThoughtForm {
  kNone,
  kOptional,  // <think>...</think>, or nothing
  kOpen,      // the prompt has begun one
};

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  Json schema = nullptr;  // of kJsonSchema
};

// "response_format" of chat completions. Throws ApiError.
ResponseFormat read_response_format(const RequestFields& fields);
// {"type": ...} as /v1/responses has it in "text.format": the schema lies beside its type.
ResponseFormat read_text_format(const RequestFields& format);

// Grammars by what they were asked for: those that were used last are kept, and what their answers
// have met with them. Any thread.
class AnswerGrammars {
 public:
  explicit AnswerGrammars(std::shared_ptr<const text::TokenTable> tokens)
      : tokens_(std::move(tokens)) {}

  // Throws ApiError naming the keyword that no answer can be held to.
  std::shared_ptr<text::TokenGrammar> of_format(const ResponseFormat& format, ThoughtForm thought);
  // Of one call of one of the tools that may be called.
  std::shared_ptr<text::TokenGrammar> of_call(const ToolFields& tools, ToolFormat format,
                                              ThoughtForm thought);

 private:
  static constexpr size_t kMaxKept = 32;
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  template <typename Make>
  std::shared_ptr<text::TokenGrammar> find(std::string key, Make make);
  void forget_old();

  const std::shared_ptr<const text::TokenTable> tokens_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<text::TokenGrammar>>> kept_;  // used last first
};

}  // namespace fasa::serve
