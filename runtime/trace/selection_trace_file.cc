// File format of selection traces. Every number is checked before use.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/io/output_file.h"
#include "runtime/trace/selection_trace.h"
#include "runtime/trace/trace_coding.h"

namespace fasa {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "fasatrc\n";
constexpr size_t kLengthBytes = 4;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kMaxHeaderBytes = 1 << 20;
constexpr int64_t kMaxHeads = 1 << 16;  // layers x KV heads; more means a broken file

void put_little_endian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A file's bytes with a read position.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const { fail_at(offset_, what); }
  [[noreturn]] void fail_at(size_t offset, const std::string& what) const {
    throw InputError(fmt::format("{}: byte {} of {}: {}; record it again with fasa trace", name_,
                                 offset, bytes_.size(), what));
  }
  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }
  std::string_view take(size_t count, std::string_view what) {
    if (count > left()) fail(fmt::format("the file ends within {} of {} bytes", what, count));
    const std::string_view taken = bytes_.substr(offset_, count);
    offset_ += count;
    return taken;
  }
  uint64_t little_endian(size_t count, std::string_view what) {
    const std::string_view taken = take(count, what);
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      value |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
  size_t offset_ = 0;
};

Json header_of(const SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  return {{"schema", SelectionTrace::kSchema},
          {"model", shape.model},
          {"text", shape.text},
          {"layers", shape.layers},
          {"kv_heads", shape.kv_heads},
          {"budget", shape.budget},
          {"sinks", shape.sinks},
          {"recent", shape.recent},
          {"bands", shape.bands},
          {"steps", trace.steps()}};
}

struct Header {
  TraceShape shape;
  int steps = 0;
};

int int_field(const JsonFields& fields, const char* key, int64_t low, int64_t high) {
  return static_cast<int>(fields.integer(key, low, high));
}

void parse_bands(const JsonFields& fields, TraceShape& shape) {
  if (!fields.has("bands") || !fields.at("bands").is_array()) fields.fail("bands", "a list");
  for (const auto& end : fields.at("bands")) {
    const int last = shape.bands.empty() ? 0 : shape.bands.back();
    if (!end.is_number_integer() || end.get<int64_t>() <= last || end.get<int64_t>() > INT32_MAX ||
        shape.bands.size() == SelectionTrace::kMaxBands) {
      fields.fail("bands", fmt::format("at most {} ascending numbers", SelectionTrace::kMaxBands));
    }
    shape.bands.push_back(end.get<int>());
  }
  if (!shape.bands.empty() &&
      std::ranges::find(shape.bands, shape.set_ranked()) == shape.bands.end()) {
    fields.fail("bands",
                fmt::format("a list with budget - sinks - recent = {}", shape.set_ranked()));
  }
}

Header parse_header(std::string_view text, const std::string& place) {
  const nlohmann::json json = parse_json(text, place);
  const JsonFields fields(json, place);
  int_field(fields, "schema", SelectionTrace::kSchema, SelectionTrace::kSchema);
  Header header;
  TraceShape& shape = header.shape;
  shape.model = fields.required_text("model");
  shape.text = fields.text("text").value_or("");
  shape.layers = int_field(fields, "layers", 1, kMaxHeads);
  shape.kv_heads = int_field(fields, "kv_heads", 1, kMaxHeads / shape.layers);
  shape.sinks = int_field(fields, "sinks", 0, 1 << 20);
  shape.recent = int_field(fields, "recent", 1, 1 << 20);
  shape.budget = int_field(fields, "budget", shape.sinks + shape.recent + 1, INT32_MAX);
  parse_bands(fields, shape);
  header.steps = int_field(fields, "steps", 1, INT32_MAX);
  return header;
}

}  // namespace

SelectionTrace SelectionTrace::parse(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with(kMagic)) {
    throw InputError(
        fmt::format("{}: not a selection trace: it does not begin with \"fasatrc\"", name));
  }
  if (bytes.size() < kMagic.size() + kLengthBytes + kChecksumBytes) {
    throw InputError(
        fmt::format("{}: the file ends at byte {}, before its header", name, bytes.size()));
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  Reader checksum(bytes, name);
  checksum.take(body.size(), "the body");
  if (checksum.little_endian(kChecksumBytes, "the checksum") != fnv1a(body)) {
    checksum.fail_at(body.size(), "the checksum does not match; the file was truncated or changed");
  }
  Reader reader(body, name);
  reader.take(kMagic.size(), "the magic");
  const auto length = static_cast<size_t>(reader.little_endian(kLengthBytes, "a length"));
  if (length > kMaxHeaderBytes) {
    reader.fail_at(kMagic.size(),
                   fmt::format("the header has {} bytes; allowed: {}", length, kMaxHeaderBytes));
  }
  const size_t header_at = reader.offset();
  const Header header = parse_header(reader.take(length, "a header"),
                                     fmt::format("{}: header at byte {}", name, header_at));
  SelectionTrace trace(header.shape);
  decode_steps(reader.take(reader.left(), "the steps"), header.steps, name, trace);
  return trace;
}

SelectionTrace SelectionTrace::load(const std::string& path) {
  FileRule rule = kDataFile;
  rule.what = "selection trace";
  return parse(read_file(path, rule), path);
}

std::string SelectionTrace::to_bytes() const {
  const std::string header = header_of(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out(kMagic);
  put_little_endian(out, header.size(), kLengthBytes);
  out += header;
  out += encode_steps(*this);
  put_little_endian(out, fnv1a(out), kChecksumBytes);
  return out;
}

void SelectionTrace::save(const std::string& path) const {
  write_file_atomically(path, to_bytes());
}

}  // namespace fasa
