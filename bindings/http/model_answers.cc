#include "bindings/http/model_answers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

text::ChosenFormat chosen_format(const text::ChatTemplates* templates) {
  if (templates == nullptr) return {text::answer_formats()[0], "generic"};
  return text::choose_answer_format(*templates);
}

// The answer is written out with its marks: no thought comes before it.
bool has_marks(const ResponseFormat& format, const text::AnswerFormat& row) {
  std::vector<std::string> marks = row.marks();
  if (!row.channels.open.empty()) marks.push_back(row.channels.recipient);
  return std::any_of(format.choices.begin(), format.choices.end(), [&](const std::string& choice) {
    return std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
      return choice.find(mark) != std::string::npos;
    });
  });
}

}  // namespace

ModelAnswers::ModelAnswers(const text::ChatTemplates* templates, const text::Tokenizer& tokenizer)
    : templates_(templates),
      tokenizer_(tokenizer),
      chosen_(chosen_format(templates)),
      coded_(std::make_shared<const text::CodedFormat>(chosen_.format, tokenizer)) {
  const std::string source = templates == nullptr ? "" : templates->source("", true);
  const text::AnswerFormat& row = coded_->row;
  if (const auto& channels = row.channels; !channels.open.empty()) {
    known_thoughts_.push_back({channels.open + channels.thought + channels.message, channels.end});
  }
  for (size_t i = 0; i < row.thoughts.size(); ++i) {
    const auto mark = text::without_blanks(chosen_.format.thoughts[i].open);
    if (source.find(mark) != std::string::npos) known_thoughts_.push_back(row.thoughts[i]);
  }
}

std::shared_ptr<const text::AnswerReading> ModelAnswers::reading(const ToolFields& tools,
                                                                 std::string_view prompt) const {
  text::AnswerReading reading{
      .format = coded_, .start = text::answer_start(*coded_, prompt), .one_call = !tools.parallel};
  if (tools.used() && !chosen_.has_calls()) {
    throw ApiError(400, "invalid_request_error",
                   "tools: this model's chat template writes tool calls in a format that this "
                   "server does not know; docs/answer-formats.md lists those that it knows",
                   "tools", "unsupported_value");
  }
  if (tools.used()) {
    for (const Tool& tool : tools.tools) {
      if (tools.may_call(tool)) reading.functions.push_back({tool.name, tool.parameters});
    }
  }
  return std::make_shared<const text::AnswerReading>(std::move(reading));
}

AnswerGrammar ModelAnswers::grammar(const ToolFields& tools, const ResponseFormat& format,
                                    const text::AnswerReading* reading) {
  AnswerSpelling spelling{.format = *coded_};
  const bool formatted = format.kind != ResponseFormat::Kind::kText;
  const bool forced = tools.choice == ToolChoice::kRequired;
  if (reading == nullptr || has_marks(format, chosen_.format)) {
    return formatted ? grammars().of_format(format, spelling) : AnswerGrammar{};
  }
  using Start = text::AnswerStart::Kind;
  spelling.thought = reading->start.kind == Start::kThought ? ThoughtForm::kOpen
                     : reading->start.kind == Start::kContent || known_thoughts_.empty()
                         ? ThoughtForm::kNone
                         : ThoughtForm::kOptional;
  spelling.regions = known_thoughts_;
  if (spelling.thought == ThoughtForm::kOpen && coded_->row.channels.open.empty()) {
    spelling.regions = {coded_->row.thoughts[reading->start.thought]};
  }
  spelling.in_content = reading->start.kind == Start::kContent;
  if (formatted && !tools.used()) return grammars().of_format(format, spelling);
  if (formatted || forced) {
    return grammars().of_call(tools, spelling, forced ? ResponseFormat{} : format);
  }
  // Optional calls: from a mark on that is a token of its own.
  const std::string mark(text::without_blanks(
      coded_->row.channels.open.empty() ? coded_->row.call_mark() : coded_->row.channels.open));
  const bool token = mark.size() == 1 && text::MarkCodes::is_code(mark[0]);
  if (!tools.used() || !token) return {};
  return grammars().of_optional_calls(tools, spelling);
}

void ModelAnswers::apply(AnswerOptions& answer, std::shared_ptr<const text::AnswerReading> reading,
                         const AnswerGrammar& grammar) const {
  answer.grammar = grammar.grammar;
  answer.grammar_of_calls = grammar.of_calls;
  answer.reading = std::move(reading);
}

AnswerGrammars& ModelAnswers::grammars() {
  std::call_once(grammars_made_, [this] {
    std::map<int32_t, std::string> given;
    for (const auto& mark : coded_->codes.marks()) given[mark.id] = mark.code;
    grammars_ =
        std::make_unique<AnswerGrammars>(std::make_shared<text::TokenTable>(tokenizer_, given));
  });
  return *grammars_;
}

}  // namespace fasa::serve
