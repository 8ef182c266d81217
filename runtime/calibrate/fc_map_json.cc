// FC maps as JSON files. Every field is checked before use.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"
#include "runtime/calibrate/fc_map.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxHeads = 1 << 20;  // layers x KV heads; more means a broken file

// "a, b, c". (fmt::join of texts sets off a false warning of GCC 12 at -O3.)
std::string listed(const std::set<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

// A value of the file, with its path for messages.
class Node {
 public:
  Node(const Json& json, std::string file, std::string place)
      : json_(&json), file_(std::move(file)), place_(std::move(place)) {}

  [[noreturn]] void fail(std::string_view allowed) const {
    std::string value = json_->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (value.size() > 60) value = value.substr(0, 60) + "...";
    throw InputError(fmt::format("{}: {} = {}: allowed: {}; make the map again with fasa calibrate",
                                 file_, place_, value, allowed));
  }
  Node operator[](const char* key) const {
    if (!json_->is_object()) fail("an object");
    const auto found = json_->find(key);
    if (found == json_->end()) {
      throw InputError(fmt::format("{}: {} is missing; make the map again with fasa calibrate",
                                   file_, child(key)));
    }
    return {*found, file_, child(key)};
  }
  Node operator[](size_t index) const {
    return {(*json_)[index], file_, fmt::format("{}[{}]", place_, index)};
  }
  // For optional keys; the value must be an object.
  bool has(const char* key) const { return json_->contains(key); }
  size_t size() const { return json_->is_array() ? json_->size() : 0; }
  // A list of exactly `size` items.
  void require_list(size_t size, std::string_view of) const {
    if (!json_->is_array() || json_->size() != size) {
      fail(fmt::format("a list of {} ({})", size, of));
    }
  }
  void require_keys(const std::set<std::string_view>& keys) const {
    if (!json_->is_object()) fail("an object");
    for (const auto& [key, value] : json_->items()) {
      if (!keys.contains(key)) {
        throw InputError(
            fmt::format("{}: {} is unknown; allowed here: {}", file_, child(key), listed(keys)));
      }
    }
  }
  int integer(int least, int most) const {
    const auto allowed = [&] { return fmt::format("a whole number from {} to {}", least, most); };
    if (!json_->is_number_integer()) fail(allowed());
    const bool too_big =
        json_->is_number_unsigned() && json_->get<uint64_t>() > static_cast<uint64_t>(most);
    if (too_big || json_->get<int64_t>() < least || json_->get<int64_t>() > most) fail(allowed());
    return json_->get<int>();
  }
  double number(double least) const {
    const bool ok =
        json_->is_number() && std::isfinite(json_->get<double>()) && json_->get<double>() >= least;
    if (!ok) fail(fmt::format("a number, at least {}", least));
    return json_->get<double>();
  }
  bool boolean() const {
    if (!json_->is_boolean()) fail("true or false");
    return json_->get<bool>();
  }
  std::string text() const {
    if (!json_->is_string()) fail("a text");
    return json_->get<std::string>();
  }
  std::string one_of(const std::set<std::string_view>& names) const {
    if (!json_->is_string() || !names.contains(json_->get_ref<const std::string&>())) {
      fail(listed(names));
    }
    return json_->get<std::string>();
  }

 private:
  std::string child(std::string_view key) const {
    return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  }
  const Json* json_;
  std::string file_, place_;
};

ModelFingerprint parse_fingerprint(const Node& node) {
  node.require_keys({"model_type", "layers", "kv_heads", "query_heads", "key_dim", "value_dim",
                     "rotary_dims", "rotary_layout", "rope_theta", "rope_scaling", "key_rows"});
  ModelFingerprint print;
  print.model_type = node["model_type"].text();
  print.layers = node["layers"].integer(1, 65536);
  print.kv_heads = node["kv_heads"].integer(1, kMaxHeads / print.layers);
  print.query_heads = node["query_heads"].integer(print.kv_heads, kMaxHeads);
  if (print.query_heads % print.kv_heads != 0) {
    node["query_heads"].fail(fmt::format("a multiple of kv_heads ({})", print.kv_heads));
  }
  print.key_dim = node["key_dim"].integer(2, 1024);
  if (print.key_dim % 2 != 0) node["key_dim"].fail("an even number from 2 to 1024");
  print.value_dim = node["value_dim"].integer(1, 1024);
  print.rotary_dims = node["rotary_dims"].integer(0, print.key_dim);
  if (print.rotary_dims % 2 != 0) node["rotary_dims"].fail("an even number, at most key_dim");
  print.rotary_layout = node["rotary_layout"].one_of({"half", "interleaved"});
  print.rope_theta = node["rope_theta"].number(0);
  print.rope_scaling = node["rope_scaling"].text();
  const Node rows = node["key_rows"];
  rows.require_list(static_cast<size_t>(print.layers), "one per layer");
  for (size_t i = 0; i < static_cast<size_t>(print.layers); ++i) {
    print.key_rows.push_back(rows[i].text());
    if (print.key_rows.back().find_first_not_of("0123456789abcdef") != std::string::npos) {
      rows[i].fail("hexadecimal digits");
    }
  }
  return print;
}

Geometry pairs_of(const ModelFingerprint& print) {
  Geometry geometry;
  geometry.key_dim = print.key_dim;
  geometry.rotary_dims = print.rotary_dims;
  geometry.rotary_layout =
      print.rotary_layout == "half" ? RotaryLayout::kHalf : RotaryLayout::kInterleaved;
  return geometry;
}

// `partner`: each pair's second dimension by its first; set to -1 once found.
std::vector<int> parse_chunk(const Node& chunk, const Geometry& geometry,
                             std::vector<int>& partner) {
  if (chunk.size() == 0) chunk.fail("a list of one or two dimensions");
  const int first = chunk[size_t{0}].integer(0, geometry.key_dim - 1);
  int& expected = partner[static_cast<size_t>(first)];
  if (expected < 0) chunk.fail("each chunk once, beginning with its first dimension");
  const bool single = expected == first;
  chunk.require_list(single ? 1 : 2, single ? "a dimension that RoPE does not rotate"
                                            : "the two dimensions that RoPE rotates together");
  std::vector<int> dims = {first};
  if (!single) {
    const int second = chunk[size_t{1}].integer(0, geometry.key_dim - 1);
    if (second != expected) {
      chunk.fail(fmt::format("[{}, {}], by the model's rotary layout", first, expected));
    }
    dims.push_back(second);
  }
  expected = -1;
  return dims;
}

// Requires each chunk of the head exactly once: pairs of dimensions that RoPE rotates together, and
// single dimensions that it does not rotate.
HeadRanking parse_head(const Node& node, const Geometry& geometry) {
  node.require_keys({"chunks", "agreement", "distant_attention_kept", "energy"});
  const std::vector<Geometry::Pair> all = geometry.ranked_chunks();
  const size_t count = all.size();
  // Own index: a single dimension.
  std::vector<int> partner(static_cast<size_t>(geometry.key_dim), -1);
  for (const Geometry::Pair& pair : all) partner[static_cast<size_t>(pair.first)] = pair.second;
  HeadRanking head;
  const Node chunks = node["chunks"];
  chunks.require_list(count, "every chunk of the head");
  for (size_t i = 0; i < count; ++i) {
    head.chunks.push_back(parse_chunk(chunks[i], geometry, partner));
  }
  const auto numbers = [&](const char* key, std::string_view of, size_t length) {
    const Node list = node[key];
    list.require_list(length, of);
    std::vector<double> values;
    for (size_t i = 0; i < length; ++i) values.push_back(list[i].number(0));
    return values;
  };
  head.agreement = numbers("agreement", "one per chunk", count);
  head.distant_attention_kept = numbers("distant_attention_kept", "after 1, 2, ... chunks", count);
  if (node.has("energy")) head.energy = numbers("energy", "one per dimension", partner.size());
  return head;
}

MapSlice parse_slice(const Node& node, int chunks) {
  node.require_keys({"dtype", "tip_chunks", "fine_chunks", "bytes"});
  std::set<std::string_view> names;
  for (const SliceDType dtype : kSliceDTypes) names.insert(slice_dtype_name(dtype));
  const std::string name = node["dtype"].one_of(names);
  const int tip_chunks = node["tip_chunks"].integer(1, chunks);
  const int max_fine = name == "int2" ? tip_chunks : 0;
  return {.dtype = parse_slice_dtype(name).value(),
          .tip_chunks = tip_chunks,
          .fine_chunks = node.has("fine_chunks") ? node["fine_chunks"].integer(0, max_fine) : 0,
          .bytes = node["bytes"].integer(1, INT32_MAX)};
}

Json head_to_json(const HeadRanking& head) {
  // 96 queries give no more than five significant digits.
  const auto rounded = [](const std::vector<double>& values) {
    Json list = Json::array();
    for (const double value : values) list.push_back(std::round(value * 1e5) / 1e5);
    return list;
  };
  Json json = {{"chunks", head.chunks},
               {"agreement", rounded(head.agreement)},
               {"distant_attention_kept", rounded(head.distant_attention_kept)}};
  if (!head.energy.empty()) json["energy"] = rounded(head.energy);
  return json;
}

}  // namespace

FcMap FcMap::parse(std::string_view text, const std::string& name) {
  const auto json = parse_json<Json>(text, name);
  const Node root(json, name, "");
  if (!json.is_object())
    throw InputError(fmt::format("{}: not an FC map; allowed: a JSON object", name));
  const int schema = root["schema"].integer(0, INT32_MAX);
  if (schema != kSchema) root["schema"].fail(fmt::format("{}, the supported version", kSchema));
  root.require_keys({"schema", "objective", "data_hash", "sinks", "recent", "window", "tokens",
                     "queries", "probes", "slice", "model", "heads"});
  FcMap map;
  map.objective = root["objective"].one_of({"distant_attention", "ca"});
  map.data_hash = root["data_hash"].text();
  map.sinks = root["sinks"].integer(0, INT32_MAX);
  map.recent = root["recent"].integer(0, INT32_MAX);
  map.window = root["window"].integer(1, INT32_MAX);
  map.tokens = root["tokens"].integer(1, INT32_MAX);
  map.queries = root["queries"].integer(1, INT32_MAX);
  map.probes = root["probes"].boolean();
  map.fingerprint = parse_fingerprint(root["model"]);
  const Geometry geometry = pairs_of(map.fingerprint);
  if (root.has("slice")) map.slice = parse_slice(root["slice"], geometry.chunks());
  const Node layers = root["heads"];
  layers.require_list(static_cast<size_t>(map.fingerprint.layers), "one per layer");
  for (size_t layer = 0; layer < static_cast<size_t>(map.fingerprint.layers); ++layer) {
    const Node heads = layers[layer];
    heads.require_list(static_cast<size_t>(map.fingerprint.kv_heads), "one per KV head");
    auto& row = map.heads.emplace_back();
    for (size_t head = 0; head < static_cast<size_t>(map.fingerprint.kv_heads); ++head) {
      row.push_back(parse_head(heads[head], geometry));
    }
  }
  return map;
}

std::string FcMap::to_json() const {
  const ModelFingerprint& print = fingerprint;
  const Json model = {{"model_type", print.model_type},   {"layers", print.layers},
                      {"kv_heads", print.kv_heads},       {"query_heads", print.query_heads},
                      {"key_dim", print.key_dim},         {"value_dim", print.value_dim},
                      {"rotary_dims", print.rotary_dims}, {"rotary_layout", print.rotary_layout},
                      {"rope_theta", print.rope_theta},   {"rope_scaling", print.rope_scaling},
                      {"key_rows", print.key_rows}};
  Json head = {{"schema", kSchema}, {"objective", objective}, {"data_hash", data_hash},
               {"sinks", sinks},    {"recent", recent},       {"window", window},
               {"tokens", tokens},  {"queries", queries},     {"probes", probes}};
  if (slice) {
    head["slice"] = {{"dtype", slice_dtype_name(slice->dtype)},
                     {"tip_chunks", slice->tip_chunks},
                     {"fine_chunks", slice->fine_chunks},
                     {"bytes", slice->bytes}};
  }
  head["model"] = model;
  // One line per head: with one per number, a large model's file would have half a million lines.
  std::string text = head.dump(1);
  text.resize(text.rfind('\n'));
  text += ",\n \"heads\": [";
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    text += layer == 0 ? "\n  [" : ",\n  [";
    for (size_t i = 0; i < heads[layer].size(); ++i) {
      text += i == 0 ? "\n   " : ",\n   ";
      text += head_to_json(heads[layer][i]).dump();
    }
    text += "\n  ]";
  }
  return text + "\n ]\n}\n";
}

}  // namespace fasa
