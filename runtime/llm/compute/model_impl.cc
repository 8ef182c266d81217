#include "runtime/llm/compute/model_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "kernels/rank_bodies.h"
#include "runtime/base/error.h"
#include "runtime/llm/compute/expert_copy.h"
#include "runtime/llm/config/mtp_config.h"

namespace fasa {
namespace {

// A new number for each model and each location of its activations: part of a graph's key.
uint64_t next_place() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

ModelConfig with_dtype(ModelConfig config, DType dtype) {
  config.linear.dtype = dtype;
  return config;
}

ConstTensorView moved(ConstTensorView view, ptrdiff_t by) {
  if (view.data == nullptr) return view;
  view.data = static_cast<const std::byte*>(view.data) + by;
  return view;
}

}  // namespace

Model::Impl::Impl(std::unique_ptr<WeightSource> source, ModelConfig config, DType dtype,
                  Device& device, const WeightOptions& weights, const Weights* trunk)
    : device_(device),
      config_(with_dtype(std::move(config), dtype)),
      dtype_(dtype),
      stream_(device.create_stream(StreamPriority::kNormal, "model")),
      linear_(config_.linear),
      weights_(std::move(source), config_, dtype, device, stream_.view(), weights, trunk),
      rotations_(make_rotations(config_)),
      engine_(
          {device_, config_, linear_, weights_, activations_, dtype_, rotations_, stream_.view()}),
      place_(next_place()) {}

void Model::Impl::add_mtp_head(std::unique_ptr<WeightSource> source, const WeightOptions& weights) {
  auto head = std::make_unique<Impl>(std::move(source), mtp_config(config_), dtype_, device_,
                                     weights, &weights_);
  mtp_head_ = std::unique_ptr<Model>(new Model(std::move(head)));
}

WeightBytes Model::Impl::weight_bytes() const {
  WeightBytes bytes = weights_.bytes();
  if (mtp_head_ != nullptr) bytes.add_head(mtp_head_->weight_bytes());
  return bytes;
}

void Model::Impl::reserve(int64_t tokens, int64_t rows) {
  if (tokens <= activations_.tokens() && rows <= activations_.rows()) return;
  Activations larger(device_, config_, dtype_, std::max(tokens, activations_.tokens()),
                     std::max({rows, activations_.rows(), int64_t{1}}));
  engine_.reserve(larger);
  activations_ = std::move(larger);
  place_ = next_place();
}

void Model::Impl::shrink(int64_t tokens) {
  if (activations_.tokens() <= tokens) return;
  const int64_t rows = activations_.rows();
  activations_ = Activations();
  reserve(tokens, rows);
}

// While they grow, the old ones stay.
uint64_t Model::Impl::activation_bytes(int64_t tokens) const {
  if (tokens <= activations_.tokens()) return 0;
  const PanelOrder order = device_.traits().model_calls ? PanelOrder::kPlain : PanelOrder::kPacked;
  return Activations::device_bytes(config_, dtype_, order, tokens, 1);
}

void Model::Impl::check(std::span<const int32_t> tokens, std::span<const StepSequence> step,
                        const ForwardOptions& options) const {
  int64_t expected = 0;
  for (const StepSequence& sequence : step) expected += sequence.tokens;
  if (tokens.empty() || expected != static_cast<int64_t>(tokens.size())) {
    throw UsageError(fmt::format(
        "a step of {} tokens was given {} token ids; give one id per token, and at least one token",
        expected, tokens.size()));
  }
  if (config_.is_mtp_head() != (options.given_states != nullptr)) {
    throw UsageError(config_.is_mtp_head()
                         ? "a step of a head of multi-token prediction was given no hidden states"
                         : "a step was given hidden states; allowed: of a head of multi-token "
                           "prediction");
  }
  if (options.observer != nullptr && step.size() != 1) {
    throw UsageError(fmt::format(
        "a step of {} sequences has an observer; allowed: an observer with one sequence",
        step.size()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocab_size) {
      throw UsageError(fmt::format("token {} has id {}; allowed: 0 to {}, the model's vocabulary",
                                   i, tokens[i], config_.vocab_size - 1));
    }
  }
}

StepShape Model::Impl::shape_of(Runtime& runtime, std::span<const StepSequence> step,
                                const ForwardOptions& options) const {
  StepShape shape;
  for (const StepSequence& sequence : step) {
    if (sequence.mode == StepMode::kPrefill) shape.cause = Cause::kPrefill;
    const int64_t start = runtime.length(sequence.sequence);
    const auto rows_before = static_cast<int64_t>(shape.logit_rows.size());
    add_rows(&shape.runs, sequence.tokens, sequence.mode);
    for (int64_t i = 0; i < sequence.tokens; ++i) {
      const bool wanted = options.all_logits || i == sequence.tokens - 1;
      if (wanted && !options.no_logits)
        shape.logit_rows.push_back(static_cast<int32_t>(shape.tokens));
      shape.positions.push_back(static_cast<int32_t>(start + i));
      ++shape.tokens;
    }
    const auto rows = static_cast<int64_t>(shape.logit_rows.size());
    if (rows > rows_before) add_rows(&shape.logit_runs, rows - rows_before, sequence.mode);
  }
  return shape;
}

ConstTensorView Model::Impl::part_of_qkv(int layer, int64_t tokens, int first_head,
                                         int heads) const {
  const int64_t dim = config_.heads(layer).key_dim;
  ConstTensorView view;
  view.data = activations_.qkv() + first_head * dim * dtype_bytes(dtype_);
  view.dtype = dtype_;
  view.tokens = tokens;
  view.heads = heads;
  view.dim = dim;
  view.token_stride =
      config_.is_shared(layer) ? config_.query_heads * dim : config_.qkv_width(layer);
  view.head_stride = dim;
  return view;
}

// With MLA the values are a part of the keys.
ConstTensorView Model::Impl::latent_part(ConstTensorView keys) const {
  const int rotated = config_.rotary_dims;
  keys.data = static_cast<const std::byte*>(keys.data) + rotated * dtype_bytes(dtype_);
  keys.dim -= rotated;
  return keys;
}

void Model::Impl::publish(const std::byte* data, size_t bytes, Report report) {
  const OperationTag tag = tag_of(open_->layer, open_->shape->cause);
  if (device_.host_work() != nullptr) {
    device_.launch(
        stream(), "observe",
        [report = std::move(report)] {
          report(0);
          return KernelWork{};
        },
        tag);
    return;
  }
  if (published_.bytes() < bytes) {
    published_ = Buffer();
    published_ = device_.allocate(MemorySpace::kHost, bytes, "copy for observers");
  }
  device_.copy(published_.data(), data, bytes, CopyKind::kDeviceToHost, stream(), tag);
  device_.synchronize(stream());  // the next layer overwrites it
  report(published_.data() - data);
}

// `model_layer`: of all layers.
Model::Impl::KeysValues Model::Impl::keys_values(int model_layer, int64_t tokens) const {
  if (config_.is_shared(model_layer)) return {};
  const int query_heads = config_.query_heads;
  const HeadShape heads = config_.heads(model_layer);
  const ConstTensorView k = part_of_qkv(model_layer, tokens, query_heads, heads.kv_heads);
  return {k, config_.has_mla()
                 ? latent_part(k)
                 : part_of_qkv(model_layer, tokens, query_heads + heads.kv_heads, heads.kv_heads)};
}

void Model::Impl::append(Runtime& runtime, int model_layer, const StepShape& shape) {
  if (config_.is_shared(model_layer)) return;
  const KeysValues stored = keys_values(model_layer, shape.tokens);
  runtime.append(config_.attention_index(model_layer), stored.k, stored.v, stream());
}

void Model::Impl::attend(Runtime& runtime, int model_layer, const StepShape& shape) {
  const ConstTensorView q = part_of_qkv(model_layer, shape.tokens, 0, config_.query_heads);
  const auto out = TensorView::dense(activations_.attended(), dtype_, shape.tokens,
                                     config_.query_heads, config_.heads(model_layer).value_dim);
  runtime.attend(config_.attention_index(model_layer), q, out, activations_.lse(), stream());
}

void Model::Impl::attention(Runtime& runtime, int model_layer, const StepShape& shape,
                            const ForwardOptions& options) {
  if (LayerObserver* observer = options.observer; observer != nullptr) {
    const int layer = open_->layer;
    const ConstTensorView q = part_of_qkv(model_layer, shape.tokens, 0, config_.query_heads);
    const KeysValues stored = keys_values(model_layer, shape.tokens);
    publish(activations_.qkv(), activations_.qkv_bytes(),
            [=, start = shape.positions[0]](ptrdiff_t by) {
              observer->on_layer(layer, moved(q, by), moved(stored.k, by), moved(stored.v, by),
                                 start);
            });
  }
  append(runtime, model_layer, shape);
  attend(runtime, model_layer, shape);
}

std::span<const LinearPart> Model::Impl::linear_parts(Runtime& runtime) const {
  if (runtime.geometry().linear == config_.linear) return runtime.linear_parts();
  throw UsageError(
      "the runtime was made for another model: the layers with linear attention differ; make it "
      "from the geometry of Model::config()");
}

void Model::Impl::enqueue(Runtime& runtime, const StepShape& shape, const ForwardOptions& options) {
  engine_.begin(shape);
  for (int layer = 0; layer < config_.layers; ++layer) {
    engine_.to_attention(layer);
    if (config_.is_linear(layer)) continue;
    open_->layer = config_.attention_index(layer);
    attention(runtime, layer, shape, options);
  }
  // Only logits and states need the last layer's output.
  if (!shape.logit_rows.empty()) return engine_.logits();
  if (shape.states != nullptr) engine_.states();
}

// Caps the logits in host memory.
void Model::Impl::cap_logits(std::span<float> logits) const {
  if (config_.logits_cap == 0) return;
  cpu::rank_bodies(cpu::active_target())
      .soft_cap(logits.data(), std::ssize(logits), config_.logits_cap, logits.data());
}

void Model::Impl::embed(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    weights_.embed(tokens[i],
                   activations_.host_embeddings() + static_cast<int64_t>(i) * config_.hidden);
    if (config_.layer_input == 0) continue;
    weights_.embed_layers(tokens[i], activations_.host_layer_inputs() +
                                         static_cast<int64_t>(i) * config_.layer_inputs());
  }
}

void Model::Impl::begin_piece(Runtime& runtime, const PromptPiece& piece) const {
  const int tokens = static_cast<int>(piece.tokens.size());
  const int index = config_.attention_index(piece.layer);
  if (!config_.is_linear(piece.layer))
    return runtime.prompts().begin_piece(piece.sequence, index, tokens);
  runtime.prompts().begin_linear_piece(piece.sequence, piece.layer - index, tokens, stream());
}

uint64_t Model::Impl::layer_expert_bytes() const {
  uint64_t bytes = 0;
  for (int layer = 0; layer < config_.layers && !device_.unified(); ++layer) {
    bytes = std::max<uint64_t>(bytes, experts_on_host(weights_.layer(layer).experts).size());
  }
  return bytes;
}

void Model::Impl::copy_experts(const PromptPiece& piece) {
  copied_experts_.reset();
  const ExpertLayerWeights& layer = weights_.layer(piece.layer).experts;
  const std::span<const std::byte> experts = experts_on_host(layer);
  if (piece.experts == nullptr || experts.empty()) return;
  device_.copy(piece.experts, experts.data(), experts.size(), CopyKind::kHostToDevice, stream(),
               tag_of(-1, Cause::kPrefill));
  copied_experts_ = with_experts_at(layer, piece.experts);
}

std::span<const float> Model::Impl::work(Runtime& runtime, const PromptPiece& piece) {
  const StepSequence part{piece.sequence, static_cast<int>(piece.tokens.size()),
                          StepMode::kPrefill};
  check(piece.tokens, {&part, 1}, {});
  const bool attends = piece.attends || piece.logits || piece.states != nullptr;
  StepShape shape = shape_of(runtime, {&part, 1}, {.no_logits = !piece.logits});
  std::iota(shape.positions.begin(), shape.positions.end(), static_cast<int32_t>(piece.start));
  shape.states = piece.states;
  reserve(shape.tokens, static_cast<int64_t>(shape.logit_rows.size()));
  if (piece.layer == 0) embed(piece.tokens);
  const bool linear = config_.is_linear(piece.layer);
  std::vector<LinearPart> parts;  // the runtime's end with the piece, before its work
  begin_piece(runtime, piece);
  try {
    if (linear) {
      const std::span<const LinearPart> given = linear_parts(runtime);
      parts.assign(given.begin(), given.end());
      shape.linear = parts;
    }
    engine_.stage(shape);
    if (piece.first) copy_experts(piece);
    engine_.begin_piece(shape, piece.layer, piece.residual, piece.layer_inputs,
                        copied_experts_ ? &*copied_experts_ : nullptr);
    if (!linear) append(runtime, piece.layer, shape);
    if (!linear && attends) attend(runtime, piece.layer, shape);
    if (piece.logits) {
      engine_.logits();
    } else if (piece.states != nullptr) {
      engine_.states();
    } else if (attends) {
      engine_.end_piece(piece.layer);
    }
    runtime.prompts().end_piece();
  } catch (...) {
    // Enqueued work refers to this frame. The first error is reported.
    try {
      device_.synchronize(stream());
    } catch (const Error&) {
    }
    throw;
  }
  return finish(shape);
}

std::span<const float> Model::Impl::forward(Runtime& runtime, std::span<const int32_t> tokens,
                                            std::span<const StepSequence> step,
                                            const ForwardOptions& options) {
  check(tokens, step, options);
  StepShape shape = shape_of(runtime, step, options);
  shape.given_states = options.given_states;
  shape.states = options.states;
  reserve(shape.tokens, static_cast<int64_t>(shape.logit_rows.size()));
  embed(tokens);
  const bool decodes = std::all_of(step.begin(), step.end(), [](const StepSequence& sequence) {
    return sequence.mode == StepMode::kDecode;
  });
  open_ = OpenForward{.shape = &shape};
  try {
    if (config_.linear.layers > 0) shape.linear = linear_parts(runtime);
    engine_.stage(shape);
    if (decodes && options.graphs && options.observer == nullptr) {
      const uint64_t words[] = {place_, shape.logit_rows.size(),
                                reinterpret_cast<uint64_t>(shape.given_states),
                                reinterpret_cast<uint64_t>(shape.states)};
      runtime.run_layers(stream(), words, [&] { enqueue(runtime, shape, options); });
    } else {
      enqueue(runtime, shape, options);
    }
    open_.reset();
  } catch (...) {
    open_.reset();
    // Enqueued work refers to this frame. The first error is reported.
    try {
      device_.synchronize(stream());
    } catch (const Error&) {
    }
    throw;
  }
  return finish(shape);
}

std::span<const float> Model::Impl::finish(const StepShape& shape) {
  device_.synchronize(stream());
  const size_t logits = shape.logit_rows.size() * static_cast<size_t>(config_.vocab_size);
  cap_logits({activations_.host_logits(), logits});
  return {activations_.host_logits(), logits};
}

}  // namespace fasa
