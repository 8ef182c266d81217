#include "runtime/llm/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/geometry_fingerprint.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/layer_work.h"
#include "runtime/llm/query_estimates.h"
#include "runtime/llm/rope.h"
#include "runtime/llm/weights.h"

namespace fasa {

class Model::Impl final : public QuerySource {
 public:
  Impl(const std::string& dir, ModelConfig config, DType dtype, Device& device)
      : device_(device),
        config_(std::move(config)),
        dtype_(dtype),
        stream_(device.create_stream(StreamPriority::kNormal, "model")),
        weights_(dir, config_, dtype, device, stream_.view()),
        frequencies_(rope_frequencies(config_)) {}

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  Device& device() const { return device_; }
  StreamView stream() const { return stream_.view(); }
  const Weights& weights() const { return weights_; }

  void reserve(int64_t tokens, int64_t rows) {
    if (tokens <= activations_.tokens() && rows <= activations_.rows()) return;
    activations_ = Activations(device_, config_, dtype_, std::max(tokens, activations_.tokens()),
                               std::max({rows, activations_.rows(), int64_t{1}}));
  }

  void reserve_estimates(int64_t sequences, int max_ahead);
  bool has_estimates() const { return estimates_.max_ahead() > 0; }
  int max_ahead() const override { return estimates_.max_ahead(); }
  ConstTensorView estimate(int layer, int ahead, StreamView stream) override;

  std::span<const float> forward(Runtime& runtime, std::span<const int32_t> tokens,
                                 std::span<const StepSequence> step, const ForwardOptions& options);

 private:
  // What is under way, for estimates.
  struct OpenForward {
    const LayerWork* work;
    const StepShape* shape;
    bool decodes;   // all sequences do
    int layer = 0;  // whose attention is being enqueued
  };
  void check(std::span<const int32_t> tokens, std::span<const StepSequence> step,
             const ForwardOptions& options) const;
  StepShape shape_of(Runtime& runtime, std::span<const StepSequence> step,
                     const ForwardOptions& options) const;
  void check_estimate(int layer, int ahead, StreamView stream) const;
  void enqueue(Runtime& runtime, const LayerWork& work, const StepShape& shape,
               const ForwardOptions& options);
  void attention(Runtime& runtime, int layer, const StepShape& shape,
                 const ForwardOptions& options);
  void show_estimates(int layer, const ForwardOptions& options);
  ConstTensorView part_of_qkv(int64_t tokens, int first_head, int heads) const;
  ConstTensorView latent_part(ConstTensorView keys) const;

  Device& device_;
  ModelConfig config_;
  DType dtype_;
  Stream stream_;
  Weights weights_;
  std::vector<float> frequencies_;
  Activations activations_;
  QueryEstimates estimates_;
  std::optional<OpenForward> open_;
};

void Model::Impl::check(std::span<const int32_t> tokens, std::span<const StepSequence> step,
                        const ForwardOptions& options) const {
  int64_t expected = 0;
  for (const StepSequence& sequence : step) expected += sequence.tokens;
  if (tokens.empty() || expected != static_cast<int64_t>(tokens.size())) {
    throw UsageError(
        fmt::format("a step of {} tokens got {} token ids; allowed: one id for each "
                    "token, at least one",
                    expected, tokens.size()));
  }
  if (options.observer != nullptr && step.size() != 1) {
    throw UsageError(
        fmt::format("a step of {} sequences has an observer; allowed: one sequence", step.size()));
  }
  if (options.estimate_ahead > estimates_.max_ahead()) {
    throw UsageError(
        fmt::format("estimate_ahead = {}; allowed: 0 to {}, what reserve_estimates() "
                    "gave room for",
                    options.estimate_ahead, estimates_.max_ahead()));
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
    for (int64_t i = 0; i < sequence.tokens; ++i) {
      const bool wanted = options.all_logits || i == sequence.tokens - 1;
      if (wanted && !options.no_logits) shape.logit_rows.push_back(shape.tokens);
      shape.positions.push_back(start + i);
      ++shape.tokens;
    }
  }
  return shape;
}

ConstTensorView Model::Impl::part_of_qkv(int64_t tokens, int first_head, int heads) const {
  const int64_t dim = config_.head_dim;
  ConstTensorView view;
  view.data = activations_.qkv() + first_head * dim * dtype_bytes(dtype_);
  view.dtype = dtype_;
  view.tokens = tokens;
  view.heads = heads;
  view.dim = dim;
  view.token_stride = config_.qkv_width();
  view.head_stride = dim;
  return view;
}

// Of keys with MLA: the values.
ConstTensorView Model::Impl::latent_part(ConstTensorView keys) const {
  const int rotated = config_.rotary_dims;
  keys.data = static_cast<const std::byte*>(keys.data) + rotated * dtype_bytes(dtype_);
  keys.dim -= rotated;
  return keys;
}

void Model::Impl::reserve_estimates(int64_t sequences, int max_ahead) {
  if (sequences < 1 || max_ahead < 1 || max_ahead >= config_.layers) {
    throw UsageError(
        fmt::format("estimates for {} sequences, {} layers ahead; allowed: 1 or more sequences, 1 "
                    "to {} layers ahead in a model of {}",
                    sequences, max_ahead, config_.layers - 1, config_.layers));
  }
  if (sequences <= estimates_.sequences() && max_ahead <= estimates_.max_ahead()) return;
  estimates_ = QueryEstimates(device_, config_, dtype_, std::max(sequences, estimates_.sequences()),
                              std::max(max_ahead, estimates_.max_ahead()));
}

void Model::Impl::check_estimate(int layer, int ahead, StreamView stream) const {
  const auto fail = [&](const std::string& why) {
    throw UsageError(
        fmt::format("estimate of the query {} layers after layer {}: {}", ahead, layer, why));
  };
  if (!open_) fail("no forward() is under way");
  if (!open_->decodes) fail("the step has a prefill; allowed: steps that only decode");
  if (layer != open_->layer) fail(fmt::format("layer {} is under way", open_->layer));
  if (ahead < 1 || ahead > estimates_.max_ahead()) {
    fail(fmt::format("allowed: 1 to {} ahead", estimates_.max_ahead()));
  }
  if (layer + ahead >= config_.layers) {
    fail(fmt::format("the model has layers 0 to {}", config_.layers - 1));
  }
  if (stream.native != stream_.view().native) fail("allowed: on the model's stream");
}

// The residual enters `layer` until after_attention() of it, which comes later in the stream.
ConstTensorView Model::Impl::estimate(int layer, int ahead, StreamView stream) {
  check_estimate(layer, ahead, stream);
  std::byte* query = estimates_.data(ahead);
  device_.launch(stream, "estimate", [work = open_->work, target = layer + ahead, query] {
    return work->query_of(target, query);
  });
  return estimates_.view(ahead, open_->shape->tokens);
}

void Model::Impl::show_estimates(int layer, const ForwardOptions& options) {
  if (options.observer == nullptr) return;
  const int last = std::min(options.estimate_ahead, config_.layers - 1 - layer);
  for (int ahead = 1; ahead <= last; ++ahead) {
    const ConstTensorView q = estimate(layer, ahead, stream());
    device_.launch(stream(), "observe", [observer = options.observer, layer, ahead, q] {
      observer->on_estimate(layer, ahead, q);
      return KernelWork{};
    });
  }
}

void Model::Impl::attention(Runtime& runtime, int layer, const StepShape& shape,
                            const ForwardOptions& options) {
  const int query_heads = config_.query_heads;
  const int kv_heads = config_.kv_heads;
  const ConstTensorView q = part_of_qkv(shape.tokens, 0, query_heads);
  const ConstTensorView k = part_of_qkv(shape.tokens, query_heads, kv_heads);
  const ConstTensorView v = config_.has_mla()
                                ? latent_part(k)
                                : part_of_qkv(shape.tokens, query_heads + kv_heads, kv_heads);
  if (LayerObserver* observer = options.observer; observer != nullptr) {
    device_.launch(stream(), "observe", [observer, layer, q, k, v, start = shape.positions[0]] {
      observer->on_layer(layer, q, k, v, start);
      return KernelWork{};
    });
    show_estimates(layer, options);
  }
  runtime.append(layer, k, v, stream());
  const auto out = TensorView::dense(activations_.attended(), dtype_, shape.tokens, query_heads,
                                     config_.value_dim());
  runtime.attend(layer, q, out, nullptr, stream());
}

// One launch between two attentions: few launches matter where a launch costs microseconds.
void Model::Impl::enqueue(Runtime& runtime, const LayerWork& work, const StepShape& shape,
                          const ForwardOptions& options) {
  device_.set_tag(tag_of(-1, shape.cause));
  const auto bytes = static_cast<size_t>(shape.tokens * config_.hidden) * sizeof(float);
  device_.copy(activations_.residual(), activations_.host_embeddings(), bytes,
               CopyKind::kHostToDevice, stream());
  for (int layer = 0; layer < config_.layers; ++layer) {
    device_.set_tag(tag_of(layer, shape.cause));
    device_.launch(stream(), "projections", [&work, layer] {
      KernelWork sum = layer == 0 ? work.begin() : work.after_attention(layer - 1);
      sum.device_bytes += work.before_attention(layer).device_bytes;
      return sum;
    });
    open_->layer = layer;
    attention(runtime, layer, shape, options);
  }
  // The last layer's output matters to logits alone.
  if (shape.logit_rows.empty()) return;
  device_.set_tag(tag_of(-1, shape.cause));
  device_.launch(stream(), "logits", [&work, last = config_.layers - 1] {
    KernelWork sum = work.after_attention(last);
    sum.device_bytes += work.logits().device_bytes;
    return sum;
  });
  const size_t logits = shape.logit_rows.size() * static_cast<size_t>(config_.vocab_size);
  device_.copy(activations_.host_logits(), activations_.logits(), logits * sizeof(float),
               CopyKind::kDeviceToHost, stream());
}

std::span<const float> Model::Impl::forward(Runtime& runtime, std::span<const int32_t> tokens,
                                            std::span<const StepSequence> step,
                                            const ForwardOptions& options) {
  check(tokens, step, options);
  const StepShape shape = shape_of(runtime, step, options);
  reserve(shape.tokens, static_cast<int64_t>(shape.logit_rows.size()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    weights_.embed(tokens[i],
                   activations_.host_embeddings() + static_cast<int64_t>(i) * config_.hidden);
  }
  const LayerWork work(config_, weights_, activations_, dtype_, frequencies_, shape);
  const bool decodes = std::all_of(step.begin(), step.end(), [](const StepSequence& sequence) {
    return sequence.mode == StepMode::kDecode;
  });
  if (decodes && has_estimates()) reserve_estimates(shape.tokens, estimates_.max_ahead());
  open_ = OpenForward{.work = &work, .shape = &shape, .decodes = decodes};
  try {
    enqueue(runtime, work, shape, options);
    open_.reset();
  } catch (...) {
    open_.reset();
    // What is enqueued refers to this frame. The first error is the one to report.
    try {
      device_.synchronize(stream());
    } catch (const Error&) {
    }
    throw;
  }
  device_.synchronize(stream());
  return {activations_.host_logits(),
          shape.logit_rows.size() * static_cast<size_t>(config_.vocab_size)};
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

DType Model::auto_dtype(const ModelConfig& config, const Device& device) {
  constexpr int64_t kBillion = 1'000'000'000;
  const bool on_cpu = device.kind() != DeviceKind::kCuda;
  return on_cpu && config.parameters() < kBillion ? DType::kF32 : DType::kBF16;
}

Model Model::load(const std::string& dir, Device& device, std::optional<DType> dtype) {
  if (device.kind() == DeviceKind::kCuda) {
    throw UsageError(
        "models do not run on CUDA in this version: open_host_device gives a device "
        "that they run on");
  }
  ModelConfig config = ModelConfig::load(dir);
  const DType chosen = dtype.value_or(auto_dtype(config, device));
  if (chosen == DType::kF16) {
    throw UsageError("dtype = f16; allowed: f32, bf16, auto");
  }
  return Model(std::make_unique<Impl>(dir, std::move(config), chosen, device));
}

const ModelConfig& Model::config() const { return impl_->config(); }
DType Model::dtype() const { return impl_->dtype(); }
Device& Model::device() const { return impl_->device(); }
StreamView Model::stream() const { return impl_->stream(); }
uint64_t Model::weight_bytes() const { return impl_->weights().device_bytes(); }

ModelFingerprint Model::fingerprint() const {
  const ModelConfig& config = impl_->config();
  ModelFingerprint print = with_heads_of(config.geometry(), {});
  print.model_type = config.model_type;
  print.rope_theta = config.rope.theta;
  print.rope_scaling = config.rope.scaling_text();
  print.key_rows = impl_->weights().key_rows();
  return print;
}

void Model::reserve(int step_tokens) {
  if (step_tokens < 1) {
    throw UsageError(fmt::format("a step of {} tokens; allowed: 1 or more", step_tokens));
  }
  impl_->reserve(step_tokens, 1);
}

void Model::reserve_estimates(int sequences, int max_ahead) {
  impl_->reserve_estimates(sequences, max_ahead);
}
QuerySource* Model::query_source() { return impl_->has_estimates() ? impl_.get() : nullptr; }

std::span<const float> Model::forward(Runtime& runtime, std::span<const int32_t> tokens,
                                      std::span<const StepSequence> step,
                                      const ForwardOptions& options) {
  return impl_->forward(runtime, tokens, step, options);
}

std::span<const float> Model::step(Runtime& runtime, std::span<const int32_t> tokens,
                                   std::span<const StepSequence> step,
                                   const ForwardOptions& options) {
  runtime.begin_step(step);
  try {
    const std::span<const float> logits = forward(runtime, tokens, step, options);
    runtime.end_step();
    return logits;
  } catch (...) {
    runtime.abort_step();
    throw;
  }
}

}  // namespace fasa
