// File format of selection traces. Every number is checked before use.
#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/io/hash.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/io/output_file.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "fasatrc\n";
constexpr size_t kChecksumBytes = 16;   // hexadecimal digits
constexpr int64_t kMaxHeads = 1 << 16;  // layers x KV heads; more means a broken file
constexpr int kLevel = 19;
// A frame expands to at most this many times its bytes: more is a broken file.
constexpr uint64_t kMaxRatio = 1 << 15;

// A token's label: 0 in no set, 1 in the true set alone, kFirstBand + b in band b.
constexpr char kUnranked = 1, kFirstBand = 2;

[[noreturn]] void fail(const std::string& place, std::string_view what) {
  throw InputError(fmt::format("{}: {}; record it again with fasa trace", place, what));
}

std::string checksum_of(std::string_view body) { return fmt::format("{:016x}", fnv1a(body)); }

std::string labels_of(const SelectionTrace& trace, int step, int layer, int kv_head) {
  std::string labels(static_cast<size_t>(trace.context(step)), '\0');
  for (const int32_t at : trace.true_set(step, layer, kv_head)) {
    labels[static_cast<size_t>(at)] = kUnranked;
  }
  const std::vector<int>& bands = trace.shape().bands;
  int rank = 0;
  for (const int32_t at : trace.ranking(step, layer, kv_head)) {
    const auto band = std::ranges::upper_bound(bands, rank++) - bands.begin();
    labels[static_cast<size_t>(at)] = static_cast<char>(kFirstBand + band);
  }
  return labels;
}

// The true set and the ranking.
void sets_of(const TraceShape& shape, std::string_view labels, std::vector<int32_t>& set,
             std::vector<int32_t>& ranking) {
  set.clear(), ranking.clear();
  std::vector<std::vector<int32_t>> bands(shape.bands.size());
  for (size_t at = 0; at < labels.size(); ++at) {
    if (labels[at] == 0) continue;
    const auto position = static_cast<int32_t>(at);
    const bool ranked = labels[at] >= kFirstBand;
    const auto band = static_cast<size_t>(labels[at] - kFirstBand);
    if (!ranked || shape.bands[band] <= shape.set_ranked()) set.push_back(position);
    if (ranked) bands[band].push_back(position);
  }
  for (const auto& band : bands) ranking.insert(ranking.end(), band.begin(), band.end());
}

// Each step is a frame: the labels of every head's tokens, XOR those of the step before.
std::string encode_steps(const SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  std::vector<std::string> last(trace.slots() / 2);
  std::string all;
  for (int step = 0; step < trace.steps(); ++step) {
    std::string changes;
    for (size_t i = 0; i < last.size(); ++i) {
      const auto [layer, head] = std::div(static_cast<int>(i), shape.kv_heads);
      std::string labels = labels_of(trace, step, layer, head);
      last[i].resize(labels.size());
      std::ranges::transform(labels, last[i], std::back_inserter(changes), std::bit_xor<char>());
      last[i] = std::move(labels);
    }
    const size_t begin = all.size(), most = ZSTD_compressBound(changes.size());
    all.resize(begin + most);
    all.resize(begin + ZSTD_compress(&all[begin], most, changes.data(), changes.size(), kLevel));
  }
  return all;
}

// Takes the first frame off.
std::string take_frame(std::string_view& frames, const std::string& place) {
  const size_t size = ZSTD_findFrameCompressedSize(frames.data(), frames.size());
  const uint64_t expanded = ZSTD_getFrameContentSize(frames.data(), frames.size());
  if (ZSTD_isError(size) != 0 || expanded > size * kMaxRatio) {
    fail(place, "it is no zstd frame of known size");
  }
  std::string bytes(expanded, '\0');
  const size_t done = ZSTD_decompress(bytes.data(), expanded, frames.data(), size);
  if (done != expanded) fail(place, "it is a broken zstd frame");
  frames.remove_prefix(size);
  return bytes;
}

void decode_steps(std::string_view frames, int steps, const std::string& name,
                  SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  std::vector<std::string> heads(trace.slots() / 2);
  std::vector<std::vector<int32_t>> sets(trace.slots());
  for (int step = 0; step < steps; ++step) {
    const std::string place = fmt::format("{}: step {}", name, step);
    const std::string changes = take_frame(frames, place);
    const size_t context = changes.size() / heads.size();
    if (changes.size() % heads.size() != 0 || context > INT32_MAX) {
      fail(place, fmt::format("{} labels of {} heads", changes.size(), heads.size()));
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      std::string& labels = heads[i];
      labels.resize(context);
      const auto of_head = std::string_view(changes).substr(i * context, context);
      std::ranges::transform(labels, of_head, labels.begin(), std::bit_xor<char>());
      const auto last = static_cast<char>(kUnranked + shape.bands.size());
      const auto wrong =
          std::ranges::find_if(labels, [last](char label) { return label < 0 || label > last; });
      if (wrong != labels.end()) {
        fail(place, fmt::format("label {}; allowed: 0 to {}", static_cast<uint8_t>(*wrong),
                                static_cast<int>(last)));
      }
      sets_of(shape, labels, sets[2 * i], sets[2 * i + 1]);
    }
    try {
      trace.add_step(static_cast<int32_t>(context), sets);
    } catch (const UsageError& error) {
      throw InputError(fmt::format("{}: {}", place, error.what()));
    }
  }
  if (!frames.empty()) fail(name, "bytes follow the last step");
}

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
  const size_t end = bytes.find('\n', kMagic.size());
  if (end == std::string_view::npos || bytes.size() - end <= kChecksumBytes) {
    fail(name, "the file ends within its header");
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (bytes.substr(body.size()) != checksum_of(body)) {
    fail(name, "the checksum does not match; the file was truncated or changed");
  }
  const Header header = parse_header(body.substr(kMagic.size(), end - kMagic.size()),
                                     fmt::format("{}: header", name));
  SelectionTrace trace(header.shape);
  decode_steps(body.substr(end + 1), header.steps, name, trace);
  return trace;
}

SelectionTrace SelectionTrace::load(const std::string& path) {
  FileRule rule = kDataFile;
  rule.what = "selection trace";
  return parse(read_file(path, rule), path);
}

std::string SelectionTrace::to_bytes() const {
  const std::string header = header_of(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string body = fmt::format("{}{}\n{}", kMagic, header, encode_steps(*this));
  return body + checksum_of(body);
}

void SelectionTrace::save(const std::string& path) const {
  write_file_atomically(path, to_bytes());
}

}  // namespace fasa
