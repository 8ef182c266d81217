#include "runtime/trace/trace_coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr uint8_t kAbsent = 0;    // in no set
constexpr uint8_t kUnranked = 1;  // in the true set, not in the ranking
// A token of band b has the label kFirstBand + b.
constexpr uint8_t kFirstBand = 2;

using Set = std::vector<int32_t>;
// Positions, ascending, and their labels.
using Labels = std::vector<std::pair<int32_t, uint8_t>>;

// What is known of a token before a prediction is read: four times its label, plus kBefore if it
// was in this prediction in the last step, plus kShallower if it is in the one that was made a
// layer later with as many FCs.
constexpr uint8_t kBefore = 1;
constexpr uint8_t kShallower = 2;
constexpr size_t kKnown = 4;

// Where the streams of each kind begin; the first holds the contexts.
struct StreamIndex {
  // The tokens that enter a set: number, position less that of the one before less one (low byte,
  // then the rest), label. Predictions have no labels.
  enum Entering : uint8_t { kCount, kLow, kHigh, kLabel };

  size_t labels;  // without kAbsent

  explicit StreamIndex(const TraceShape& shape) : labels(kUnranked + shape.bands.size()) {}
  size_t entering(Entering of) const { return 1 + of; }
  // The next label of a token with this label.
  size_t next(uint8_t label) const { return 4 + label; }
  size_t prediction(size_t index) const { return 5 + labels + index * (3 + kKnown * (labels + 1)); }
  size_t entering_prediction(size_t index, Entering of) const { return prediction(index) + of; }
  // Whether a token of which this is known is predicted. Empty if nothing is.
  size_t predicted(size_t index, uint8_t known) const { return prediction(index) + 3 + known; }
};

Labels labels_of(const TraceShape& shape, std::span<const int32_t> set,
                 std::span<const int32_t> ranking) {
  Labels labels;
  size_t begin = 0;
  for (size_t band = 0; band < shape.bands.size(); ++band) {
    const size_t end = std::min(ranking.size(), static_cast<size_t>(shape.bands[band]));
    for (; begin < end; ++begin) {
      labels.emplace_back(ranking[begin], static_cast<uint8_t>(kFirstBand + band));
    }
  }
  std::ranges::sort(labels);
  const size_t ranked = labels.size();
  for (const int32_t position : set) {
    const auto found =
        std::lower_bound(labels.begin(), labels.begin() + static_cast<int64_t>(ranked),
                         std::pair{position, kAbsent});
    if (found != labels.begin() + static_cast<int64_t>(ranked) && found->first == position)
      continue;
    labels.emplace_back(position, kUnranked);
  }
  std::ranges::sort(labels);
  return labels;
}

void sets_of(const TraceShape& shape, const Labels& labels, Set& set, Set& ranking) {
  set.clear();
  ranking.clear();
  for (const auto& [position, label] : labels) {
    const bool ranked = label >= kFirstBand;
    if (!ranked || shape.bands[label - size_t{kFirstBand}] <= shape.set_ranked()) {
      set.push_back(position);
    }
  }
  for (size_t band = 0; band < shape.bands.size(); ++band) {
    for (const auto& [position, label] : labels) {
      if (label == kFirstBand + band) ranking.push_back(position);
    }
  }
}

// The tokens of which anything is known, ascending.
Labels known_tokens(const Labels& labels, const Set& before, const Set& shallower) {
  Labels known;
  known.reserve(labels.size() + before.size() + shallower.size());
  const auto front = [](const Set& set, size_t at) {
    return at < set.size() ? set[at] : INT32_MAX;
  };
  size_t label = 0, at_before = 0, at_shallower = 0;
  while (label < labels.size() || at_before < before.size() || at_shallower < shallower.size()) {
    const int32_t labelled = label < labels.size() ? labels[label].first : INT32_MAX;
    const int32_t position =
        std::min({labelled, front(before, at_before), front(shallower, at_shallower)});
    size_t what = 0;
    if (labelled == position) what += kKnown * labels[label++].second;
    if (front(before, at_before) == position) what += kBefore, ++at_before;
    if (front(shallower, at_shallower) == position) what += kShallower, ++at_shallower;
    known.emplace_back(position, static_cast<uint8_t>(what));
  }
  return known;
}

// The prediction that was made a layer later with as many FCs.
std::optional<size_t> shallower_of(const TraceShape& shape, size_t which) {
  const TracePrediction& one = shape.predictions[which];
  for (size_t i = 0; i < which; ++i) {
    const TracePrediction& other = shape.predictions[i];
    if (other.depth == one.depth - 1 && other.chunks == one.chunks) return i;
  }
  return std::nullopt;
}

// What the next step's sets of a head are compared with.
struct HeadState {
  Labels labels;
  std::vector<Set> predictions;

  // Call in the order of predictions.
  Labels known(const TraceShape& shape, size_t which) const {
    const auto shallower = shallower_of(shape, which);
    return known_tokens(labels, predictions[which], shallower ? predictions[*shallower] : Set{});
  }
};

class Encoder {
 public:
  explicit Encoder(const TraceShape& shape)
      : shape_(shape), index_(shape), streams_(stream_count(shape)) {}

  StreamWriter& stream(size_t index) { return streams_[index]; }
  std::vector<StreamWriter> take() { return std::move(streams_); }

  void set(Labels labels, HeadState& state) {
    const auto label_of = [&](int32_t position) {
      const auto found = std::ranges::lower_bound(labels, std::pair{position, kAbsent});
      return found != labels.end() && found->first == position ? found->second : kAbsent;
    };
    for (const auto& [position, label] : state.labels) {
      stream(index_.next(label)).byte(label_of(position));
    }
    Set entering;
    auto before = state.labels.begin();
    for (const auto& [position, label] : labels) {
      while (before != state.labels.end() && before->first < position) ++before;
      if (before != state.labels.end() && before->first == position) continue;
      entering.push_back(position);
      stream(index_.entering(StreamIndex::kLabel)).byte(label);
    }
    enter(entering, [&](auto of) { return index_.entering(of); });
    state.labels = std::move(labels);
  }

  void prediction(size_t which, std::span<const int32_t> set, HeadState& state) {
    Set known;
    for (const auto& [position, what] : state.known(shape_, which)) {
      stream(index_.predicted(which, what)).bit(std::ranges::binary_search(set, position));
      known.push_back(position);
    }
    Set entering;
    std::ranges::set_difference(set, known, std::back_inserter(entering));
    enter(entering, [&](auto of) { return index_.entering_prediction(which, of); });
    state.predictions[which].assign(set.begin(), set.end());
  }

 private:
  template <typename At>
  void enter(const Set& positions, const At& at) {
    stream(at(StreamIndex::kCount)).varint(static_cast<uint32_t>(positions.size()));
    int32_t before = -1;
    for (const int32_t position : positions) {
      const auto gap = static_cast<uint32_t>(position - before - 1);
      stream(at(StreamIndex::kLow)).byte(static_cast<uint8_t>(gap));
      stream(at(StreamIndex::kHigh)).varint(gap >> 8);
      before = position;
    }
  }

  const TraceShape& shape_;
  const StreamIndex index_;
  std::vector<StreamWriter> streams_;
};

class Decoder {
 public:
  Decoder(const TraceShape& shape, std::vector<StreamReader>& streams)
      : shape_(shape), index_(shape), streams_(streams) {}

  StreamReader& stream(size_t index) { return streams_[index]; }

  void set(int32_t context, HeadState& state) {
    Labels labels;
    for (const auto& [position, label] : state.labels) {
      if (const uint8_t next = read_label(index_.next(label), kAbsent); next != kAbsent) {
        labels.emplace_back(position, next);
      }
    }
    for (const int32_t position : entering(context, [&](auto of) { return index_.entering(of); })) {
      labels.emplace_back(position, read_label(index_.entering(StreamIndex::kLabel), kUnranked));
    }
    std::ranges::sort(labels);
    state.labels = std::move(labels);
  }

  void prediction(size_t which, int32_t context, HeadState& state) {
    Set set;
    for (const auto& [position, what] : state.known(shape_, which)) {
      if (stream(index_.predicted(which, what)).bit()) set.push_back(position);
    }
    const Set others =
        entering(context, [&](auto of) { return index_.entering_prediction(which, of); });
    set.insert(set.end(), others.begin(), others.end());
    std::ranges::sort(set);
    state.predictions[which] = std::move(set);
  }

 private:
  uint8_t read_label(size_t index, uint8_t least) {
    const uint8_t label = stream(index).byte();
    if (label < least || label > index_.labels) {
      stream(index).fail(fmt::format("label {}; allowed: {} to {}", label, least, index_.labels));
    }
    return label;
  }
  template <typename At>
  Set entering(int32_t context, const At& at) {
    Set positions;
    int64_t position = -1;
    for (int32_t left = stream(at(StreamIndex::kCount)).varint(); left > 0; --left) {
      const uint8_t low = stream(at(StreamIndex::kLow)).byte();
      position += 1 + low + (int64_t{stream(at(StreamIndex::kHigh)).varint()} << 8);
      if (position >= context) {
        stream(at(StreamIndex::kHigh))
            .fail(fmt::format("position {} lies outside the context of {} tokens", position,
                              context));
      }
      positions.push_back(static_cast<int32_t>(position));
    }
    return positions;
  }

  const TraceShape& shape_;
  const StreamIndex index_;
  std::vector<StreamReader>& streams_;
};

std::vector<HeadState> head_states(const TraceShape& shape) {
  return std::vector<HeadState>(static_cast<size_t>(shape.layers * shape.kv_heads),
                                {{}, std::vector<Set>(shape.predictions.size())});
}

}  // namespace

size_t stream_count(const TraceShape& shape) {
  return StreamIndex(shape).prediction(shape.predictions.size());
}

std::vector<StreamWriter> encode_steps(const SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  Encoder encoder(shape);
  std::vector<HeadState> states = head_states(shape);
  int32_t last = 0;
  for (int step = 0; step < trace.steps(); ++step) {
    encoder.stream(0).varint(static_cast<uint32_t>(trace.context(step) - last - 1));
    last = trace.context(step);
    auto state = states.begin();
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (int head = 0; head < shape.kv_heads; ++head, ++state) {
        encoder.set(
            labels_of(shape, trace.true_set(step, layer, head), trace.ranking(step, layer, head)),
            *state);
        for (size_t i = 0; i < shape.predictions.size(); ++i) {
          if (!trace.has_prediction(layer, i)) continue;
          encoder.prediction(i, trace.predicted_set(step, layer, head, i), *state);
        }
      }
    }
  }
  return encoder.take();
}

void decode_steps(std::vector<StreamReader>& streams, int steps, SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  Decoder decoder(shape, streams);
  std::vector<HeadState> states = head_states(shape);
  std::vector<Set> sets(trace.slots());
  int64_t context = 0;
  for (int step = 0; step < steps; ++step) {
    context += int64_t{1} + streams[0].varint();
    if (context > INT32_MAX) streams[0].fail(fmt::format("a context of {} tokens", context));
    auto state = states.begin();
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (int head = 0; head < shape.kv_heads; ++head, ++state) {
        const size_t slot = trace.slot(layer, head);
        decoder.set(static_cast<int32_t>(context), *state);
        sets_of(shape, state->labels, sets[slot], sets[slot + 1]);
        for (size_t i = 0; i < shape.predictions.size(); ++i) {
          if (!trace.has_prediction(layer, i)) continue;
          decoder.prediction(i, static_cast<int32_t>(context), *state);
          sets[slot + 2 + i] = state->predictions[i];
        }
      }
    }
    try {
      trace.add_step(static_cast<int32_t>(context), sets);
    } catch (const UsageError& error) {
      throw InputError(fmt::format("step {}: {}", step, error.what()));
    }
  }
  for (const StreamReader& stream : streams) {
    if (!stream.at_end()) stream.fail("bytes follow the last step");
  }
}

}  // namespace fasa
