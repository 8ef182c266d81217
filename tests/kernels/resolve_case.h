// Resolve and gather against the reference, entry for entry, over steps with a changing set: after
// the gather every row pointer leads to the right row. For any device's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/kernels/row_case.h"
#include "tests/kernels/row_kernels.h"

namespace fasa {

inline constexpr int kResolveLength = 500;

// Buffers of one wave.
struct Wave {
  Wave(const RowCase& cache, int count, int size)
      : heads(count * cache.layout().kv_heads),
        entries(size),
        fetch_buffer(static_cast<size_t>(heads * entries * cache.layout().row.bytes())),
        rows(static_cast<size_t>(heads * entries), nullptr),
        ready(static_cast<size_t>(heads * ((entries + 31) / 32)), 9),
        fetches(static_cast<size_t>(heads * entries)),
        counts(static_cast<size_t>(heads), -1) {}
  void point(ResolveParams& params) {
    params.fetch_buffer = fetch_buffer.data();
    params.rows = rows.data();
    params.tile_ready = ready.data();
    params.fetches = fetches.data();
    params.fetch_counts = counts.data();
    params.counters = &counters;
  }
  int64_t heads, entries;
  std::vector<std::byte> fetch_buffer;
  std::vector<const std::byte*> rows;
  std::vector<uint8_t> ready;
  std::vector<FetchItem> fetches;
  std::vector<int32_t> counts;
  StepCounters counters;
};

struct Sets {
  int capacity = 0;
  std::vector<int32_t> positions, sizes;
};

// Sinks, recent tokens and random others, ascending; a different size per head.
inline Sets random_sets(const CacheLayout& layout, int count, int length, int size,
                        std::mt19937& random) {
  Sets sets;
  sets.capacity = size;
  for (int head = 0; head < count * layout.kv_heads; ++head) {
    std::vector<int32_t> others(static_cast<size_t>(length + 1 - layout.sinks - layout.recent));
    std::iota(others.begin(), others.end(), layout.sinks);
    std::shuffle(others.begin(), others.end(), random);
    const int taken = size - head % 3 - layout.protected_tokens();
    std::vector<int32_t> set(others.begin(), others.begin() + taken);
    for (int i = 0; i < layout.sinks; ++i) set.push_back(i);
    for (int i = 0; i < layout.recent; ++i) set.push_back(length - i);
    std::sort(set.begin(), set.end());
    sets.sizes.push_back(static_cast<int32_t>(set.size()));
    set.resize(static_cast<size_t>(size), -7);
    sets.positions.insert(sets.positions.end(), set.begin(), set.end());
  }
  return sets;
}

// An address as (owner, byte offset), comparable between two caches.
inline std::pair<int, int64_t> place(RowCase& cache, const Wave& wave, const std::byte* address) {
  const auto within = [&](const std::vector<std::byte>& block) {
    return address >= block.data() && address < block.data() + block.size();
  };
  if (within(wave.fetch_buffer)) return {-1, address - wave.fetch_buffer.data()};
  for (int s = 0; s < 2; ++s) {
    RowSequence& sequence = cache.sequence(s);
    if (within(sequence.protected_rows))
      return {s * 1000, address - sequence.protected_rows.data()};
    if (within(sequence.hot)) return {s * 1000 + 1, address - sequence.hot.data()};
    for (size_t page = 0; page < sequence.copies.size(); ++page) {
      if (within(sequence.copies[page])) {
        return {s * 1000 + 500 + static_cast<int>(page), address - sequence.copies[page].data()};
      }
    }
    for (size_t page = 0; page < sequence.rows.size(); ++page) {
      if (within(sequence.rows[page])) {
        return {s * 1000 + 2 + static_cast<int>(page), address - sequence.rows[page].data()};
      }
    }
  }
  return {-2, 0};
}

// Tokens [first, first + count) of each sequence of a decode step.
inline RowStep tokens_of(RowStep step, int first, int count) {
  std::vector<SequenceDesc> descs;
  for (const SequenceDesc& whole : step.descs) {
    for (int token = first; token < first + count; ++token) {
      SequenceDesc desc = whole;
      desc.first_token += token;
      desc.start += token;
      desc.earlier = token;
      desc.tokens = 1;
      descs.push_back(desc);
    }
  }
  step.descs = std::move(descs);
  return step;
}

struct ResolveSetting {
  int hot_rows;
  int wave;
  bool on_device;
  bool device_copies = false;
  bool by_head = false;  // fetch per head, last head first, instead of resolve and gather
  int sharers = 0;
  int together = 1;  // tokens that share hot slots, of a step of several
};

inline std::vector<ResolveSetting> resolve_settings() {
  return {{0, 128, false},
          {7, 128, false},
          {64, 32, false},
          {130, 128, false},
          {240, 64, false},
          {600, 128, false},
          {4100, 128, false},
          {0, 32, true},
          {0, 128, false, true},
          {64, 32, false, true},
          {240, 64, false, true},
          {64, 96, true},
          {0, 128, false, false, true},
          {130, 128, false, true, true},
          {240, 64, false, false, true},
          {130, 64, false, false, false, 1},
          {130, 128, false, true, true, 2},
          {130, 64, false, true, false, 0, 2},
          {600, 128, false, false, true, 0, 3},
          {0, 32, true, false, false, 0, 2}};
}
inline std::string name_of(const ResolveSetting& setting) {
  return "hot" + std::to_string(setting.hot_rows) + "_wave" + std::to_string(setting.wave) +
         (setting.on_device ? "_device" : "_host") + (setting.device_copies ? "_copies" : "") +
         (setting.by_head ? "_by_head" : "") + (setting.sharers > 0 ? "_shared" : "") +
         (setting.together > 1 ? "_together" : "");
}

inline void expect_resolves_as_reference(const ResolveSetting& setting, const RowKernels& kernels) {
  RowShape shape;
  shape.key_dim = 20, shape.value_dim = 12, shape.layers = 2;
  shape.hot_rows = setting.hot_rows, shape.on_device = setting.on_device;
  shape.device_copies = setting.device_copies;
  shape.sharers = setting.sharers;
  if (setting.wave == 64) shape.recent = 2;
  RowCase fast(shape, {1, 2}, kResolveLength + 40);
  RowCase slow(shape, {1, 2}, kResolveLength + 40);
  std::mt19937 random(4);
  constexpr int kSet = 120;
  int from_copies = 0;
  for (RowCase* cache : {&fast, &slow}) {
    cache->advance({{0, kResolveLength}, {1, kResolveLength - 13}}, cache == &slow);
  }

  constexpr int kNumbers = 12, kSingle = 6;  // steps of one token, then one of several
  RowStep whole[2];
  int together = 1;
  for (int step_number = 1; step_number <= kNumbers; step_number += together) {
    const int tokens = step_number <= kSingle ? 1 : kNumbers - kSingle;
    const int token = step_number <= kSingle ? 0 : step_number - kSingle - 1;
    together = step_number <= kSingle ? 1 : setting.together;
    const int count = 2 * together;
    const std::vector<Advance> advances = {{0, tokens, StepMode::kDecode},
                                           {1, tokens, StepMode::kDecode}};
    if (token == 0) {
      whole[0] = fast.begin(advances), whole[1] = slow.begin(advances);
      fast.append(whole[0]);
      slow.append(whole[1], true);
    }
    RowStep steps[] = {tokens_of(whole[0], token, together), tokens_of(whole[1], token, together)};
    const int length = fast.sequence(1).length + token;
    Sets sets = random_sets(fast.layout(), count, length, kSet, random);
    for (int begin = 0; begin < kSet; begin += setting.wave) {
      Wave waves[] = {Wave(fast, count, setting.wave), Wave(slow, count, setting.wave)};
      ResolveParams params;
      params.begin = begin;
      params.end = begin + setting.wave;
      params.step_number = StepNumber(step_number);
      params.selected_capacity = kSet;
      params.sets = sets.positions.data();
      params.selected_sizes = sets.sizes.data();
      params.step = fast.params(steps[0], 1);
      params.step.together = together;
      waves[0].point(params);
      for (int head = setting.by_head ? fast.layout().kv_heads : 0; head-- > 0;) {
        params.step.heads = {head, head + 1};
        kernels.fetch({params});
      }
      if (!setting.by_head) kernels.resolve(params);
      params.step = slow.params(steps[1], 1);
      waves[1].point(params);
      reference::resolve(params);

      EXPECT_EQ(waves[0].counts, waves[1].counts);
      EXPECT_EQ(waves[0].ready, waves[1].ready);
      EXPECT_EQ(waves[0].counters.protected_rows, waves[1].counters.protected_rows);
      EXPECT_EQ(waves[0].counters.hits, waves[1].counters.hits);
      EXPECT_EQ(waves[0].counters.misses, waves[1].counters.misses);
      uint64_t fetched = 0;
      for (const int32_t of_head : waves[0].counts) fetched += static_cast<uint64_t>(of_head);
      EXPECT_EQ(fetched, waves[0].counters.misses);

      if (!setting.by_head)
        kernels.gather(
            {fast.layout(), count, setting.wave, waves[0].fetches.data(), waves[0].counts.data()});
      reference::gather(
          {slow.layout(), count, setting.wave, waves[1].fetches.data(), waves[1].counts.data()});
      for (int head = 0; head < 2 * count; ++head) {
        const int size = sets.sizes[static_cast<size_t>(head)];
        for (int i = begin; i < std::min(size, params.end); ++i) {
          const size_t at = static_cast<size_t>(head * setting.wave + i - begin);
          const auto where = place(fast, waves[0], waves[0].rows[at]);
          ASSERT_EQ(where, place(slow, waves[1], waves[1].rows[at]));
          from_copies += where.first % 1000 >= 500 ? 1 : 0;
          ASSERT_EQ(std::memcmp(waves[0].rows[at], waves[1].rows[at],
                                static_cast<size_t>(fast.layout().row.bytes())),
                    0);
          const int position = sets.positions[static_cast<size_t>(head * kSet + i)];
          RowSequence& sequence = fast.sequence(head / 2 / together);
          const std::byte* truth =
              sequence.row_blocks[static_cast<size_t>(position / kPageTokens)] +
              fast.layout().row_offset(1, head % 2, position % kPageTokens);
          ASSERT_EQ(
              std::memcmp(waves[0].rows[at], truth, static_cast<size_t>(fast.layout().row.bytes())),
              0)
              << "step_number " << step_number << " head " << head << " position " << position;
        }
      }
      for (int s = 0; s < 2; ++s) {
        EXPECT_EQ(fast.sequence(s).hot_table, slow.sequence(s).hot_table);
        EXPECT_EQ(fast.sequence(s).hot, slow.sequence(s).hot);
      }
    }
    if (token + together < tokens) continue;
    fast.commit(advances);
    slow.commit(advances);
  }
  EXPECT_EQ(from_copies > 0, setting.device_copies);
}

}  // namespace fasa
