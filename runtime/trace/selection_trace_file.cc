// File format of selection traces. Every number is checked before use.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/io/output_file.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "fasatrc\n";
constexpr size_t kLengthBytes = 4;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kMaxHeaderBytes = 1 << 20;
constexpr int64_t kMaxHeads = 1 << 16;  // layers x KV heads; more means a broken file
// Limit on a step's sets, empty ones included, per byte of the step. An empty set (a prediction
// that its layer lacks) takes memory but no byte in the file. Recorded traces have less than one
// set per byte.
constexpr size_t kMaxSetsPerByte = 4;

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ull;
  }
  return hash;
}

void put_little_endian(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_varint(std::string& out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
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
  // Reads a value of at most 31 bits, stored with as few bytes as possible.
  int32_t varint(std::string_view what) {
    const size_t start = offset_;
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (shift > 28) fail_at(start, fmt::format("{} takes too many bytes", what));
      const auto byte = static_cast<uint8_t>(take(1, what)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (value > INT32_MAX) fail_at(start, fmt::format("{} beyond {}", what, INT32_MAX));
      if (byte < 0x80) {
        if (byte == 0 && shift > 0) fail_at(start, fmt::format("{} takes too many bytes", what));
        return static_cast<int32_t>(value);
      }
    }
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
  size_t offset_ = 0;
};

Json header_of(const SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  Json predictions = Json::array();
  for (const TracePrediction& one : shape.predictions) {
    predictions.push_back({{"predictor", one.predictor},
                           {"depth", one.depth},
                           {"chunks", one.chunks},
                           {"tokens", one.tokens}});
  }
  return {{"schema", SelectionTrace::kSchema},
          {"model", shape.model},
          {"text", shape.text},
          {"layers", shape.layers},
          {"kv_heads", shape.kv_heads},
          {"budget", shape.budget},
          {"sinks", shape.sinks},
          {"recent", shape.recent},
          {"steps", trace.steps()},
          {"predictions", predictions}};
}

struct Header {
  TraceShape shape;
  int steps = 0;
};

int int_field(const JsonFields& fields, const char* key, int64_t low, int64_t high) {
  return static_cast<int>(fields.integer(key, low, high));
}

void parse_predictions(const JsonFields& fields, const std::string& place, TraceShape& shape) {
  if (!fields.has("predictions") || !fields.at("predictions").is_array()) {
    fields.fail("predictions", "a list");
  }
  if (fields.at("predictions").size() > SelectionTrace::kMaxPredictions) {
    throw InputError(fmt::format("{}: {} predictions; allowed: {}", place,
                                 fields.at("predictions").size(), SelectionTrace::kMaxPredictions));
  }
  for (const auto& item : fields.at("predictions")) {
    const JsonFields one(item, place, fmt::format("predictions[{}].", shape.predictions.size()));
    TracePrediction& prediction = shape.predictions.emplace_back();
    prediction.predictor = one.text("predictor").value_or("");
    if (prediction.predictor != "next-query") one.fail("predictor", "next-query");
    // A prediction cannot be made before the first layer.
    prediction.depth = int_field(one, "depth", 1, shape.layers - 1);
    prediction.chunks = int_field(one, "chunks", 1, kMaxHeads);
    prediction.tokens = int_field(one, "tokens", 1, INT32_MAX);
  }
}

Header parse_header(std::string_view text, const std::string& place) {
  const nlohmann::json json = parse_json(text, place);
  const JsonFields fields(json, place);
  int_field(fields, "schema", SelectionTrace::kSchema, SelectionTrace::kSchema);
  Header header;
  TraceShape& shape = header.shape;
  if (!fields.text("model")) fields.fail("model", "a text");
  shape.model = *fields.text("model");
  shape.text = fields.text("text").value_or("");
  shape.layers = int_field(fields, "layers", 1, kMaxHeads);
  shape.kv_heads = int_field(fields, "kv_heads", 1, kMaxHeads / shape.layers);
  shape.sinks = int_field(fields, "sinks", 0, 1 << 20);
  shape.recent = int_field(fields, "recent", 1, 1 << 20);
  shape.budget = int_field(fields, "budget", shape.sinks + shape.recent + 1, INT32_MAX);
  header.steps = int_field(fields, "steps", 1, INT32_MAX);
  parse_predictions(fields, place, shape);
  return header;
}

// A set of at most `most` positions, each below `context`: its size, its first position, then the
// number of positions between neighbours.
void read_set(Reader& reader, int32_t most, int32_t context, std::vector<int32_t>& set) {
  const size_t start = reader.offset();
  const int32_t size = reader.varint("the set size");
  if (size < 1 || size > std::min(most, context)) {
    reader.fail_at(start, fmt::format("the set has {} positions; allowed: 1 to {}", size,
                                      std::min(most, context)));
  }
  int64_t position = -1;
  for (int32_t i = 0; i < size; ++i) {
    const size_t at = reader.offset();
    position += int64_t{1} + reader.varint("a position");
    if (position >= context) {
      reader.fail_at(
          at, fmt::format("position {} lies outside the context of {} tokens", position, context));
    }
    set.push_back(static_cast<int32_t>(position));
  }
}

void write_set(std::span<const int32_t> set, std::string& out) {
  put_varint(out, static_cast<uint32_t>(set.size()));
  int32_t before = -1;
  for (const int32_t position : set) {
    put_varint(out, static_cast<uint32_t>(position - before - 1));
    before = position;
  }
}

// A step: its context (as the increase over the last step, minus one), then its sets.
void read_step(Reader& reader, SelectionTrace& trace, std::vector<std::vector<int32_t>>& sets) {
  const TraceShape& shape = trace.shape();
  const size_t start = reader.offset();
  const int64_t last = trace.steps() == 0 ? 0 : trace.context(trace.steps() - 1);
  const int64_t context = last + 1 + reader.varint("a context");
  if (context > INT32_MAX) reader.fail_at(start, fmt::format("a context of {} tokens", context));
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const size_t slot = trace.slot(layer, head);
      for (size_t i = 0; i <= shape.predictions.size(); ++i) {
        sets[slot + i].clear();
        if (i > 0 && !trace.has_prediction(layer, i - 1)) continue;
        const int32_t most = i == 0 ? shape.budget : shape.predictions[i - 1].tokens;
        read_set(reader, most, static_cast<int32_t>(context), sets[slot + i]);
      }
    }
  }
  trace.add_step(static_cast<int32_t>(context), sets);
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
  // Each step has a context, each true set a size and a position.
  const size_t truths = trace.slots() / (1 + header.shape.predictions.size());
  const size_t step_bytes = std::max(1 + 2 * truths, trace.slots() / kMaxSetsPerByte);
  if (static_cast<size_t>(header.steps) > reader.left() / step_bytes) {
    reader.fail(fmt::format("{} steps of at least {} sets do not fit in {} bytes", header.steps,
                            truths, reader.left()));
  }
  std::vector<std::vector<int32_t>> sets(trace.slots());
  for (int step = 0; step < header.steps; ++step) read_step(reader, trace, sets);
  if (reader.left() > 0) reader.fail(fmt::format("{} bytes follow the last step", reader.left()));
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
  int32_t last = 0;
  for (int step = 0; step < steps(); ++step) {
    put_varint(out, static_cast<uint32_t>(context(step) - last - 1));
    last = context(step);
    for (size_t slot = 0; slot < slots(); ++slot) {
      if (const auto one = set(step, slot); !one.empty()) write_set(one, out);
    }
  }
  put_little_endian(out, fnv1a(out), kChecksumBytes);
  return out;
}

void SelectionTrace::save(const std::string& path) const {
  write_file_atomically(path, to_bytes());
}

}  // namespace fasa
