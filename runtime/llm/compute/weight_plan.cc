#include "runtime/llm/compute/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/parallel.h"
#include "runtime/llm/compute/packed_scratch.h"
#include "runtime/llm/weights/random_weights.h"

namespace fasa {
namespace {

constexpr size_t kUploadBytes = size_t{16} << 20;

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// All panels of packed weights have one length; the last panel of plain ones may be shorter.
size_t panel_bytes(const Linear& linear, int64_t panel) { return linear.panel_bytes(panel); }
size_t panel_bytes(const PackedLinear& linear, int64_t) { return linear.panel_bytes(); }
size_t panel_offset(const Linear& linear, int64_t panel) { return linear.panel_offset(panel); }
size_t panel_offset(const PackedLinear& linear, int64_t panel) {
  return static_cast<size_t>(panel) * linear.panel_bytes();
}

template <typename L>
size_t largest_panel(const L& linear) {
  return std::max(panel_bytes(linear, 0), panel_bytes(linear, linear.panels() - 1));
}

}  // namespace

// Copies bytes to device memory through one upload buffer.
class WeightPlan::Uploader {
 public:
  Uploader(Device& device, StreamView stream, const Loaded& memory, size_t buffer_bytes)
      : device_(device),
        stream_(stream),
        memory_(memory),
        upload_buffer_(device.allocate(MemorySpace::kHost, buffer_bytes, "upload of weights")) {}

  std::byte* upload_buffer() const { return upload_buffer_.data(); }
  std::byte* at(const Place& place) const {
    const bool host = place.space == MemorySpace::kHost;
    return (host ? memory_.host : memory_.device).data() + place.offset;
  }
  size_t capacity() const { return upload_buffer_.bytes(); }
  void send(const Place& place, size_t bytes) {
    if (place.space == MemorySpace::kHost) {
      std::memcpy(at(place), upload_buffer_.data(), bytes);
      return;
    }
    device_.copy(at(place), upload_buffer_.data(), bytes, CopyKind::kHostToDevice, stream_);
    device_.synchronize(stream_);
  }

 private:
  Device& device_;
  StreamView stream_;
  const Loaded& memory_;
  Buffer upload_buffer_;
};

WeightPlan::Place WeightPlan::take(size_t bytes, MemorySpace space) {
  size_t& taken = bytes_[index(space)];
  const Place place{space, taken};
  taken += aligned(bytes);
  return place;
}

WeightView WeightPlan::used(const std::string& name, std::span<const int64_t> shape) {
  used_.insert(name);
  WeightView view = files_.require(name, shape);
  if (view.shape.size() != shape.size()) {
    view.shape = shapes_.emplace_back(shape.begin(), shape.end());
  }
  return view;
}

WeightView WeightPlan::used(const Part& part, int64_t columns) {
  const int64_t rows = part.of == 0 ? part.rows : part.of;
  std::vector<int64_t> shape = {rows};
  if (part.blocks > 0) shape = {part.blocks, rows / part.blocks};
  if (columns > 0) shape.push_back(columns);
  return used(part.tensor, shape);
}

// Null for a piece that is loaded plain.
const PackedTensor* WeightPlan::packed_of(const Piece& piece) const {
  const PackedTensor* const packed = piece.tensor.packed;
  return !piece.unpacked && packed != nullptr && packed->packs() ? packed : nullptr;
}

// Whether two pieces form one part: both plain, or codes of one format with inputs in one order.
bool WeightPlan::joins(const Piece& before, const Piece& after) const {
  const PackedTensor* const a = packed_of(before);
  const PackedTensor* const b = packed_of(after);
  if (a == nullptr || b == nullptr) return a == b;
  return a->format() == b->format() && a->order() == b->order();
}

void WeightPlan::matrix(Matrix* target, const Parts& parts, int64_t inputs,
                        const MatrixOptions& options) {
  std::vector<Piece> pieces;
  for (const Part& part : parts) {
    WeightView view = used(part, inputs);
    if (part.blocks > 0) view.shape = shapes_.emplace_back(std::vector{part.of, inputs});
    if (options.rounding && view.packed == nullptr) {
      auto tensor = std::make_unique<RoundedTensor>(view, *options.rounding);
      if (view.data != nullptr) {
        rounded_.push_back(std::move(tensor));
      } else {
        rounded_.push_back(std::make_unique<RandomCodes>(view, tensor->format()));
      }
      view.packed = rounded_.back().get();
    }
    pieces.push_back({view, part.first, part.rows});
  }
  add_pieces(target, std::move(pieces), inputs, options.space);
}

void WeightPlan::one_of_batch(Matrix* target, const Part& part, int64_t inputs) {
  const bool by_kernels = layout_.order == PanelOrder::kPlain;
  WeightView view = used(part, inputs);
  if (part.blocks > 0) view.shape = shapes_.emplace_back(std::vector{part.of, inputs});
  add_pieces(target, {{view, part.first, part.rows, by_kernels}}, inputs);
}

void WeightPlan::add_pieces(Matrix* target, std::vector<Piece> pieces, int64_t inputs,
                            MemorySpace space) {
  int64_t outputs = 0;
  for (const Piece& piece : pieces) outputs += piece.rows;
  *target = Matrix(outputs, inputs);
  int64_t first = 0;
  std::vector<Piece> together;
  for (Piece& piece : pieces) {
    if (!together.empty() && !joins(together.back(), piece)) {
      add_part(target, std::move(together), first, space);
      first += target->parts().back().outputs();
      together.clear();
    }
    together.push_back(std::move(piece));
  }
  add_part(target, std::move(together), first, space);
}

void WeightPlan::add_part(Matrix* target, std::vector<Piece> pieces, int64_t first,
                          MemorySpace space) {
  int64_t outputs = 0;
  for (const Piece& piece : pieces) outputs += piece.rows;
  Matrix::Part part{.first = first, .linear = {}};
  if (const PackedTensor* packed = packed_of(pieces.front())) {
    part.linear = PackedLinear({.format = packed->format(),
                                .outputs = outputs,
                                .inputs = target->inputs(),
                                .order = packed->order(),
                                .dtype = layout_.dtype,
                                .y_stride = target->outputs(),
                                .activations = layout_.activations});
  } else {
    part.linear =
        Linear(layout_.dtype, outputs, target->inputs(), layout_.order, target->outputs());
  }
  const Place place = take(part.bytes(), space);
  Place order;
  if (const auto* packed = std::get_if<PackedLinear>(&part.linear)) {
    if (has_kernel_order(*packed)) order = take(packed->order().size() * sizeof(int32_t), space);
    if (layout_.order == PanelOrder::kPlain) {
      kernel_scratch_ = std::max(kernel_scratch_, packed_scratch_bytes(*packed));
    }
  }
  target->parts().push_back(std::move(part));
  matrices_.push_back({target, target->parts().size() - 1, std::move(pieces), place, false, order});
}

bool WeightPlan::has_kernel_order(const PackedLinear& linear) const {
  return layout_.order == PanelOrder::kPlain && !linear.order().empty();
}

void WeightPlan::transposed(Matrix* target, const Part& part, int64_t columns, MemorySpace space) {
  *target = Matrix(columns, part.rows);
  const Linear linear(layout_.dtype, columns, part.rows, layout_.order);
  target->parts().push_back({.first = 0, .linear = linear});
  matrices_.push_back({target,
                       0,
                       {{used(part, columns), part.first, part.rows}},
                       take(linear.bytes(), space),
                       true});
}

void WeightPlan::vector(const float** target, const Parts& parts, const Adjust& adjust) {
  VectorItem item{target, {}, {}, 0, adjust};
  for (const Part& part : parts) {
    item.parts.push_back({used(part, 0), part.first, part.rows});
    item.size += part.rows;
  }
  item.place = take(static_cast<size_t>(item.size) * sizeof(float));
  vectors_.push_back(std::move(item));
}

void WeightPlan::vector(const float** target, const std::string& tensor,
                        std::span<const int64_t> shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  const Place place = take(static_cast<size_t>(size) * sizeof(float));
  vectors_.push_back({target, {{used(tensor, shape), 0, size}}, place, size, {}});
}

void WeightPlan::require_all_used(const std::string& prefix,
                                  const std::vector<std::string>& ignored) const {
  for (const std::string& name : files_.names()) {
    // Old exports store the rotary frequencies; they follow from the config.
    if (!name.starts_with(prefix) || used_.contains(name) || name.ends_with("inv_freq")) continue;
    const bool may_be_left =
        std::any_of(ignored.begin(), ignored.end(),
                    [&](const std::string& begin) { return name.starts_with(begin); });
    if (may_be_left) continue;
    throw InputError(
        fmt::format("{}: tensor {} does not belong to the model that {} describes", files_.source(),
                    name, files_.source().ends_with(".gguf") ? "the metadata" : "config.json"));
  }
}

namespace {

void read_as(DType dtype, const WeightView& tensor, int64_t first, int64_t count, std::byte* out) {
  if (dtype == DType::kF32) {
    tensor.read(first, count, reinterpret_cast<float*>(out));
  } else {
    tensor.read_bf16(first, count, reinterpret_cast<uint16_t*>(out));
  }
}

// Calls with (piece, first row in the piece, rows, rows before) for a range of stacked rows.
template <typename Pieces, typename Call>
void for_rows(const Pieces& pieces, int64_t first, int64_t rows, const Call& call) {
  int64_t done = 0;
  for (const auto& piece : pieces) {
    const int64_t count = std::min(rows - done, piece.rows - first);
    if (count > 0) {
      call(piece, piece.first + first, count, done);
      done += count;
      first += count;
    }
    first -= piece.rows;
  }
}

// Calls body(first panel, end) for runs of panels that fit the upload buffer, then uploads each
// run.
template <typename L, typename Place, typename Uploader, typename Body>
void load_panels(const L& linear, const Place& place, Uploader* uploader, const Body& body) {
  for (int64_t first = 0; first < linear.panels();) {
    const size_t begin = panel_offset(linear, first);
    int64_t end = first + 1;
    const auto room_for = [&](int64_t panel) {
      return panel_offset(linear, panel) + panel_bytes(linear, panel) - begin <=
             uploader->capacity();
    };
    while (end < linear.panels() && room_for(end)) ++end;
    parallel_for(first, end, [&](int64_t panel) {
      body(panel, uploader->upload_buffer() + panel_offset(linear, panel) - begin);
    });
    const size_t bytes = panel_offset(linear, end - 1) + panel_bytes(linear, end - 1) - begin;
    uploader->send({place.space, place.offset + begin}, bytes);
    first = end;
  }
}

}  // namespace

void WeightPlan::read_rows(const MatrixItem& item, int64_t first, int64_t rows,
                           std::byte* out) const {
  const int64_t inputs = item.target->inputs();
  for_rows(item.pieces, first, rows,
           [&](const Piece& piece, int64_t row, int64_t count, int64_t done) {
             read_as(layout_.dtype, piece.tensor, row * inputs, count * inputs,
                     out + done * inputs * dtype_bytes(layout_.dtype));
           });
}

// Reads columns of a transposed item.
void WeightPlan::read_columns(const MatrixItem& item, int64_t first, int64_t columns,
                              std::byte* out) const {
  const Piece& part = item.pieces.front();
  const int64_t width = part.tensor.shape.back();
  const int64_t bytes = dtype_bytes(layout_.dtype);
  std::vector<std::byte> row(static_cast<size_t>(columns * bytes));
  for (int64_t i = 0; i < part.rows; ++i) {
    read_as(layout_.dtype, part.tensor, (part.first + i) * width + first, columns, row.data());
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(out + (column * part.rows + i) * bytes, row.data() + column * bytes,
                  static_cast<size_t>(bytes));
    }
  }
}

void WeightPlan::load_plain(const MatrixItem& item, const Linear& linear,
                            Uploader* uploader) const {
  const int64_t row_bytes = linear.inputs() * dtype_bytes(layout_.dtype);
  load_panels(linear, item.place, uploader, [&](int64_t panel, std::byte* out) {
    const int64_t columns = linear.panel_columns(panel);
    std::vector<std::byte> plain(static_cast<size_t>(columns * row_bytes));
    const auto read = item.transposed ? &WeightPlan::read_columns : &WeightPlan::read_rows;
    (this->*read)(item, linear.first_column(panel), columns, plain.data());
    linear.pack(panel, plain.data(), out);
  });
}

void WeightPlan::load_packed(const MatrixItem& item, const PackedLinear& linear,
                             Uploader* uploader) const {
  load_panels(linear, item.place, uploader, [&](int64_t panel, std::byte* out) {
    std::memset(out, 0, linear.panel_bytes());
    for_rows(item.pieces, panel * kPackedColumns, kPackedColumns,
             [&](const Piece& piece, int64_t row, int64_t count, int64_t done) {
               CodeRows rows(linear.format(), linear.places(), count);
               piece.tensor.packed->read(row, count, &rows);
               for (int64_t i = 0; i < count; ++i) {
                 pack_row(linear.format(), linear.panel(), rows.row(i), done + i, out);
               }
             });
  });
}

// A panel is longer than the order, so the upload buffer is large enough.
const int32_t* WeightPlan::load_order(const MatrixItem& item, const PackedLinear& linear,
                                      Uploader* uploader) const {
  const size_t bytes = linear.order().size() * sizeof(int32_t);
  std::memcpy(uploader->upload_buffer(), linear.order().data(), bytes);
  uploader->send(item.order, bytes);
  return reinterpret_cast<const int32_t*>(uploader->at(item.order));
}

WeightPlan::Loaded WeightPlan::load(Device& device, StreamView stream) const {
  size_t upload_buffer = 64;
  for (const auto& item : matrices_) {
    const Matrix::Part& part = item.target->parts()[item.part];
    const auto largest = [](const auto& linear) { return largest_panel(linear); };
    upload_buffer = std::max(
        {upload_buffer, std::min(kUploadBytes, part.bytes()), std::visit(largest, part.linear)});
  }
  for (const auto& item : vectors_) {
    upload_buffer = std::max(upload_buffer, static_cast<size_t>(item.size) * sizeof(float));
  }
  Loaded memory{device.allocate(MemorySpace::kDevice, bytes(MemorySpace::kDevice), "weights"), {}};
  if (const uint64_t host = bytes(MemorySpace::kHost); host > 0) {
    memory.host = device.allocate(MemorySpace::kHost, host, "experts");
  }
  Uploader uploader(device, stream, memory, upload_buffer);
  for (const auto& item : matrices_) {
    Matrix::Part& part = item.target->parts()[item.part];
    if (const auto* plain = std::get_if<Linear>(&part.linear)) {
      load_plain(item, *plain, &uploader);
    } else {
      const auto& packed = std::get<PackedLinear>(part.linear);
      load_packed(item, packed, &uploader);
      if (has_kernel_order(packed)) part.order = load_order(item, packed, &uploader);
    }
    part.data = uploader.at(item.place);
  }
  for (const auto& item : vectors_) {
    auto* out = reinterpret_cast<float*>(uploader.upload_buffer());
    for (const Piece& part : item.parts) {
      part.tensor.read(part.first, part.rows, out);
      for (int64_t i = 0; i < part.rows; ++i, ++out) {
        const float value = *out + item.adjust.base;
        *out = (item.adjust.exponential ? std::exp(value) : value) * item.adjust.scale;
      }
    }
    uploader.send(item.place, static_cast<size_t>(item.size) * sizeof(float));
    *item.target = reinterpret_cast<const float*>(uploader.at(item.place));
  }
  return memory;
}

}  // namespace fasa
