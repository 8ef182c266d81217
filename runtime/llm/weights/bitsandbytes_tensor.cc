// bitsandbytes 4-bit weights (nf4, fp4): weight u8 [N * K / 2, 1], high nibble first, in blocks
// across all rows; weight.quant_map f32 [16]; weight.absmax f32 [blocks], or u8 decoded by
// nested_quant_map [256], nested_absmax f32 [blocks / nested_blocksize] and the state's
// nested_offset; weight.quant_state.bitsandbytes__nf4, JSON as u8.
#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/tensor_parts.h"

namespace fasa {
namespace {

struct BlockState {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t block = 0;
  int64_t nested_block = 0;  // 0: scales are not quantised
  float nested_offset = 0;
};

struct BlockParts {
  RawTensor codes;
  std::array<float, 16> table;
  RawTensor absmax;
  std::vector<float> nested_map;
  std::optional<WeightView> nested_absmax;
  BlockState state;
};

class BlockTensor final : public PackedTensor {
 public:
  explicit BlockTensor(BlockParts parts)
      : PackedTensor(parts.state.outputs, parts.state.inputs), parts_(std::move(parts)) {
    PackedFormat format{.scale = ScaleKind::kF32, .has_table = true, .table = parts_.table};
    // Blocks span row boundaries. The group is the largest size that divides both rows and blocks.
    const int64_t group = std::gcd(inputs(), parts_.state.block);
    const int64_t whole = inputs() % parts_.state.block == 0 ? parts_.state.block : group;
    if (whole != 16 && whole % kPackedBlock != 0) set_unpackable();
    format.group = static_cast<int>(packs() ? whole : kPackedBlock);
    set_format(format);
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    const int64_t group = format().group;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) * inputs();
      for (int64_t input = 0; input < inputs(); ++input) {
        out->codes(i)[input] = static_cast<uint8_t>(code(row + input));
      }
      for (int64_t input = 0; input < inputs(); input += group) {
        out->scales(i)[input / group] = scale(row + input);
      }
    }
  }

  void dequantise(int64_t first, int64_t count, float* out) const override {
    const int64_t begin = first * inputs();
    for (int64_t i = 0; i < count * inputs(); ++i) {
      out[i] = parts_.table[code(begin + i)] * scale(begin + i);
    }
  }

 private:
  size_t code(int64_t element) const {
    const uint8_t pair = parts_.codes.byte(element / 2);
    return element % 2 == 0 ? pair >> 4 : pair & 15;
  }
  float scale(int64_t element) const {
    const int64_t block = element / parts_.state.block;
    if (!parts_.nested_absmax) {
      float value = 0;
      std::memcpy(&value, parts_.absmax.data + block * 4, sizeof(value));
      return value;
    }
    float outer = 0;
    parts_.nested_absmax->read(block / parts_.state.nested_block, 1, &outer);
    return parts_.nested_map[parts_.absmax.byte(block)] * outer + parts_.state.nested_offset;
  }

  BlockParts parts_;
};

std::string state_name(const TensorParts& parts) {
  for (const char* kind : {"nf4", "fp4"}) {
    std::string name = fmt::format(".weight.quant_state.bitsandbytes__{}", kind);
    if (parts.has(name)) return name;
  }
  parts.fail(".weight.quant_state.bitsandbytes__nf4",
             "is missing, but the quantised matrix needs it");
}

BlockState read_state(const TensorParts& parts) {
  constexpr int64_t kMaxBytes = 1 << 16;
  constexpr int64_t kMaxLength = int64_t{1} << 31;
  const std::string suffix = state_name(parts);
  const RawTensor raw = parts.raw(suffix, "U8", {-1});
  if (raw.elements() > kMaxBytes) parts.fail(suffix, "is too large; allowed: 65536 bytes");
  const std::string name = parts.stem() + suffix;
  const std::string_view text(reinterpret_cast<const char*>(raw.data),
                              static_cast<size_t>(raw.elements()));
  const nlohmann::json document = parse_json(text, name);
  const JsonFields fields(document, name);
  BlockState state;
  if (!fields.has("shape") || !fields.at("shape").is_array() || fields.at("shape").size() != 2) {
    fields.fail("shape", "[outputs, inputs]");
  }
  int64_t lengths[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    const auto& length = fields.at("shape")[i];
    if (!length.is_number_integer() || length.get<int64_t>() < 1 ||
        length.get<int64_t>() > kMaxLength) {
      fields.fail("shape", "[outputs, inputs], each from 1 to 2^31");
    }
    lengths[i] = length.get<int64_t>();
  }
  state.outputs = lengths[0];
  state.inputs = lengths[1];
  state.block = fields.integer("blocksize", 2, 1 << 20);
  if (fields.has("nested_blocksize")) {
    state.nested_block = fields.integer("nested_blocksize", 1, 1 << 20);
    state.nested_offset = static_cast<float>(fields.number_or("nested_offset", -1e30, 1e30, 0));
  }
  return state;
}

}  // namespace

std::unique_ptr<PackedTensor> read_bitsandbytes(const TensorParts& parts) {
  BlockParts all;
  all.state = read_state(parts);
  const BlockState& state = all.state;
  const int64_t elements = state.outputs * state.inputs;
  all.codes = parts.raw(".weight", "U8", {(elements + 1) / 2, 1});
  parts.numbers(".weight.quant_map", {16}).read(0, 16, all.table.data());
  const int64_t blocks = (elements + state.block - 1) / state.block;
  if (state.nested_block == 0) {
    all.absmax = parts.raw(".weight.absmax", "F32", {blocks});
  } else {
    all.absmax = parts.raw(".weight.absmax", "U8", {blocks});
    all.nested_map.resize(256);
    parts.numbers(".weight.nested_quant_map", {256}).read(0, 256, all.nested_map.data());
    const int64_t outer = (blocks + state.nested_block - 1) / state.nested_block;
    all.nested_absmax = parts.numbers(".weight.nested_absmax", {outer});
  }
  return std::make_unique<BlockTensor>(std::move(all));
}

}  // namespace fasa
