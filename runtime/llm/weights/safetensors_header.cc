#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/io/foreign_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/weights/safetensors.h"

namespace fasa {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// Bytes of an element; 0 for a dtype outside the format.
uint64_t element_bytes(std::string_view dtype) {
  struct Kind {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr Kind kKinds[] = {{"F64", 8}, {"I64", 8},    {"U64", 8},  {"F32", 4},     {"I32", 4},
                             {"U32", 4}, {"F16", 2},    {"BF16", 2}, {"I16", 2},     {"U16", 2},
                             {"I8", 1},  {"U8", 1},     {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
                             {"C64", 8}, {"F8_E8M0", 1}};
  for (const Kind& kind : kKinds) {
    if (kind.name == dtype) return kind.bytes;
  }
  return 0;
}

bool is_unsigned(const nlohmann::json& value) {
  return value.is_number_integer() && (value.is_number_unsigned() || value.get<int64_t>() >= 0);
}

SafetensorsEntry read_entry(const nlohmann::json& json, const std::string& tensor,
                            const std::string& name) {
  const JsonFields fields(json, name, fmt::format("{}.", tensor));
  SafetensorsEntry entry;
  entry.dtype = fields.text("dtype").value_or("");
  const uint64_t width = element_bytes(entry.dtype);
  if (width == 0) fields.fail("dtype", "F32, F16, BF16 (weights), or another dtype of the format");
  if (!fields.has("shape") || !fields.at("shape").is_array()) {
    fields.fail("shape", "a list of lengths");
  }
  uint64_t bytes = width;
  for (const auto& length : fields.at("shape")) {
    if (!is_unsigned(length) || length.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX) ||
        __builtin_mul_overflow(bytes, length.get<uint64_t>(), &bytes)) {
      fields.fail("shape", "lengths of 0 or more, less than 2^64 bytes in total");
    }
    entry.shape.push_back(length.get<int64_t>());
  }
  const char* allowed = "[begin, end] with 0 <= begin <= end, in bytes";
  if (!fields.has("data_offsets")) fields.fail("data_offsets", allowed);
  const auto& offsets = fields.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !is_unsigned(offsets[0]) ||
      !is_unsigned(offsets[1])) {
    fields.fail("data_offsets", allowed);
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end) fields.fail("data_offsets", allowed);
  if (entry.end - entry.begin != bytes) {
    throw InputError(fmt::format(
        "{}: {}.data_offsets = [{}, {}] span {} bytes, but dtype {} and the shape need {}", name,
        tensor, entry.begin, entry.end, entry.end - entry.begin, entry.dtype, bytes));
  }
  return entry;
}

void check_layout(const std::map<std::string, SafetensorsEntry>& entries, uint64_t data_bytes,
                  const std::string& name) {
  std::vector<std::pair<std::string_view, const SafetensorsEntry*>> order;
  for (const auto& [tensor, entry] : entries) {
    if (entry.end > data_bytes) {
      throw InputError(
          fmt::format("{}: {}.data_offsets = [{}, {}] end beyond the file's {} bytes of data; is "
                      "the file truncated?",
                      name, tensor, entry.begin, entry.end, data_bytes));
    }
    order.emplace_back(tensor, &entry);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t end = 0;
  std::string_view before = "the header";
  for (const auto& [tensor, entry] : order) {
    if (entry->begin != end) {
      throw InputError(fmt::format(
          "{}: {} begins at byte {} of the data, but {} ends at {}: they {}", name, tensor,
          entry->begin, before, end, entry->begin < end ? "overlap" : "leave a gap"));
    }
    end = entry->end;
    before = tensor;
  }
  if (end != data_bytes) {
    throw InputError(fmt::format("{}: the tensors end at byte {} of the data, but the file has {}",
                                 name, end, data_bytes));
  }
}

}  // namespace

std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::span<const std::byte> bytes,
                                                                 uint64_t file_bytes,
                                                                 const std::string& name,
                                                                 uint64_t* data_begin) {
  constexpr uint64_t kLengthBytes = 8;
  if (file_bytes < kLengthBytes || bytes.size() < kLengthBytes) {
    throw InputError(
        fmt::format("{}: the file has {} bytes, too few for a safetensors file", name, file_bytes));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t available = std::min<uint64_t>(file_bytes, bytes.size()) - kLengthBytes;
  if (length > available || length > kMaxHeaderBytes) {
    if (const std::string kind = foreign_file(bytes); !kind.empty()) {
      throw InputError(fmt::format("{}: not a safetensors file: it is {}", name, kind));
    }
    throw InputError(
        fmt::format("{}: the header claims {} bytes; the file has {}, and at most {} are allowed",
                    name, length, available, kMaxHeaderBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  const nlohmann::json header = parse_json(text, name);
  if (!header.is_object()) {
    throw InputError(fmt::format("{}: the header is not a JSON object", name));
  }
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [tensor, json] : header.items()) {
    if (tensor != "__metadata__") entries.emplace(tensor, read_entry(json, tensor, name));
  }
  check_layout(entries, file_bytes - kLengthBytes - length, name);
  *data_begin = kLengthBytes + length;
  return entries;
}

}  // namespace fasa
