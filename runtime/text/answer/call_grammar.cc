#include "runtime/text/answer/call_grammar.h"

#include <algorithm>
#include <utility>

#include "runtime/text/answer/mark_search.h"
#include "runtime/text/answer/parameter_type.h"
#include "runtime/text/grammar/schema_error.h"
#include "runtime/text/grammar/schema_grammar.h"

namespace fasa::text {

using Rule = CallGrammar::Rule;

Rule CallGrammar::rule_of(Symbols symbols) {
  const Rule rule = grammar_.new_rule();
  grammar_.add(rule, symbols);
  return rule;
}

void CallGrammar::add_text(Symbols& symbols, std::string_view text) {
  const Symbols literal = grammar_.literal(text);
  symbols.insert(symbols.end(), literal.begin(), literal.end());
}

void CallGrammar::add_marks(Symbols& symbols, std::string_view text) {
  while (!text.empty()) {
    const size_t blanks = leading_blanks(text);
    if (blanks > 0) {  // as the mark has them, or none
      const Rule own = rule_of({});
      grammar_.add(own, grammar_.literal(text.substr(0, blanks)));
      symbols.push_back(own);
    }
    text.remove_prefix(blanks);
    const size_t end = std::min(text.find_first_of(" \n\t"), text.size());
    add_text(symbols, text.substr(0, end));
    text.remove_prefix(end);
  }
}

// Letters, digits, _ and -.
Rule CallGrammar::word() {
  ByteSet letters;
  for (const char letter : std::string_view("0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "abcdefghijklmnopqrstuvwxyz")) {
    letters.set(static_cast<unsigned char>(letter));
  }
  const Rule rest = grammar_.new_rule(), rule = grammar_.new_rule();
  grammar_.add(rest, {});
  grammar_.add(rest, {grammar_.byte_of(letters), rest});
  grammar_.add(rule, {grammar_.byte_of(letters), rest});
  return rule;
}

// --- arguments ---

Rule CallGrammar::any_tags() {
  Symbols symbols;
  add_text(symbols, row_.calls.tags.key_open);
  symbols.push_back(word());
  add_text(symbols, row_.calls.tags.key_close + row_.calls.tags.value_open);
  symbols.push_back(json_.text_until(row_.calls.tags.value_close));
  const Rule more = grammar_.new_rule();
  symbols.push_back(more);
  grammar_.add(more, {});
  grammar_.add(more, symbols);
  return more;
}

// What a text without quotes is to match is not enforced.
void CallGrammar::ignore_of_text(const CallableFunction& function, const std::string& name) {
  const auto* const schema = find_parameter(function.parameters, name);
  if (schema == nullptr || !schema->is_object()) return;
  for (const char* const keyword : {"pattern", "format", "minLength", "maxLength"}) {
    const std::string place = function.name + ".parameters.properties." + name + "." + keyword;
    const bool known = std::find(ignored_.begin(), ignored_.end(), place) != ignored_.end();
    if (schema->contains(keyword) && !known) ignored_.push_back(place);
  }
}

Rule CallGrammar::tags(const CallableFunction& function) {
  const ArgumentTags& tags = row_.calls.tags;
  SchemaGrammar schema(grammar_, function.parameters, function.name + ".parameters");
  const auto members = schema.build_members();
  if (members.empty()) return any_tags();
  ignored_.insert(ignored_.end(), schema.ignored().begin(), schema.ignored().end());
  Rule rest = json_.literal("");
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    Symbols symbols;
    add_text(symbols, tags.key_open + member->name + tags.key_close + tags.value_open);
    const ParameterKinds kinds = parameter_kinds(function.parameters, member->name);
    const auto values = text_values(function.parameters, member->name);
    if (!values.empty()) {
      const Rule value = grammar_.new_rule();
      for (const std::string& text : values) grammar_.add(value, grammar_.literal(text));
      symbols.push_back(value);
      add_text(symbols, tags.value_close);
    } else if (kinds.text || !kinds.known) {
      symbols.push_back(json_.text_until(tags.value_close));
      ignore_of_text(function, member->name);
    } else {
      symbols.push_back(member->value);
      add_text(symbols, tags.value_close);
    }
    symbols.push_back(rest);
    const Rule rule = rule_of(std::move(symbols));
    if (!member->required) grammar_.add(rule, {rest});
    rest = rule;
  }
  return rest;
}

Rule CallGrammar::keywords(const CallableFunction& function) {
  SchemaGrammar schema(grammar_, function.parameters, function.name + ".parameters");
  Rule first = json_.literal(""), later = first;
  for (auto members = schema.build_members(); !members.empty(); members.pop_back()) {
    const SchemaGrammar::Property& last = members.back();
    Symbols symbols;
    add_text(symbols, last.name + "=");
    symbols.insert(symbols.end(), {last.value, later});
    const Rule member = rule_of(std::move(symbols));
    const Rule next = rule_of({grammar_.byte(','), grammar_.byte(' '), member});
    const Rule begin = rule_of({member});
    if (!last.required) {
      grammar_.add(begin, {first});
      grammar_.add(next, {later});
    }
    first = begin;
    later = next;
  }
  ignored_.insert(ignored_.end(), schema.ignored().begin(), schema.ignored().end());
  return rule_of({grammar_.byte('('), first, grammar_.byte(')')});
}

Rule CallGrammar::any_arguments() {
  switch (row_.calls.arguments) {
    case ArgumentForm::kTags:
      return any_tags();
    case ArgumentForm::kKeywords: {
      const Rule more = grammar_.new_rule();
      const Rule member = rule_of({word(), grammar_.byte('='), json_.value()});
      grammar_.add(more, {});
      grammar_.add(more, {grammar_.byte(','), grammar_.byte(' '), member, more});
      const Rule all = rule_of({member, more});
      grammar_.add(all, {});
      return rule_of({grammar_.byte('('), all, grammar_.byte(')')});
    }
    default:
      return JsonGrammar(grammar_, {row_.calls.quote}).object();
  }
}

// Arguments are always an object, whatever else the schema allows.
Rule CallGrammar::arguments_of_schema(const CallableFunction& function) {
  const auto& schema = function.parameters;
  if (!is_object_schema(schema)) {
    throw SchemaError(function.name + ".parameters.type", "allowed: \"object\"");
  }
  if (row_.calls.arguments == ArgumentForm::kTags) return tags(function);
  if (row_.calls.arguments == ArgumentForm::kKeywords) return keywords(function);
  SchemaGrammar reader(grammar_, schema, function.name + ".parameters", {row_.calls.quote});
  const Rule rule = reader.build();
  ignored_.insert(ignored_.end(), reader.ignored().begin(), reader.ignored().end());
  return rule;
}

Rule CallGrammar::arguments(const CallableFunction& function) {
  if (function.parameters.is_null()) {
    const ArgumentForm form = row_.calls.arguments;
    return json_.literal(form == ArgumentForm::kTags       ? ""
                         : form == ArgumentForm::kKeywords ? "()"
                                                           : "{}");
  }
  if (function.parameters.empty()) return any_arguments();
  try {
    return arguments_of_schema(function);
  } catch (const SchemaError&) {
    if (forced_) throw;
    return any_arguments();
  }
}

// --- calls ---

// The text behind a mark that is one byte.
std::string CallGrammar::behind(const std::string& mark) const {
  return mark.substr(std::min(leading_blanks(mark) + 1, mark.size()));
}

Rule CallGrammar::one_call(const CallableFunction& function, bool marked) {
  const CallFormat& calls = row_.calls;
  Symbols symbols;
  if (marked) add_marks(symbols, calls.open);
  if (!marked && calls.section_open.empty() && !calls.alone) add_marks(symbols, behind(calls.open));
  if (calls.name_member.empty()) {
    add_marks(symbols, calls.name_open);
    add_text(symbols, function.name);
    add_text(symbols, calls.name_close);
    symbols.push_back(arguments(function));
  } else {
    add_text(symbols, "{");
    if (!calls.id_member.empty()) {
      add_text(symbols, "\"" + calls.id_member + "\": \"");
      symbols.push_back(json_.integer(0, 9999));
      add_text(symbols, "\", ");
    }
    add_text(symbols, "\"" + calls.name_member + "\": " + json_.key(function.name) + ", \"" +
                          calls.arguments_member + "\": ");
    symbols.push_back(arguments(function));
    add_text(symbols, "}");
  }
  add_marks(symbols, calls.close);
  return rule_of(std::move(symbols));
}

Rule CallGrammar::channel_call(const CallableFunction& function, const std::string& channel) {
  const ChannelFormat& channels = row_.channels;
  Symbols symbols;
  add_text(symbols, channel + " " + channels.recipient + function.name + " ");
  add_text(symbols, channels.constraint + channels.message);
  symbols.push_back(arguments(function));
  return rule_of(std::move(symbols));
}

Rule CallGrammar::call(std::span<const CallableFunction> functions) {
  const CallFormat& calls = row_.calls;
  const Rule any = grammar_.new_rule();
  for (const CallableFunction& function : functions) {
    Symbols symbols;
    if (!row_.channels.open.empty()) {
      add_text(symbols, row_.channels.open);
      symbols.push_back(channel_call(function, row_.channels.call));
    } else {
      add_marks(symbols, calls.section_open);
      if (calls.list) add_text(symbols, "[");
      symbols.push_back(one_call(function, !calls.alone));
      if (calls.list) add_text(symbols, "]");
      add_marks(symbols, calls.section_close);
    }
    grammar_.add(any, symbols);
  }
  return any;
}

Rule CallGrammar::behind_mark(std::span<const CallableFunction> functions, bool one_call_only) {
  const CallFormat& calls = row_.calls;
  const ChannelFormat& channels = row_.channels;
  const Rule any = grammar_.new_rule();
  if (!channels.open.empty()) {
    for (const std::string* const name : {&channels.thought, &channels.content, &channels.call}) {
      grammar_.add(any, grammar_.literal(*name + channels.message));
    }
    for (const std::string* const name : {&channels.thought, &channels.call}) {
      for (const CallableFunction& function : functions) {
        grammar_.add(any, {channel_call(function, *name)});
      }
    }
    return any;
  }
  const bool section = !calls.section_open.empty();
  for (const CallableFunction& function : functions) {
    grammar_.add(any, {one_call(function, section)});
  }
  if (!section) return any;
  Symbols symbols;
  add_marks(symbols, behind(calls.section_open));
  if (calls.list) add_text(symbols, "[");
  symbols.push_back(any);
  if (!one_call_only) {
    const Rule more = grammar_.new_rule();
    Symbols next;
    add_marks(next, calls.between);
    next.insert(next.end(), {any, more});
    grammar_.add(more, {});
    grammar_.add(more, next);
    symbols.push_back(more);
  }
  if (calls.list) add_text(symbols, "]");
  add_marks(symbols, calls.section_close);
  return rule_of(std::move(symbols));
}

// --- answers ---

Rule CallGrammar::content(Rule answer) {
  const Rule rule = rule_of({answer});
  const ChannelFormat& channels = row_.channels;
  if (!channels.open.empty()) {
    Symbols symbols = grammar_.literal(channels.open + channels.content + channels.message);
    symbols.push_back(answer);
    grammar_.add(rule, symbols);
  }
  for (const Region& region : row_.contents) {
    Symbols symbols = grammar_.literal(region.open);
    symbols.push_back(answer);
    add_text(symbols, region.close);
    grammar_.add(rule, symbols);
  }
  return rule;
}

Rule CallGrammar::behind_thought(std::span<const Region> regions, bool open, Rule answer) {
  const Rule rule = grammar_.new_rule();
  if (!open) grammar_.add(rule, {answer});
  for (const Region& region : regions) {
    Symbols symbols;
    if (!open) add_text(symbols, without_blanks(region.open));
    symbols.push_back(json_.text_until(without_blanks(region.close)));
    if (row_.channels.open.empty()) {
      const Rule lines = rule_of({});
      for (const char* const text : {"\n", "\n\n"}) grammar_.add(lines, grammar_.literal(text));
      symbols.push_back(lines);
    } else {
      add_text(symbols, row_.channels.start + row_.channels.role);
    }
    symbols.push_back(answer);
    grammar_.add(rule, symbols);
  }
  return rule;
}

}  // namespace fasa::text
