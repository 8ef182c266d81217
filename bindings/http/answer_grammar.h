// Grammars of whole answers, for requests that ask for JSON or for a tool call.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/api/tool_fields.h"
#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/grammar/byte_grammar.h"
#include "runtime/text/grammar/token_grammar.h"

namespace fasa::serve {

// The thoughts that may precede the actual answer.
enum class ThoughtForm {
  kNone,
  kOptional,  // a thought, or nothing
  kOpen,      // the prompt ends inside one
};

// What stands around an answer.
struct AnswerSpelling {
  const text::CodedFormat& format;
  ThoughtForm thought = ThoughtForm::kNone;
  std::vector<text::Region> regions = {};  // that a thought may have; with codes
  bool in_content = false;                 // the prompt has begun the content
};

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kChoice };
  Kind kind = Kind::kText;
  Json schema = nullptr;                  // for kJsonSchema
  std::vector<std::string> choices = {};  // for kChoice: the whole answer is one of them
  bool strict = false;                    // every keyword of the schema must be enforced
  std::string field = "response_format";  // its name in errors
  std::string place = "schema";           // the schema's name in errors
};

struct AnswerGrammar {
  std::shared_ptr<text::TokenGrammar> grammar;  // null: none
  std::vector<std::string> ignored;             // keywords that it does not enforce
  bool of_calls = false;  // it begins behind the mark of a call, see AnswerOptions
};

// "response_format" of chat completions; "structured_outputs", "guided_json" and "guided_choice" of
// vLLM; "json_schema" of llama.cpp's server. Throws ApiError for others of theirs and for several.
ResponseFormat read_response_format(const RequestFields& fields);
// {"type": ...} of "text.format" in /v1/responses and of Anthropic's "output_config.format": the
// schema lies beside the type. Errors name it by the path of `format`.
ResponseFormat read_text_format(const RequestFields& format);

// Grammars by request, with the token masks computed so far. The most recently used are cached.
// Thread-safe.
class AnswerGrammars {
 public:
  explicit AnswerGrammars(std::shared_ptr<const text::TokenTable> tokens)
      : tokens_(std::move(tokens)) {}

  // Throws ApiError naming a keyword that is not supported or, where the schema is strict, not
  // enforced.
  AnswerGrammar of_format(const ResponseFormat& format, const AnswerSpelling& spelling);
  // The grammar of one call of one of the allowed tools or, with a format, of an answer of it.
  AnswerGrammar of_call(const ToolFields& tools, const AnswerSpelling& spelling,
                        const ResponseFormat& otherwise = {});
  // The grammar of calls that the model may make, from behind the mark that begins them. Never
  // throws: what a schema says that no grammar expresses is not enforced.
  AnswerGrammar of_optional_calls(const ToolFields& tools, const AnswerSpelling& spelling);

 private:
  static constexpr size_t kMaxKept = 32;
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  template <typename Build>
  AnswerGrammar find(std::string key, const std::string& field, Build build);
  void forget_old();

  const std::shared_ptr<const text::TokenTable> tokens_;
  std::mutex mutex_;
  std::list<std::pair<std::string, AnswerGrammar>> kept_;  // most recently used first
};

}  // namespace fasa::serve
