#include "runtime/plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "offload/store/retention.h"
#include "runtime/api/memory_estimate.h"
#include "runtime/api/settings.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {
namespace {

constexpr std::string_view kHotRows = "hot rows";
constexpr std::string_view kTokens = "tokens";

// The largest number from `low` to `high` for which `good` holds; nullopt if it fails at `low`.
// Requires `good` to be monotonic: true, then false.
template <typename Good>
std::optional<int64_t> last_good(int64_t low, int64_t high, const Good& good) {
  if (!good(low)) return std::nullopt;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (good(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

class Fitting {
 public:
  explicit Fitting(const FitOptions& request) : request_(request) {
    fitted_.config = request.config;
    fitted_.tokens = request.tokens;
  }

  // Only int8 rows and fewer tokens free host memory: if it is short, these go first, and the
  // device keeps its hot rows, low-bit tokens and slices.
  Fitted run() {
    if (!host_fits(fitted_.tokens)) int8_rows();
    if (!host_fits(fitted_.tokens) &&
        !fewer_tokens([this](int64_t tokens) { return host_fits(tokens); })) {
      refuse();
    }
    using Step = bool (Fitting::*)();
    for (const Step step :
         {&Fitting::as_it_is, &Fitting::fewer_hot_rows, &Fitting::int8_device_rows,
          &Fitting::default_slices, &Fitting::no_low_bit_tokens, &Fitting::lean_slices,
          &Fitting::as_many_tokens_as_fit}) {
      if (!(this->*step)()) continue;
      fitted_.device_bytes = device_bytes(memory_of(fitted_.config, fitted_.tokens));
      return std::move(fitted_);
    }
    refuse();
  }

 private:
  RowDType row_dtype_of(const Config& config) const {
    return config.placement.row_dtype.value_or(request_.row_dtype);
  }
  StepSettings settings_of(const Config& config, int64_t tokens) const {
    return make_step_settings(config, request_.geometry, row_dtype_of(config), request_.traits,
                              tokens);
  }
  KvMemory memory_of(const Config& config, int64_t tokens) const {
    const StepSettings settings = settings_of(config, tokens);
    const int step = static_cast<int>(std::min<int64_t>(request_.step_tokens, tokens));
    return estimate_memory(settings, settings.max_hot_rows, tokens, step,
                           PrefetchControl::scratch_for(settings), kConversationRollback);
  }
  uint64_t device_bytes(const KvMemory& kv) const {
    return request_.model_bytes + kv.device_total();
  }
  bool fits(const Config& config, int64_t tokens) const {
    const KvMemory kv = memory_of(config, tokens);
    return device_bytes(kv) <= request_.device_memory && kv.host_needed() <= request_.host_memory;
  }

  bool host_fits(int64_t tokens) const {
    return memory_of(fitted_.config, tokens).host_needed() <= request_.host_memory;
  }

  bool as_it_is() { return fits(fitted_.config, fitted_.tokens); }

  bool fewer_hot_rows() {
    Config& config = fitted_.config;
    const int usual = settings_of(config, fitted_.tokens).max_hot_rows;
    if (config.placement.rows == RowPlacement::kDevice || usual == 0) return false;
    const auto with = [&](int64_t hot_rows) {
      Config changed = config;
      changed.placement.hot_rows = static_cast<int>(hot_rows);
      return changed;
    };
    const auto most =
        last_good(0, usual, [&](int64_t hot_rows) { return fits(with(hot_rows), fitted_.tokens); });
    config = with(most.value_or(0));
    give_up(fmt::format("{}: {} instead of {}", kHotRows, most.value_or(0), usual));
    return most.has_value();
  }

  // The next reduction frees memory for hot rows again.
  bool as_far_as_hot_rows_go() {
    fitted_.config.placement.hot_rows = request_.config.placement.hot_rows;
    std::erase_if(fitted_.given_up,
                  [](const std::string& what) { return what.starts_with(kHotRows); });
    return as_it_is() || fewer_hot_rows();
  }

  // Rows in int8, if these heads can have them.
  void int8_rows() {
    Config& config = fitted_.config;
    const RowDType before = row_dtype_of(config);
    const Geometry& geometry = request_.geometry;
    const RowFormat coded = {RowDType::kInt8, geometry.key_dim, geometry.value_dim};
    if (before.is_coded() || !coded.holds_scales()) return;
    config.placement.row_dtype = RowDType::kInt8;
    give_up(fmt::format("rows: int8 instead of {}", row_dtype_name(before)));
  }

  bool int8_device_rows() {
    if (memory_of(fitted_.config, fitted_.tokens).device_rows == 0) return false;
    int8_rows();
    return as_far_as_hot_rows_go();
  }

  bool default_slices() {
    Config& config = fitted_.config;
    if (config.effective_fine_chunks() > 0) {
      config.selection.fine_chunks = 0;
    } else if (config.selection.slice == SlicePreset::kFine && !config.selection.slice_dtype) {
      config.selection.slice = SlicePreset::kDefault;
    } else {
      return false;
    }
    give_up("slices: default, codes in int2 instead of int4");
    return as_far_as_hot_rows_go();
  }

  bool no_low_bit_tokens() {
    Config& config = fitted_.config;
    if (!config.has_low_bit_set(request_.geometry.chunks())) return false;
    config.selection.low_bit_tokens = TokenCount{};
    give_up("low-bit tokens: none");
    return as_far_as_hot_rows_go();
  }

  bool lean_slices() {
    Config& config = fitted_.config;
    if (!config.reads_slices()) return false;
    Config lean = config;
    lean.selection.slice = SlicePreset::kLean;
    lean.selection.slice_dtype.reset();
    lean.selection.tip_chunks.reset();
    lean.selection.fine_chunks.reset();
    lean.selection.low_bit_tokens = TokenCount{};
    const int chunks = request_.geometry.chunks();
    const auto bits = [&](const Config& of) {
      return of.effective_tip_chunks(chunks) * slice_bits(of.effective_slice_dtype());
    };
    if (bits(lean) >= bits(config)) return false;
    config = lean;
    give_up(fmt::format("slices: lean, {} of {} frequency chunks in int2",
                        lean.effective_tip_chunks(chunks), chunks));
    return as_far_as_hot_rows_go();
  }

  bool as_many_tokens_as_fit() {
    return fewer_tokens([this](int64_t tokens) { return fits(fitted_.config, tokens); });
  }

  template <typename Good>
  bool fewer_tokens(const Good& good) {
    const auto most = last_good(request_.min_tokens, fitted_.tokens, good);
    if (!most) return false;
    std::erase_if(fitted_.given_up,
                  [](const std::string& what) { return what.starts_with(kTokens); });
    fitted_.tokens = *most;
    give_up(fmt::format("{}: {} instead of {}", kTokens, *most, request_.tokens));
    return true;
  }

  void give_up(std::string what) { fitted_.given_up.push_back(std::move(what)); }

  [[noreturn]] void refuse() const {
    const KvMemory kv = memory_of(fitted_.config, request_.min_tokens);
    const bool host = kv.host_needed() > request_.host_memory;
    std::string given_up;
    for (const std::string& what : fitted_.given_up) given_up += "; " + what;
    const std::string purpose = fmt::format(
        "the model ({}) and a cache of {} tokens ({} on the device, {} on the host), after every "
        "allowed reduction{}",
        format_bytes(request_.model_bytes), request_.min_tokens, format_bytes(kv.device_total()),
        format_bytes(kv.host_needed()), given_up);
    throw BudgetError(host ? "host_memory" : "device_memory",
                      host ? kv.host_needed() : device_bytes(kv), 0,
                      host ? request_.host_memory : request_.device_memory, purpose);
  }

  const FitOptions& request_;
  Fitted fitted_;
};

}  // namespace

Fitted fit(const FitOptions& request) { return Fitting(request).run(); }

}  // namespace fasa
