#include "runtime/text/tokenizer_file.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxValues = 1 << 21;  // without vocabulary and merges

// SAX handler: reads a 30 MB file five times faster than a JSON document.
class FileReader final : public json::json_sax_t {
 public:
  explicit FileReader(std::string place) : place_(std::move(place)) {}
  TokenizerFile take() { return std::move(file_); }

  bool null() override { return value(nullptr); }
  bool boolean(bool given) override { return value(given); }
  bool number_integer(number_integer_t given) override { return number(given); }
  bool number_unsigned(number_unsigned_t given) override {
    constexpr number_unsigned_t kMax = INT64_MAX;
    return number(static_cast<int64_t>(std::min(given, kMax)));
  }
  bool number_float(number_float_t given, const string_t&) override { return value(given); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& given) override;
  bool key(string_t& given) override;
  bool start_object(std::size_t) override;
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw InputError(fmt::format("{}: invalid JSON at byte {}", place_, position));
  }

 private:
  enum class Within { kDocument, kVocabulary, kMerges, kMerge, kSkipped };

  bool value(json given);
  bool number(int64_t given);
  bool enter(json container);
  bool end();
  bool is_model_member(std::string_view name) const {
    return open_.size() == 2 && root_key_ == "model" && model_key_ == name;
  }
  json* put(json given);
  [[noreturn]] void refuse_vocabulary() const {
    throw InputError(fmt::format(
        "{}: model.vocab: \"{}\" has no valid id; allowed: an object of pieces and their ids",
        place_, cut_text(piece_, 80)));
  }
  [[noreturn]] void refuse_merges() const {
    throw InputError(fmt::format(
        "{}: model.merges[{}] is not a merge; allowed: an array of \"A B\" or [\"A\", \"B\"]",
        place_, file_.merges.size()));
  }

  std::string place_;
  TokenizerFile file_;
  Within within_ = Within::kDocument;
  std::vector<json*> open_;  // open containers, the document first
  json* member_ = nullptr;   // member of the innermost object that takes the next value
  std::string root_key_, model_key_, piece_;
  std::vector<std::string> merge_;
  size_t values_ = 0;
  size_t skipped_depth_ = 0;
};

json* FileReader::put(json given) {
  if (++values_ > kMaxValues) {
    throw InputError(fmt::format("{}: too many values besides vocabulary and merges; allowed: {}",
                                 place_, kMaxValues));
  }
  if (open_.empty()) {
    file_.document = std::move(given);
    return &file_.document;
  }
  if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(given));
  *member_ = std::move(given);
  return member_;
}

bool FileReader::value(json given) {
  if (within_ == Within::kVocabulary) refuse_vocabulary();
  if (within_ == Within::kMerges || within_ == Within::kMerge) refuse_merges();
  if (within_ == Within::kDocument) put(std::move(given));
  return true;
}

bool FileReader::number(int64_t given) {
  if (within_ != Within::kVocabulary) return value(given);
  file_.vocabulary.add(piece_, given, place_ + ": model.vocab");
  return true;
}

bool FileReader::string(string_t& given) {
  if (within_ == Within::kMerges) {
    file_.merges.add(given, place_ + ": model.merges");
  } else if (within_ == Within::kMerge) {
    if (merge_.size() == 2) refuse_merges();
    merge_.push_back(given);
  } else {
    return value(given);
  }
  return true;
}

bool FileReader::key(string_t& given) {
  if (within_ == Within::kVocabulary) {
    piece_ = given;
  } else if (within_ == Within::kDocument) {
    if (open_.size() == 1) root_key_ = given;
    if (open_.size() == 2) model_key_ = given;
    member_ = &(*open_.back())[given];
  }
  return true;
}

bool FileReader::enter(json container) {
  if (open_.size() + skipped_depth_ == kMaxDepth) {
    throw InputError(fmt::format("{}: nested too deep; allowed: {} levels", place_, kMaxDepth));
  }
  if (within_ == Within::kSkipped) {
    ++skipped_depth_;
  } else {
    open_.push_back(put(std::move(container)));
  }
  return true;
}

bool FileReader::start_object(std::size_t) {
  if (within_ == Within::kVocabulary) refuse_vocabulary();
  if (within_ == Within::kMerges || within_ == Within::kMerge) refuse_merges();
  if (within_ == Within::kDocument && is_model_member("vocab")) {
    within_ = Within::kVocabulary;
    file_.has_vocabulary = true;
    return true;
  }
  return enter(json::object());
}

bool FileReader::start_array(std::size_t) {
  if (within_ == Within::kVocabulary) refuse_vocabulary();
  if (within_ == Within::kMerge) refuse_merges();
  if (within_ == Within::kMerges) {
    within_ = Within::kMerge;
    merge_.clear();
    return true;
  }
  if (within_ == Within::kDocument && is_model_member("merges")) {
    within_ = Within::kMerges;
    file_.has_merges = true;
    return true;
  }
  if (within_ == Within::kDocument && is_model_member("vocab")) {
    within_ = Within::kSkipped;
    skipped_depth_ = 1;
    file_.has_scored_pieces = true;
    return true;
  }
  return enter(json::array());
}

bool FileReader::end_array() {
  if (within_ == Within::kMerge) {
    if (merge_.size() != 2) refuse_merges();
    file_.merges.add(merge_[0], merge_[1], place_ + ": model.merges");
    within_ = Within::kMerges;
    return true;
  }
  return end();
}

bool FileReader::end() {
  if (within_ == Within::kVocabulary || within_ == Within::kMerges) {
    within_ = Within::kDocument;
  } else if (within_ == Within::kSkipped) {
    if (--skipped_depth_ == 0) within_ = Within::kDocument;
  } else {
    open_.pop_back();
  }
  return true;
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view json_text, const std::string& place) {
  if (json_text.size() > kMaxFileBytes) {
    throw InputError(fmt::format("{}: the file has {} bytes; allowed: up to {}", place,
                                 json_text.size(), kMaxFileBytes));
  }
  FileReader reader(place);
  json::sax_parse(json_text.begin(), json_text.end(), &reader);
  TokenizerFile file = reader.take();
  if (!file.document.is_object()) {
    throw InputError(fmt::format("{}: not a tokenizer; allowed: a JSON object", place));
  }
  return file;
}

}  // namespace fasa::text
