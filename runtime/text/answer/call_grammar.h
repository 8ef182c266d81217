// Grammars of calls and thoughts as a format spells them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/grammar/json_grammar.h"

namespace fasa::text {

class CallGrammar {
 public:
  using Rule = ByteGrammar::Rule;

  // Both outlive it. `forced`: schemas that no grammar expresses are an error (SchemaError), else
  // the arguments of their functions are any.
  CallGrammar(ByteGrammar& grammar, const CodedFormat& format, bool forced)
      : grammar_(grammar),
        json_(grammar),
        codes_(format.codes),
        row_(format.row),
        forced_(forced) {}

  // One call of one of the functions, with all marks around it.
  Rule call(std::span<const CallableFunction> functions);
  // What follows the mark that begins calls, up to their end: one call, or several where the
  // format has them within one pair of marks. In a format with channels: a header, and the
  // arguments where it names a function.
  Rule behind_mark(std::span<const CallableFunction> functions, bool one_call);
  // An answer that is content, with the marks that precede content, or without them.
  Rule content(Rule answer);
  // A thought of one of the regions (or none), then the answer; `open`: the prompt ends within one.
  Rule behind_thought(std::span<const Region> regions, bool open, Rule answer);

  // Keywords of schemas that the grammar does not enforce, by their places.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  using Symbols = std::vector<ByteGrammar::Symbol>;

  Rule one_call(const CallableFunction& function, bool marked);
  Rule channel_call(const CallableFunction& function, const std::string& channel);
  Rule arguments(const CallableFunction& function);
  Rule arguments_of_schema(const CallableFunction& function);
  Rule any_arguments();
  Rule tags(const CallableFunction& function);
  void ignore_of_text(const CallableFunction& function, const std::string& name);
  Rule any_tags();
  Rule keywords(const CallableFunction& function);
  Rule word();
  Rule rule_of(Symbols symbols);
  // Blanks of the text may be missing or others.
  void add_marks(Symbols& symbols, std::string_view text);
  void add_text(Symbols& symbols, std::string_view text);
  std::string behind(const std::string& mark) const;

  ByteGrammar& grammar_;
  JsonGrammar json_;
  const MarkCodes& codes_;
  const AnswerFormat& row_;
  const bool forced_;
  std::vector<std::string> ignored_;
};

}  // namespace fasa::text
