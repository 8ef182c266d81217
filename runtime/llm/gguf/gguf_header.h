// The header of a GGUF file: metadata and tensor locations. Read once, front to back; every count
// is checked before use. Strings and arrays stay in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/gguf/gguf_types.h"
#include "runtime/llm/gguf/gguf_value.h"

namespace fasa {

inline constexpr uint64_t kMaxGgufHeaderBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxGgufTensors = 100'000;

struct GgufTensor {
  std::string_view name;
  const GgmlBlock* block = nullptr;
  std::vector<int64_t> shape;       // outputs first: the reverse of the file's
  uint64_t begin = 0;               // of the data, bytes
  uint64_t bytes = 0;               // of a type that is not read: up to the next tensor
  const std::byte* data = nullptr;  // in the mapped file
  uint32_t part = 0;                // index of the file among a model's parts
};

// Holds views into `file`, which must outlive it.
class GgufHeader {
 public:
  // Throws InputError, naming `name` and the byte offset, if `file` is not GGUF version 2 or 3,
  // exceeds a limit, has a false length, or has tensors that overlap, leave gaps or end beyond the
  // file. A tensor of a type that is not read is none of these: it may not be needed.
  GgufHeader(std::span<const std::byte> file, std::string name);

  const std::string& name() const { return name_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  std::span<const std::byte> data() const { return file_.subspan(data_begin_); }
  // Adds the tensors of another part of the model. Throws InputError for one that occurs twice.
  void add_part(GgufHeader&& part, uint32_t index);

  std::vector<std::string> keys() const;
  bool has(const std::string& key) const { return values_.contains(key); }
  bool has_array(const std::string& key) const {
    const auto found = values_.find(key);
    return found != values_.end() && found->second.is_array;
  }
  // The type of a single value; nullopt for a missing key.
  std::optional<GgufType> type(const std::string& key) const;
  // All throw InputError naming the key for a value of another type or out of bounds; the functions
  // without a default also throw for a missing key.
  int64_t integer(const std::string& key, int64_t low, int64_t high) const;
  int64_t integer_or(const std::string& key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const std::string& key) const;      // finite
  double any_number(const std::string& key) const;  // finite or not
  double number_or(const std::string& key, double otherwise) const;
  bool boolean_or(const std::string& key, bool otherwise) const;
  std::optional<std::string_view> text(const std::string& key) const;
  // Arrays; empty where the key is missing.
  std::vector<std::string_view> texts(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<bool> flags(const std::string& key) const;  // also of integers 0 and 1
  // Whether the key has another number or flag, or an array with one.
  bool any_differs(const std::string& key, double value) const;
  [[noreturn]] void fail(const std::string& key, std::string_view allowed) const;
  // Throws InputError for a tensor of a type that is not read.
  void require_read(const GgufTensor& tensor) const;

 private:
  class Cursor;
  void read_values(Cursor* cursor, uint64_t count);
  void read_tensors(Cursor* cursor, uint64_t count);
  const GgmlBlock* block_of(uint32_t type);
  void check_layout(std::vector<GgufTensor*> in_order) const;
  const GgufValue* find(const std::string& key, bool is_array) const;

  std::string name_;
  std::span<const std::byte> file_;
  uint64_t data_begin_ = 0;
  uint64_t alignment_ = 32;
  std::map<std::string, GgufValue> values_;
  std::map<std::string, GgufTensor> tensors_;
  std::map<uint32_t, GgmlBlock> other_types_;  // of this file, which are not read
};

}  // namespace fasa
