// Reads one value byte by byte, in JSON or a dialect of it, and writes it as JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fasa::text {

struct ValueDialect {
  std::string quote = {};     // a mark around texts, which have no escapes; "": none
  bool bare_keys = false;     // of objects
  bool python_texts = false;  // '...' beside "...", with Python's escapes
};

// The JSON grows while the value is read. Repaired: commas before a closing bracket, control
// characters in texts, True, False and None. Not thread-safe.
class ValueReader {
 public:
  enum class State {
    kOpen,
    kDone,    // with this byte
    kBefore,  // a number or word ended before this byte, which is not part of it
    kFailed,  // this byte cannot stand here
  };
  explicit ValueReader(ValueDialect dialect = {}) : dialect_(std::move(dialect)) {}

  State push(char byte);
  // At the end of the text: whether the value is complete.
  bool finish();
  // The JSON since the last call.
  std::string take() { return std::exchange(out_, {}); }

 private:
  enum class Place { kValue, kFirst, kKey, kBareKey, kColon, kText, kWord, kNext };
  static constexpr size_t kMaxDepth = 256;

  State in_text(char byte);
  State escape(char byte);
  State begin_value(char byte);
  State begin_text(char byte, bool key);
  State bare_key(char byte);
  State next_or_close(char byte);
  State close(char byte);
  State end_value();
  bool end_word();
  void add_text(std::string_view bytes);

  ValueDialect dialect_;
  Place place_ = Place::kValue;
  std::string out_;
  std::string held_;      // an escape, a word, or the beginning of a quote mark
  std::string blanks_;    // behind a comma that is not written yet
  std::string brackets_;  // that are open
  std::string quote_;     // that ends the text
  bool key_ = false;      // the text is a key
  bool comma_ = false;    // not written yet
};

// The JSON of a whole text in the dialect, blanks at its ends aside; false: it is none.
bool read_value(std::string_view text, const ValueDialect& dialect, std::string& json);

}  // namespace fasa::text
