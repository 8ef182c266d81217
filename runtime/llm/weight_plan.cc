#include "runtime/llm/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/parallel.h"

namespace fasa {
namespace {

constexpr size_t kStagingBytes = size_t{16} << 20;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t largest_panel(const Linear& linear) {
  return std::max(linear.panel_bytes(0), linear.panel_bytes(linear.panels() - 1));
}

}  // namespace

// Brings bytes to the device through one staging buffer.
class WeightPlan::Uploader {
 public:
  Uploader(Device& device, StreamView stream, std::byte* destination, size_t staging_bytes)
      : device_(device),
        stream_(stream),
        destination_(destination),
        staging_(device.allocate(MemorySpace::kHost, staging_bytes, "staging of weights")) {}

  std::byte* staging() const { return staging_.data(); }
  size_t capacity() const { return staging_.bytes(); }
  void send(size_t offset, size_t bytes) {
    device_.copy(destination_ + offset, staging_.data(), bytes, CopyKind::kHostToDevice, stream_);
    device_.synchronize(stream_);
  }

 private:
  Device& device_;
  StreamView stream_;
  std::byte* destination_;
  Buffer staging_;
};

size_t WeightPlan::take(size_t bytes) {
  const size_t offset = bytes_;
  bytes_ += aligned(bytes);
  return offset;
}

WeightView WeightPlan::used(const std::string& name, std::span<const int64_t> shape) {
  used_.insert(name);
  return files_.require(name, shape);
}

void WeightPlan::matrix(Matrix* target, const Parts& parts, int64_t inputs) {
  MatrixItem item{target, {}, 0, false};
  int64_t outputs = 0;
  for (const Part& part : parts) {
    const int64_t shape[] = {part.of == 0 ? part.rows : part.of, inputs};
    item.parts.push_back({used(part.tensor, shape), part.first, part.rows});
    outputs += part.rows;
  }
  target->linear = Linear(dtype_, outputs, inputs, order_);
  item.offset = take(target->linear.bytes());
  matrices_.push_back(std::move(item));
}

void WeightPlan::transposed(Matrix* target, const Part& part, int64_t columns) {
  const int64_t shape[] = {part.of == 0 ? part.rows : part.of, columns};
  target->linear = Linear(dtype_, columns, part.rows, order_);
  matrices_.push_back({target,
                       {{used(part.tensor, shape), part.first, part.rows}},
                       take(target->linear.bytes()),
                       true});
}

void WeightPlan::vector(const float** target, const Parts& parts) {
  VectorItem item{target, {}, 0, 0};
  for (const Part& part : parts) {
    const int64_t shape[] = {part.of == 0 ? part.rows : part.of};
    item.parts.push_back({used(part.tensor, shape), part.first, part.rows});
    item.size += part.rows;
  }
  item.offset = take(static_cast<size_t>(item.size) * sizeof(float));
  vectors_.push_back(std::move(item));
}

void WeightPlan::require_all_used(const std::string& prefix, const std::string& config_path) const {
  for (const std::string& name : files_.names()) {
    // Old exports keep the rotary frequencies; they follow from the config.
    if (!name.starts_with(prefix) || used_.contains(name) || name.ends_with("inv_freq")) continue;
    throw InputError(
        fmt::format("{}: tensor {} has no place in the model that {} describes; is "
                    "it another model's config?",
                    files_.source(), name, config_path));
  }
}

void WeightPlan::read_rows(const MatrixItem& item, int64_t first, int64_t rows,
                           std::byte* out) const {
  const int64_t inputs = item.target->linear.inputs();
  for (const Piece& part : item.parts) {
    const int64_t count = std::min(rows, part.rows - first);
    if (count > 0) {
      const int64_t from = (part.first + first) * inputs;
      if (dtype_ == DType::kF32) {
        part.tensor.read(from, count * inputs, reinterpret_cast<float*>(out));
      } else {
        part.tensor.read_bf16(from, count * inputs, reinterpret_cast<uint16_t*>(out));
      }
      out += count * inputs * dtype_bytes(dtype_);
      rows -= count;
      first += count;
    }
    first -= part.rows;
  }
}

// Of a transposed item.
void WeightPlan::read_columns(const MatrixItem& item, int64_t first, int64_t columns,
                              std::byte* out) const {
  const Piece& part = item.parts.front();
  const int64_t width = part.tensor.shape[1];
  const int64_t bytes = dtype_bytes(dtype_);
  std::vector<std::byte> row(static_cast<size_t>(columns * bytes));
  for (int64_t i = 0; i < part.rows; ++i) {
    const int64_t from = (part.first + i) * width + first;
    if (dtype_ == DType::kF32) {
      part.tensor.read(from, columns, reinterpret_cast<float*>(row.data()));
    } else {
      part.tensor.read_bf16(from, columns, reinterpret_cast<uint16_t*>(row.data()));
    }
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(out + (column * part.rows + i) * bytes, row.data() + column * bytes,
                  static_cast<size_t>(bytes));
    }
  }
}

void WeightPlan::load_matrix(const MatrixItem& item, Uploader* uploader) const {
  const Linear& linear = item.target->linear;
  const int64_t row_bytes = linear.inputs() * dtype_bytes(dtype_);
  for (int64_t first = 0; first < linear.panels();) {
    const size_t begin = linear.panel_offset(first);
    int64_t end = first + 1;
    while (end < linear.panels() &&
           linear.panel_offset(end) + linear.panel_bytes(end) - begin <= uploader->capacity()) {
      ++end;
    }
    parallel_for(first, end, [&](int64_t panel) {
      const int64_t columns = linear.panel_columns(panel);
      std::vector<std::byte> plain(static_cast<size_t>(columns * row_bytes));
      const auto read = item.transposed ? &WeightPlan::read_columns : &WeightPlan::read_rows;
      (this->*read)(item, linear.first_column(panel), columns, plain.data());
      linear.pack(panel, plain.data(), uploader->staging() + linear.panel_offset(panel) - begin);
    });
    const size_t bytes = linear.panel_offset(end - 1) + linear.panel_bytes(end - 1) - begin;
    uploader->send(item.offset + begin, bytes);
    first = end;
  }
}

Buffer WeightPlan::load(Device& device, StreamView stream) const {
  size_t staging = 64;
  for (const auto& item : matrices_) {
    staging = std::max({staging, std::min(kStagingBytes, item.target->linear.bytes()),
                        largest_panel(item.target->linear)});
  }
  for (const auto& item : vectors_) {
    staging = std::max(staging, static_cast<size_t>(item.size) * sizeof(float));
  }
  Buffer memory = device.allocate(MemorySpace::kDevice, bytes_, "weights");
  Uploader uploader(device, stream, memory.data(), staging);
  for (const auto& item : matrices_) {
    load_matrix(item, &uploader);
    item.target->data = memory.data() + item.offset;
  }
  for (const auto& item : vectors_) {
    auto* out = reinterpret_cast<float*>(uploader.staging());
    for (const Piece& part : item.parts) {
      part.tensor.read(part.first, part.rows, out);
      out += part.rows;
    }
    uploader.send(item.offset, static_cast<size_t>(item.size) * sizeof(float));
    *item.target = reinterpret_cast<const float*>(memory.data() + item.offset);
  }
  return memory;
}

}  // namespace fasa
