// A model's answers in chats: the format that they have, how they are read, and their grammars.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/http/answer_grammar.h"
#include "bindings/http/api/tool_fields.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/answer/format_choice.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

// Thread-safe.
class ModelAnswers {
 public:
  // `templates` may be null: then there are no chats. Both outlive it.
  ModelAnswers(const text::ChatTemplates* templates, const text::Tokenizer& tokenizer);

  const text::ChosenFormat& chosen() const { return chosen_; }
  bool calls_tools() const { return templates_ != nullptr && chosen_.has_calls(); }
  bool thinks() const { return !known_thoughts_.empty() || chosen_.format.history.shows_reasoning; }
  // How a chat's answers to a prompt are read. Throws ApiError for tools where the format of calls
  // is unknown.
  std::shared_ptr<const text::AnswerReading> reading(const ToolFields& tools,
                                                     std::string_view prompt) const;
  // The grammar that constrains the answer; null if it is unconstrained. A required call has no
  // format; with tools that may be called the answer is a call or has the format. `reading`: null
  // for text completions.
  AnswerGrammar grammar(const ToolFields& tools, const ResponseFormat& format,
                        const text::AnswerReading* reading);
  // How an answer is read and constrained.
  void apply(AnswerOptions& answer, std::shared_ptr<const text::AnswerReading> reading,
             const AnswerGrammar& grammar) const;

 private:
  AnswerGrammars& grammars();

  const text::ChatTemplates* const templates_;
  const text::Tokenizer& tokenizer_;
  const text::ChosenFormat chosen_;
  const std::shared_ptr<const text::CodedFormat> coded_;
  std::vector<text::Region> known_thoughts_;  // that the template shows; with codes
  std::once_flag grammars_made_;
  std::unique_ptr<AnswerGrammars> grammars_;  // made on first use
};

}  // namespace fasa::serve
