// How a family of models writes answers: thoughts, content and tool calls. Formats are rows of a
// table; the reader, the grammar, the writer and the marks of an answer come from the same row.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/history_form.h"

namespace fasa::text {

// Text between two marks. Without `open`, it begins where the answer does.
struct Region {
  std::string open, close;
};

enum class ArgumentForm {
  kJson,      // an object
  kTags,      // marks around each key and value; texts as they are
  kPairs,     // {key:value,...} with bare keys, texts between marks of their own
  kKeywords,  // (key=value, ...) as in Python
};

struct ArgumentTags {
  std::string key_open, key_close, value_open, value_close;
};

// Blanks at both ends of a mark are written, and may be missing or more in a text that is read.
struct CallFormat {
  std::string section_open = {}, section_close = {};  // around all calls of an answer
  bool list = false;                                  // the calls are the items of a JSON list
  std::string open = {};                              // before each call
  bool alone = false;  // a first call may lack `open`, as the whole answer
  std::string name_member = {}, arguments_member = {};  // of a JSON object; "": the name is bare
  std::string id_member = {};                           // written before the name
  std::string name_open = {}, name_close = {};          // around a bare name
  std::string id_open = {};                             // of an id between name and name_close
  ArgumentForm arguments = ArgumentForm::kJson;
  ArgumentTags tags = {};  // of kTags
  std::string quote = {};  // of kPairs: around texts
  std::string close = {};  // behind each call
  std::string between = {};
};

// Parts with a header: CHANNEL open HEADER message TEXT end, joined by `start`. The header names
// the kind of the part and the function that a call is for.
struct ChannelFormat {
  std::string open, message, end, start;  // `open` "": the format has no channels
  std::string role;                       // behind `start`
  std::string thought, content, call;     // names of channels
  std::string recipient;                  // before a function's name
  std::string constraint;                 // behind a recipient
};

struct AnswerFormat {
  std::string name;
  std::vector<Region> thoughts = {};  // any of them; at the beginning of an answer
  bool call_ends_thought = false;     // else a call in a thought counts if the thought never ends
  std::vector<std::string> asides = {};  // marks within thoughts that are not part of their text
  std::vector<Region> contents = {};     // marks around content, not part of it
  ChannelFormat channels = {};
  CallFormat calls = {};
  std::vector<std::string> ends = {};   // tokens that end an answer, besides the model's own
  std::vector<std::string> hints = {};  // of templates that describe calls, but do not render them
  HistoryForm history = {};

  // The mark that begins the calls, or each of them; "": the format has none.
  const std::string& call_mark() const {
    return calls.section_open.empty() ? calls.open : calls.section_open;
  }
  // Calls `visit` with each text that has marks.
  void each_text(const std::function<void(std::string&)>& visit);
  // All marks of the row that may be tokens: "<think>", "[ARGS]".
  std::vector<std::string> marks() const;
};

// The rows, those with marks before those without. The first is the generic one: calls in the
// format of Hermes, whose tools the system message describes where a template shows none.
std::span<const AnswerFormat> answer_formats();
// Null for an unknown name.
const AnswerFormat* find_answer_format(std::string_view name);

// `text` without white space at its ends.
std::string_view without_blanks(std::string_view text);

}  // namespace fasa::text
