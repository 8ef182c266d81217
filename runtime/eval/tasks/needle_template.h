// The sentences that state a fact in a text and ask for it afterwards.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// One fact with its key and value filled in.
struct NeedleFact {
  std::string statement;     // in the text
  std::string question;      // after the text
  std::string answer;        // expected after the question, ignoring blanks before it
  std::string written = {};  // the same as it would be written there
};

// The format is that of needle.json in a model's folder: `fact` and `question` with the places
// {key} and {value} (the question has {key} alone), `keys`, `value` {"kind": "digits", "length":
// N}, `answer_ends_with`. models/README.md shows one.
class NeedleTemplate {
 public:
  // Throws InputError that names `name` and the key.
  static NeedleTemplate parse(std::string_view json, const std::string& name);
  static NeedleTemplate load(const std::string& path);
  // needle.json of the model's folder, else the built-in English template.
  static NeedleTemplate of_model(const std::string& model_dir);
  static NeedleTemplate built_in();

  const std::string& name() const { return name_; }  // path, or "built in"
  const std::string& hash() const { return hash_; }  // of its content
  const std::string& ends_with() const { return ends_with_; }
  const std::vector<std::string>& keys() const { return keys_; }
  std::string draw_value(std::mt19937_64& random) const;
  NeedleFact fact(const std::string& key, const std::string& value) const;
  // `count` facts with different keys. Throws UsageError if there are too few keys.
  std::vector<NeedleFact> draw(int count, std::mt19937_64& random) const;
  // True if the answer, up to its end and without surrounding blanks, equals the expected one.
  bool is_right(std::string_view answer, std::string_view expected) const;
  // True if the answer is complete.
  bool is_complete(std::string_view answer) const;

 private:
  std::string name_, hash_, statement_, question_, ends_with_;
  std::vector<std::string> keys_;
  int digits_ = 0;
};

}  // namespace fasa
