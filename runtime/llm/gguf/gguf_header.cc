#include "runtime/llm/gguf/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/io/foreign_file.h"
#include "runtime/llm/gguf/gguf_bytes.h"

namespace fasa {
namespace {

constexpr uint64_t kMaxValues = 1 << 16;
constexpr uint64_t kMaxNameBytes = 1 << 16;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

}  // namespace

// Reads the file from the beginning, up to the limit on header size.
class GgufHeader::Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& name)
      : bytes_(file.first(std::min<uint64_t>(file.size(), kMaxGgufHeaderBytes))),
        cut_(bytes_.size() < file.size()),
        name_(name) {}

  uint64_t at() const { return at_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > bytes_.size() - at_) {
      fail(fmt::format("{} of {} bytes {}", what, count,
                       cut_ ? "exceeds the 64 MiB limit of a header"
                            : "goes beyond the end of the file; is the file truncated?"));
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <typename T>
  T read(std::string_view what) {
    return load_gguf<T>(take(sizeof(T), what));
  }
  std::string_view text(std::string_view what, uint64_t most) {
    const auto length = read<uint64_t>(what);
    if (length > most)
      fail(fmt::format("{} has {} bytes; allowed: at most {}", what, length, most));
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string name(std::string_view what) {
    const std::string_view name = text(what, kMaxNameBytes);
    if (!is_valid_utf8(name)) fail(fmt::format("{} is no valid UTF-8", what));
    return std::string(name);
  }
  GgufType type(const std::string& key) {
    const auto type = read<uint32_t>("a type");
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      fail(fmt::format("key {} has type {}; allowed: 0 to 12", key, type));
    }
    return static_cast<GgufType>(type);
  }
  // Records the location of a value and skips it.
  GgufValue value(const std::string& key) {
    GgufValue value;
    value.type = type(key);
    value.is_array = value.type == GgufType::kArray;
    if (value.is_array) {
      value.type = type(key);
      if (value.type == GgufType::kArray) fail(fmt::format("key {} is an array of arrays", key));
      value.count = read<uint64_t>("the length of an array");
    }
    const uint64_t begin = at_;
    if (value.type == GgufType::kString) {
      // Each string takes at least 8 bytes, so a false count soon reaches the end of the file.
      for (uint64_t i = 0; i < value.count; ++i) text("a string", kMaxGgufHeaderBytes);
    } else {
      const uint64_t each = gguf_element_bytes(value.type);
      if (value.count > kMaxGgufHeaderBytes) {
        fail(fmt::format("key {} has {} elements, more than fit in a header", key, value.count));
      }
      take(value.count * each, "an array");
    }
    value.bytes = bytes_.subspan(begin, at_ - begin);
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: byte {}: {}", name_, at_, what));
  }

 private:
  std::span<const std::byte> bytes_;
  bool cut_;
  uint64_t at_ = 0;
  const std::string& name_;
};

GgufHeader::GgufHeader(std::span<const std::byte> file, std::string name)
    : name_(std::move(name)), file_(file) {
  Cursor cursor(file, name_);
  const auto magic = cursor.take(4, "the magic number");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    const std::string kind = foreign_file(file);
    throw InputError(fmt::format("{}: not a GGUF file: it {}", name_,
                                 kind.empty() ? "does not begin with \"GGUF\"" : "is " + kind));
  }
  const auto version = cursor.read<uint32_t>("the version");
  if (version != 2 && version != 3) {
    if (const uint32_t swapped = __builtin_bswap32(version); swapped <= UINT16_MAX) {
      cursor.fail(
          fmt::format("a big-endian file (GGUF version {}); allowed: little endian; convert "
                      "it with llama.cpp's gguf_convert_endian.py",
                      swapped));
    }
    cursor.fail(fmt::format("GGUF version {}; allowed: 2, 3", version));
  }
  const auto tensors = cursor.read<uint64_t>("the number of tensors");
  const auto values = cursor.read<uint64_t>("the number of keys");
  if (tensors > kMaxGgufTensors || values > kMaxValues) {
    cursor.fail(fmt::format("the file has {} tensors and {} keys; allowed: at most {} and {}",
                            tensors, values, kMaxGgufTensors, kMaxValues));
  }
  read_values(&cursor, values);
  alignment_ =
      static_cast<uint64_t>(integer_or("general.alignment", 1, int64_t{kMaxAlignment}, 32));
  if ((alignment_ & (alignment_ - 1)) != 0) fail("general.alignment", "a power of two");
  read_tensors(&cursor, tensors);
}

void GgufHeader::read_values(Cursor* cursor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = cursor->name("a key");
    if (!values_.emplace(key, cursor->value(key)).second) {
      cursor->fail(fmt::format("key {} occurs twice", key));
    }
  }
}

namespace {

// Returns an error text; "" if the shape is valid.
std::string shape_error(const GgufTensor& tensor, uint64_t* bytes) {
  uint64_t elements = 1;
  for (const int64_t length : tensor.shape) {
    if (length < 1 || __builtin_mul_overflow(elements, static_cast<uint64_t>(length), &elements)) {
      return "a length is 0, or the product of the lengths exceeds 2^64";
    }
  }
  if (!tensor.block->is_read()) return "";
  const int64_t width = tensor.shape.back();
  if (width % tensor.block->elements != 0) {
    return fmt::format("a row has {} elements; type {} needs a multiple of {}", width,
                       tensor.block->name, tensor.block->elements);
  }
  const uint64_t blocks = elements / static_cast<uint64_t>(tensor.block->elements);
  if (__builtin_mul_overflow(blocks, static_cast<uint64_t>(tensor.block->bytes), bytes)) {
    return "the product of the lengths is too large";
  }
  return "";
}

}  // namespace

void GgufHeader::read_tensors(Cursor* cursor, uint64_t count) {
  std::vector<GgufTensor*> in_order;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string key = cursor->name("a tensor's name");
    GgufTensor tensor;
    const auto dims = cursor->read<uint32_t>("a number of dimensions");
    if (dims < 1 || dims > kMaxDims) {
      cursor->fail(
          fmt::format("tensor {} has {} dimensions; allowed: 1 to {}", key, dims, kMaxDims));
    }
    for (uint32_t dim = 0; dim < dims; ++dim) {
      tensor.shape.push_back(static_cast<int64_t>(cursor->read<uint64_t>("a length")));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.block = block_of(cursor->read<uint32_t>("a type"));
    const std::string error = shape_error(tensor, &tensor.bytes);
    if (!error.empty()) cursor->fail(fmt::format("tensor {}: {}", key, error));
    tensor.begin = cursor->read<uint64_t>("an offset");
    const auto [place, is_new] = tensors_.emplace(key, std::move(tensor));
    if (!is_new) cursor->fail(fmt::format("tensor {} occurs twice", key));
    place->second.name = place->first;
    in_order.push_back(&place->second);
  }
  const uint64_t end = (cursor->at() + alignment_ - 1) / alignment_ * alignment_;
  if (end > file_.size() && count > 0)
    cursor->fail("the file ends before the tensors' data; is it truncated?");
  data_begin_ = std::min<uint64_t>(end, file_.size());
  check_layout(std::move(in_order));
  for (auto& [key, tensor] : tensors_) tensor.data = file_.data() + data_begin_ + tensor.begin;
}

void GgufHeader::add_part(GgufHeader&& part, uint32_t index) {
  for (auto& [key, tensor] : part.tensors_) {
    const auto [own, added] = tensors_.emplace(key, std::move(tensor));
    if (!added) {
      throw InputError(fmt::format("{}: tensor {} occurs in an earlier part too", part.name_, key));
    }
    own->second.part = index;
    own->second.name = own->first;
    own->second.block = block_of(static_cast<uint32_t>(own->second.block->type));
  }
}

std::vector<std::string> GgufHeader::keys() const {
  std::vector<std::string> all;
  for (const auto& [key, value] : values_) all.push_back(key);
  return all;
}

const GgmlBlock* GgufHeader::block_of(uint32_t type) {
  if (const GgmlBlock* known = find_ggml_block(type)) return known;
  GgmlBlock& other = other_types_[type];
  other = {.type = static_cast<GgmlType>(type), .name = "", .elements = 0, .bytes = 0};
  return &other;
}

void GgufHeader::require_read(const GgufTensor& tensor) const {
  if (tensor.block->is_read()) return;
  throw InputError(fmt::format(
      "{}: tensor {} has type {}, which fasa does not read; allowed: {}. Files named Q4_K_M, "
      "IQ4_XS, Q3_K_M or Q2_K, for example, hold these types alone",
      name_, tensor.name, ggml_type_text(tensor.block->type), ggml_types_read()));
}

void GgufHeader::check_layout(std::vector<GgufTensor*> in_order) const {
  std::sort(in_order.begin(), in_order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->begin < b->begin; });
  const uint64_t size = file_.size() - data_begin_;
  uint64_t expected = 0;
  for (size_t i = 0; i < in_order.size(); ++i) {
    GgufTensor* const tensor = in_order[i];
    if (!tensor->block->is_read()) {
      const uint64_t next = i + 1 < in_order.size() ? in_order[i + 1]->begin : size;
      tensor->bytes = std::max(next, tensor->begin) - tensor->begin;
    }
    if (tensor->begin != expected) {
      throw InputError(
          fmt::format("{}: tensor {} begins at byte {} of the data; expected {}: tensors overlap "
                      "or leave a gap",
                      name_, tensor->name, tensor->begin, expected));
    }
    if (tensor->bytes > size || tensor->begin > size - tensor->bytes) {
      throw InputError(fmt::format(
          "{}: tensor {} ends beyond the file's {} bytes of data; is the file truncated?", name_,
          tensor->name, size));
    }
    expected = (tensor->begin + tensor->bytes + alignment_ - 1) / alignment_ * alignment_;
  }
}

void GgufHeader::fail(const std::string& key, std::string_view allowed) const {
  const auto found = values_.find(key);
  std::string given = "is missing";
  if (found != values_.end()) {
    const std::string value = found->second.shown();
    given = value.empty() ? "has an unsupported value" : "= " + value;
  }
  throw InputError(fmt::format("{}: key {} {}; allowed: {}", name_, key, given, allowed));
}

bool GgufHeader::any_differs(const std::string& key, double value) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  const GgufValue& given = found->second;
  if (given.type == GgufType::kString) return true;
  for (uint64_t i = 0; i < given.count; ++i) {
    const bool flag = given.type == GgufType::kBool;
    const double one = flag ? static_cast<double>(given.bytes[i]) : given.number_at(i);
    if (one != value) return true;
  }
  return false;
}

const GgufValue* GgufHeader::find(const std::string& key, bool is_array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.is_array != is_array)
    fail(key, is_array ? "an array" : "a single value, not an array");
  return &found->second;
}

int64_t GgufHeader::integer(const std::string& key, int64_t low, int64_t high) const {
  const GgufValue* value = find(key, false);
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  if (value == nullptr || !value->is_integer()) fail(key, allowed);
  const int64_t result = value->integer_at();
  if (result < low || result > high) fail(key, allowed);
  return result;
}

int64_t GgufHeader::integer_or(const std::string& key, int64_t low, int64_t high,
                               int64_t otherwise) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

std::optional<GgufType> GgufHeader::type(const std::string& key) const {
  const GgufValue* value = find(key, false);
  return value == nullptr ? std::nullopt : std::optional(value->type);
}

double GgufHeader::any_number(const std::string& key) const {
  const GgufValue* value = find(key, false);
  if (value == nullptr || gguf_element_bytes(value->type) == 0 || value->type == GgufType::kBool) {
    fail(key, "a number");
  }
  return value->number_at();
}

double GgufHeader::number(const std::string& key) const {
  const double result = any_number(key);
  if (!std::isfinite(result)) fail(key, "a finite number");
  return result;
}

double GgufHeader::number_or(const std::string& key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool GgufHeader::boolean_or(const std::string& key, bool otherwise) const {
  const GgufValue* value = find(key, false);
  if (value == nullptr) return otherwise;
  if (value->is_integer()) return integer(key, 0, 1) != 0;
  if (value->type != GgufType::kBool) fail(key, "true or false");
  return load_gguf<uint8_t>(value->bytes) != 0;
}

std::optional<std::string_view> GgufHeader::text(const std::string& key) const {
  const GgufValue* value = find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) fail(key, "a text");
  const auto bytes = value->bytes.subspan(sizeof(uint64_t));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::string_view> GgufHeader::texts(const std::string& key) const {
  const GgufValue* value = find(key, true);
  if (value == nullptr) return {};
  if (value->type != GgufType::kString) fail(key, "an array of strings");
  std::vector<std::string_view> all;
  all.reserve(value->count);
  auto rest = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load_gguf<uint64_t>(rest);
    rest = rest.subspan(sizeof(uint64_t));
    all.emplace_back(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  return all;
}

std::vector<double> GgufHeader::numbers(const std::string& key) const {
  const GgufValue* value = find(key, true);
  if (value == nullptr) return {};
  if (gguf_element_bytes(value->type) == 0 || value->type == GgufType::kBool) {
    fail(key, "an array of numbers");
  }
  std::vector<double> all(value->count);
  for (uint64_t i = 0; i < value->count; ++i) all[i] = value->number_at(i);
  return all;
}

std::vector<bool> GgufHeader::flags(const std::string& key) const {
  const GgufValue* value = find(key, true);
  if (value == nullptr) return {};
  const bool numbers = value->is_integer();
  if (!numbers && value->type != GgufType::kBool) fail(key, "an array of true and false");
  std::vector<bool> all(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const int64_t flag = numbers ? value->integer_at(i) : static_cast<int64_t>(value->bytes[i]);
    if (numbers && flag != 0 && flag != 1) fail(key, "an array of true and false, or of 1 and 0");
    all[i] = flag != 0;
  }
  return all;
}

}  // namespace fasa
