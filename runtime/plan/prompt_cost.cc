#include "runtime/plan/prompt_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "kernels/prefill_work.h"
#include "offload/store/row_tier.h"

namespace fasa {
namespace {

// The times at which a prefill's streams are done with what was enqueued.
class PromptClock {
 public:
  PromptClock(const StepSettings& settings, const MachineRates& machine, const PromptLoad& load)
      : settings_(settings),
        machine_(machine),
        load_(load),
        access_(settings.access_of(load.tokens, settings.max_hot_rows)),
        write_back_(!machine.unified && traits_of(settings.rows).space == MemorySpace::kHost) {}

  // A chunk's cost grows evenly with its start: of very many, the middle one of a group stands for
  // the group.
  PromptCost run() {
    constexpr int64_t kGroups = 1024;
    const int64_t chunks = (load_.tokens + load_.chunk - 1) / load_.chunk;
    const int64_t group = (chunks / kGroups) | 1;
    for (int64_t first = 0; first < chunks;) {
      const int64_t alike = first + group < chunks ? group : 1;
      const Times before = at_;
      const PromptCost cost_before = cost_;
      read_chunk((first + alike / 2) * load_.chunk);
      add_more(alike - 1, before, cost_before);
      first += alike;
    }
    if (load_.weights.any()) {
      run({.device_bytes = load_.weights.head_bytes, .operations = load_.weights.head_operations});
      if (!machine_.unified) at_.compute += transfer(load_.weights.logit_bytes);
    }
    cost_.seconds = at_.compute;
    cost_.products = machine_.multiplied(cost_.operations - cost_.attention) +
                     machine_.prompt_attended(cost_.attention);
    cost_.link =
        machine_.unified
            ? 0
            : static_cast<double>(std::max(cost_.rows_back + cost_.experts, cost_.rows_to_host)) /
                  machine_.link_bandwidth;
    return cost_;
  }

 private:
  struct Times {
    double compute = 0;
    double copy = 0;                      // of rows to the device
    double back = 0;                      // of rows to the host
    std::array<double, 2> pages_free{};   // halves of the double buffer
    std::array<double, 2> buffer_free{};  // write-back buffers, by layer parity
    void shift(double seconds) {
      for (double* time : {&compute, &copy, &back, &pages_free[0], &pages_free[1], &buffer_free[0],
                           &buffer_free[1]}) {
        *time += seconds;
      }
    }
  };

  // Runs equal work `times` times: the first few, until it is periodic, stand for the others.
  template <typename Work>
  void repeat(int64_t times, const Work& work) {
    constexpr int64_t kRun = 4;
    Times before;
    PromptCost cost_before;
    for (int64_t i = 0; i < std::min(times, kRun); ++i) {
      before = at_;
      cost_before = cost_;
      work();
    }
    if (times > kRun) add_more(times - kRun, before, cost_before);
  }
  // What came after `before` comes `times` more times.
  void add_more(int64_t times, const Times& before, const PromptCost& cost_before) {
    at_.shift(static_cast<double>(times) * (at_.compute - before.compute));
    for (const auto field :
         {&PromptCost::operations, &PromptCost::attention, &PromptCost::state_bytes,
          &PromptCost::rows_back, &PromptCost::rows_to_host, &PromptCost::experts}) {
      cost_.*field += static_cast<uint64_t>(times) * (cost_.*field - cost_before.*field);
    }
  }

  // The first `count` layers. Those of one kind are alike: the first of each runs for all.
  template <typename Work>
  void for_layers(int count, const Work& work) {
    const auto kind_of = [this](int layer) {
      const LayerSettings& own = settings_.layer(layer);
      return std::tuple(own.in_window_rows, own.window, own.sharer == 0);
    };
    std::map<decltype(kind_of(0)), std::pair<int, int64_t>> kinds;  // first layer, number
    for (int layer = 0; layer < count; ++layer) {
      ++kinds.try_emplace(kind_of(layer), layer, 0).first->second.second;
    }
    for (const auto& [kind, layers] : kinds) {
      repeat(layers.second, [&, layer = layers.first] { work(layer); });
    }
  }

  void read_chunk(int64_t start) {
    start_ = start;
    tokens_ = std::min<int64_t>(load_.chunk, load_.tokens - start);
    if (load_.piece > 0) return add_chunk(start, tokens_);
    begin_step();
    for_layers(settings_.layer_count(), [this](int layer) { add_layer(layer); });
  }

  double transfer(uint64_t bytes) const {
    return static_cast<double>(bytes) / machine_.link_bandwidth + machine_.link_latency;
  }
  // Kernels on the compute stream.
  void run(const KernelWork& work) { run(work, machine_.multiplied(work.operations)); }
  void run_attention(const KernelWork& work) {
    run(work, machine_.prompt_attended(work.operations));
    cost_.attention += work.operations;
  }
  void run(const KernelWork& work, double products) {
    at_.compute += machine_.kernels.launch + std::max(machine_.moved(work.device_bytes), products);
    cost_.operations += work.operations;
  }

  // Layer by layer, in pieces: a layer's rows come back before its first piece, and the last layer
  // attends for the prompt's last piece alone.
  void add_chunk(int64_t start, int64_t tokens) {
    if (!machine_.unified)
      at_.compute += transfer(load_.weights.hidden_bytes * static_cast<uint64_t>(tokens));
    const int last = settings_.layer_count() - 1;
    for_layers(last, [&](int layer) { add_pieces(layer, start, tokens); });
    add_pieces(last, start, tokens);
  }

  void add_pieces(int layer, int64_t start, int64_t tokens) {
    const LayerSettings& own = settings_.layer(layer);
    for (int64_t done = 0; done < tokens; done += load_.piece) {
      start_ = start + done;
      tokens_ = std::min<int64_t>(load_.piece, tokens - done);
      begin_step(false);
      multiply();
      if (done == 0 || !load_.copies_experts) fetch_experts();
      if (own.sharer == 0) {
        const bool reads = access_ == RowAccess::kOverLink && !own.in_window_rows;
        if (reads && done == 0) load_layer(layer);
        append(layer);
      }
      const bool read = layer + 1 < settings_.layer_count() || start_ + tokens_ == load_.tokens;
      if (read) attend(layer);
    }
  }

  void attend(int layer) {
    run_attention(prefill_work(settings_.layout_of(layer),
                               {.start = start_,
                                .tokens = tokens_,
                                .window = settings_.layer(layer).window,
                                .end_page = pages_of(start_ + tokens_)},
                               load_.out));
  }

  void load_layer(int layer) {
    const CacheLayout& layout = settings_.layout_of(layer);
    const int64_t first =
        first_visible(static_cast<int32_t>(start_), settings_.layer(layer).window) / kPageTokens;
    at_.copy = std::max({at_.copy, at_.compute, at_.back});
    at_.pages_free[0] = at_.copy;
    stream(layout, pages_of(start_) - first, 0);
  }

  // The host has waited for the last step. Tables and embeddings cross the link.
  void begin_step(bool embeds = true) {
    at_.copy = std::max(at_.copy, at_.compute);
    if (machine_.unified) return;
    const double tables = transfer(sizeof(SequenceDesc));
    const uint64_t hidden =
        embeds ? load_.weights.hidden_bytes * static_cast<uint64_t>(tokens_) : 0;
    at_.compute += std::max(tables, hidden > 0 ? transfer(hidden) : 0);
  }

  void multiply() {
    if (!load_.weights.any()) return;
    run({.device_bytes = load_.weights.layer_bytes,
         .operations = static_cast<uint64_t>(tokens_) * load_.weights.layer_operations});
  }

  // Experts of a layer, for the tokens at hand. With many nearly all are chosen by some token.
  void fetch_experts() {
    const WeightLoad& weights = load_.weights;
    if (weights.fetched_bytes == 0) return;
    uint64_t bytes = std::max(weights.expert_bytes, weights.fetched_bytes);
    if (!load_.copies_experts) {
      const double all = static_cast<double>(bytes);
      const double missed = 1 - static_cast<double>(weights.fetched_bytes) / all;
      bytes = static_cast<uint64_t>(all * (1 - std::pow(missed, tokens_)));
    }
    at_.compute += transfer(bytes);
    cost_.experts += bytes;
  }

  void add_layer(int layer) {
    multiply();
    fetch_experts();
    const LayerSettings& own = settings_.layer(layer);
    if (own.sharer == 0) append(layer);
    const CacheLayout& layout = settings_.layout_of(layer);
    PrefillWave wave{.start = start_, .tokens = tokens_, .window = own.window};
    const int64_t end = pages_of(start_ + tokens_);
    if (own.in_window_rows || access_ == RowAccess::kLocal) {
      wave.end_page = end;
      return run_attention(prefill_work(layout, wave, load_.out));
    }
    const int64_t past = start_ / kPageTokens;
    size_t half = 0;
    int64_t page = first_visible(static_cast<int32_t>(start_), own.window) / kPageTokens;
    const auto run_past = [&] {
      wave.begin_page = page;
      wave.end_page = std::min<int64_t>(past, page + load_.wave_pages);
      wave.last = false;
      stream(layout, wave.end_page - page, half);
      run_wave(layout, wave);
      at_.pages_free[half] = at_.compute;
      wave.first = false;
      page = wave.end_page;
      half ^= 1;
    };
    if (own.window == 0 && page < past) {  // waves behind the first are alike
      run_past();
      const int64_t whole = (past - page) / load_.wave_pages;
      const int64_t begin = page;
      repeat(whole, run_past);
      page = begin + whole * load_.wave_pages;
    }
    while (page < past) run_past();
    wave.begin_page = past;
    wave.end_page = end;
    wave.last = true;
    run_wave(layout, wave);
  }

  void run_wave(const CacheLayout& layout, const PrefillWave& wave) {
    run_attention(prefill_work(layout, wave, load_.out));
    const int states = (wave.first ? 0 : 1) + (wave.last ? 0 : 1);
    cost_.state_bytes += static_cast<uint64_t>(states) * state_bytes(layout, tokens_);
  }

  // Pages are copied one by one into a half of the double buffer, then compute goes on.
  void stream(const CacheLayout& layout, int64_t pages, size_t half) {
    const auto page_bytes = static_cast<uint64_t>(layout.row_layer_bytes());
    at_.copy = std::max(at_.copy, at_.pages_free[half]) +
               static_cast<double>(pages) * transfer(page_bytes);
    at_.compute = std::max(at_.compute, at_.copy);
    cost_.rows_back += static_cast<uint64_t>(pages) * page_bytes;
  }

  void append(int layer) {
    const CacheLayout& layout = settings_.layout_of(layer);
    const bool back = write_back_ && !settings_.layer(layer).in_window_rows;
    double& buffer_free = at_.buffer_free[static_cast<size_t>(settings_.layer(layer).index % 2)];
    const bool by_layers = load_.piece > 0 && access_ == RowAccess::kOverLink;
    if (back && !by_layers) at_.compute = std::max(at_.compute, buffer_free);
    if (back && !by_layers && access_ == RowAccess::kOverLink && start_ % kPageTokens != 0) {
      at_.copy = std::max(at_.copy, at_.compute);
      at_.pages_free[0] = std::max(at_.pages_free[0], at_.copy);
      stream(layout, 1, 0);
    }
    const int64_t sealed = (start_ + tokens_) / kPageTokens - start_ / kPageTokens;
    const uint64_t bytes =
        append_bytes(layout, tokens_) + static_cast<uint64_t>(sealed) * seal_bytes(layout);
    run({.device_bytes = static_cast<uint64_t>(layout.kv_heads) * bytes});
    if (!back) return;
    const uint64_t rows = rows_bytes(layout, tokens_ * layout.kv_heads);
    at_.back = std::max(at_.back, at_.compute) + machine_.kernels.launch + transfer(rows);
    buffer_free = at_.back;
    cost_.rows_to_host += rows;
  }

  const StepSettings& settings_;
  const MachineRates& machine_;
  const PromptLoad& load_;
  const RowAccess access_;
  const bool write_back_;
  int64_t start_ = 0;
  int64_t tokens_ = 0;
  Times at_;
  PromptCost cost_;
};

}  // namespace

PromptCost prompt_cost(const StepSettings& settings, const MachineRates& machine,
                       const PromptLoad& load) {
  return PromptClock(settings, machine, load).run();
}

}  // namespace fasa
