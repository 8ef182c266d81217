#include "runtime/trace/trace_coding.h"

#include <fmt/format.h>
#include <zstd.h>

#include <map>
#include <vector>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr int kLevel = 19;
// A frame expands to at most this many times its bytes: more is a broken file.
constexpr uint64_t kMaxRatio = 1 << 15;

constexpr uint8_t kAbsent = 0;    // in no set
constexpr uint8_t kUnranked = 1;  // in the true set, not in the ranking
// A token of band b has the label kFirstBand + b.
constexpr uint8_t kFirstBand = 2;

// Labels of a head's tokens, by position.
using Labels = std::map<int32_t, uint8_t>;

Labels labels_of(const TraceShape& shape, std::span<const int32_t> set,
                 std::span<const int32_t> ranking) {
  Labels labels;
  for (const int32_t position : set) labels[position] = kUnranked;
  size_t begin = 0;
  for (size_t band = 0; band < shape.bands.size(); ++band) {
    const size_t end = std::min(ranking.size(), static_cast<size_t>(shape.bands[band]));
    for (; begin < end; ++begin) labels[ranking[begin]] = static_cast<uint8_t>(kFirstBand + band);
  }
  return labels;
}

void sets_of(const TraceShape& shape, const Labels& labels, std::vector<int32_t>& set,
             std::vector<int32_t>& ranking) {
  set.clear();
  std::vector<std::vector<int32_t>> bands(shape.bands.size());
  for (const auto& [position, label] : labels) {
    const bool ranked = label >= kFirstBand;
    if (!ranked || shape.bands[label - size_t{kFirstBand}] <= shape.set_ranked()) {
      set.push_back(position);
    }
    if (ranked) bands[label - size_t{kFirstBand}].push_back(position);
  }
  ranking.clear();
  for (const auto& band : bands) ranking.insert(ranking.end(), band.begin(), band.end());
}

// Seven bits a byte, low bits first.
void put(std::string& out, int64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// The number of tokens whose label changed; for each, its position less that of the one before less
// one, and its label.
void put_changes(std::string& out, const Labels& before, const Labels& now) {
  Labels changed;
  for (const auto& [position, label] : before) {
    if (!now.contains(position)) changed[position] = kAbsent;
  }
  for (const auto& [position, label] : now) {
    const auto old = before.find(position);
    if (old == before.end() || old->second != label) changed[position] = label;
  }
  put(out, std::ssize(changed));
  int32_t last = -1;
  for (const auto& [position, label] : changed) {
    put(out, position - last - 1);
    out.push_back(static_cast<char>(label));
    last = position;
  }
}

class Reader {
 public:
  Reader(std::string_view frame, const std::string& name) : name_(name) {
    const uint64_t size = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
        size > frame.size() * kMaxRatio) {
      fail("the steps are no zstd frame of known size");
    }
    bytes_.resize(size);
    const size_t done = ZSTD_decompress(bytes_.data(), size, frame.data(), frame.size());
    if (ZSTD_isError(done) != 0 || done != size) fail("the steps are a broken zstd frame");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(
        fmt::format("{}: byte {} of the steps' {}: {}; record it again with fasa trace", name_,
                    offset_, bytes_.size(), why));
  }
  uint8_t byte() {
    if (offset_ == bytes_.size()) fail("they end too early");
    return static_cast<uint8_t>(bytes_[offset_++]);
  }
  int64_t number() {  // at most 31 bits
    uint64_t value = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
      const uint8_t next = byte();
      value |= uint64_t{next & 0x7fu} << shift;
      if (next >= 0x80) continue;
      if (value > INT32_MAX) break;
      return static_cast<int64_t>(value);
    }
    fail(fmt::format("a value beyond {}", INT32_MAX));
  }
  void take_changes(int64_t context, size_t bands, Labels& labels) {
    int64_t position = -1;
    for (int64_t left = number(); left > 0; --left) {
      position += 1 + number();
      if (position >= context) {
        fail(fmt::format("position {} lies outside the context of {} tokens", position, context));
      }
      const uint8_t label = byte();
      if (label > kUnranked + bands) {
        fail(fmt::format("label {}; allowed: 0 to {}", label, kUnranked + bands));
      }
      if (label == kAbsent) {
        labels.erase(static_cast<int32_t>(position));
      } else {
        labels[static_cast<int32_t>(position)] = label;
      }
    }
  }
  void require_end() const {
    if (offset_ < bytes_.size()) fail("bytes follow the last step");
  }

 private:
  const std::string& name_;
  std::string bytes_;
  size_t offset_ = 0;
};

}  // namespace

std::string encode_steps(const SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  std::vector<Labels> heads(static_cast<size_t>(shape.layers * shape.kv_heads));
  std::string bytes;
  int32_t last = 0;
  for (int step = 0; step < trace.steps(); ++step) {
    put(bytes, trace.context(step) - last - 1);
    last = trace.context(step);
    for (size_t i = 0; i < heads.size(); ++i) {
      const auto [layer, head] = std::div(static_cast<int>(i), shape.kv_heads);
      Labels now =
          labels_of(shape, trace.true_set(step, layer, head), trace.ranking(step, layer, head));
      put_changes(bytes, heads[i], now);
      heads[i] = std::move(now);
    }
  }
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel));
  return frame;
}

void decode_steps(std::string_view frame, int steps, const std::string& name,
                  SelectionTrace& trace) {
  const TraceShape& shape = trace.shape();
  Reader reader(frame, name);
  std::vector<Labels> heads(static_cast<size_t>(shape.layers * shape.kv_heads));
  std::vector<std::vector<int32_t>> sets(trace.slots());
  int64_t context = 0;
  for (int step = 0; step < steps; ++step) {
    context += 1 + reader.number();
    if (context > INT32_MAX) reader.fail(fmt::format("a context of {} tokens", context));
    for (size_t i = 0; i < heads.size(); ++i) {
      reader.take_changes(context, shape.bands.size(), heads[i]);
      sets_of(shape, heads[i], sets[2 * i], sets[2 * i + 1]);
    }
    try {
      trace.add_step(static_cast<int32_t>(context), sets);
    } catch (const UsageError& error) {
      throw InputError(fmt::format("{}: step {}: {}", name, step, error.what()));
    }
  }
  reader.require_end();
}

}  // namespace fasa
