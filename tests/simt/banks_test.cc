// The cost of a warp's accesses to shared memory on hardware, in wavefronts, for the layouts of the
// page scorer (page_scorer_inl.h), of the sums of low-bit pages and of a prefill's tiles
// (prefill_stage_inl.h). There are 32 banks of 4 bytes; accesses of 8 bytes are served per half
// warp, of 16 bytes per quarter warp.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>
#include <vector>

#include "kernels/cuda/low_bit_codes_inl.h"
#include "kernels/cuda/prefill_stage_inl.h"
#include "kernels/cuda/select/page_scorer_inl.h"

namespace fasa {
namespace {

using cuda::kScoreStride;
using cuda::ScorerBanks;

// `word_of(lane)`: the first of the lane's `words` 4-byte words; negative: the lane is inactive.
int wavefronts(int words, const std::function<int(int)>& word_of) {
  const int together = 32 / words;
  int sum = 0;
  for (int first = 0; first < 32; first += together) {
    std::array<std::set<int>, 32> banks;
    size_t most = 0;
    for (int lane = first; lane < first + together; ++lane) {
      if (word_of(lane) < 0) continue;
      for (int word = word_of(lane); word < word_of(lane) + words; ++word) {
        auto& bank = banks[static_cast<size_t>(word % 32)];
        bank.insert(word);
        most = std::max(most, bank.size());
      }
    }
    sum += static_cast<int>(most);
  }
  return sum;
}

constexpr int least(int words) { return words; }  // for a whole warp

template <int kBits>
struct Case {
  static constexpr int kUnit = 32 / kBits;                // dimensions per word
  static constexpr int kPairs = kUnit / 2;                // weights per word, two each
  static constexpr int kWidth = kPairs < 4 ? kPairs : 4;  // words per access to the weights
  static constexpr int kVectors = kPairs / kWidth;
};

// Loads of queries: lanes are (head, word) of `dims` dimensions.
template <int kBits>
int reading_queries(int dims, bool exchanged) {
  using C = Case<kBits>;
  const int words = dims / C::kUnit;
  int sum = 0;
  for (int d = 0; d < C::kUnit; d += 4) {
    sum += wavefronts(4, [&](int lane) {
      const int at = lane / words * dims + lane % words * C::kUnit + d;
      return exchanged ? ScorerBanks::query(at) : at;
    });
  }
  return sum;
}

template <int kBits>
int storing_weights(bool exchanged) {
  using C = Case<kBits>;
  int sum = 0;
  for (int i = 0; i < C::kVectors; ++i) {
    sum += wavefronts(C::kWidth, [&](int lane) {
      const int vector = lane * C::kVectors + i;
      return C::kWidth * (exchanged ? ScorerBanks::weights<kBits>(vector) : vector);
    });
  }
  return sum;
}

// Loads of codes: lanes (head, c) of eight heads read the words 4 chunk + c.
template <int kBits>
int loading_weights(int dims, bool exchanged) {
  using C = Case<kBits>;
  const int words = dims / C::kUnit;
  int sum = 0;
  for (int chunk = 0; chunk < words; chunk += 4) {
    for (int i = 0; i < C::kVectors; ++i) {
      sum += wavefronts(C::kWidth, [&](int lane) {
        const int vector = (lane / 4 * words + chunk + lane % 4) * C::kVectors + i;
        return C::kWidth * (exchanged ? ScorerBanks::weights<kBits>(vector) : vector);
      });
    }
  }
  return sum;
}

int storing_scores(int stride) {
  return wavefronts(4, [&](int lane) { return lane % 4 * 2 * stride + lane / 4 * 4; });
}

template <int kBits>
void expect_no_conflicts() {
  using C = Case<kBits>;
  for (const int dims : {64, 128}) {
    SCOPED_TRACE(::testing::Message() << kBits << " bits, " << dims << " dimensions");
    const int words = dims / C::kUnit;
    EXPECT_EQ(loading_weights<kBits>(dims, true), words / 4 * C::kVectors * least(C::kWidth));
    EXPECT_EQ(storing_weights<kBits>(true), C::kVectors * least(C::kWidth));
    EXPECT_EQ(reading_queries<kBits>(dims, true), C::kUnit / 4 * least(4));
  }
}

TEST(Banks, LanesMeetInNone) {
  expect_no_conflicts<2>();
  expect_no_conflicts<4>();
  expect_no_conflicts<8>();
  EXPECT_EQ(storing_scores(kScoreStride), least(4));
}

// In the plain order lanes conflict.
TEST(Banks, LanesWouldMeet) {
  EXPECT_EQ(reading_queries<2>(128, false), 4 * 16);
  EXPECT_EQ(storing_weights<2>(false), 2 * 8);
  EXPECT_EQ(loading_weights<2>(128, false), 4 * 8);
  EXPECT_EQ(storing_scores(kPageTokens), 4 * 4);
}

// Loads of matrices and copies of keys: lanes (matrix, row), and eight lanes along each vector.
template <int kDim>
void expect_no_conflicts_of_tiles() {
  using Dim = cuda::PrefillTileDim<kDim>;
  for (int depth = 0; depth < Dim::kDepths; ++depth) {
    EXPECT_EQ(wavefronts(4,
                         [&](int lane) {
                           return 4 * Dim::word(lane / 16, lane % 8, 2 * depth, lane / 8 % 2);
                         }),
              least(4))
        << kDim;
    EXPECT_EQ(wavefronts(4,
                         [&](int lane) {
                           return 4 * Dim::word(lane / 8 % 2, lane % 8, 2 * depth, lane / 16);
                         }),
              least(4))
        << kDim;
  }
  for (int first = 0; first + 8 <= Dim::kWords; first += 8) {
    EXPECT_EQ(wavefronts(4, [&](int lane) { return 4 * Dim::word(0, lane / 8, first + lane % 8); }),
              least(4))
        << kDim;
  }
  std::set<int> seen;
  for (int slot = 0; slot < Dim::kKeys; ++slot) {
    for (int word = 0; word < Dim::kWords; ++word) {
      const int at = Dim::word(slot / 8, slot % 8, word);
      EXPECT_LT(at, Dim::kVectorWords);
      EXPECT_TRUE(seen.insert(at).second);
      if (word % 2 == 0) {
        EXPECT_EQ(Dim::word(slot / 8, slot % 8, word, 1), Dim::word(slot / 8, slot % 8, word + 1));
      }
    }
  }
}

TEST(Banks, LanesOfAPrefillMeetInNone) {
  expect_no_conflicts_of_tiles<64>();
  expect_no_conflicts_of_tiles<80>();
  expect_no_conflicts_of_tiles<96>();
  expect_no_conflicts_of_tiles<128>();
  expect_no_conflicts_of_tiles<256>();
}

// Sums are stored without conflicts; lanes that read 32 dimensions meet in pairs.
template <int kBits>
void expect_few_conflicts_of_sums() {
  using C = cuda::LowBitCodes<kBits>;
  EXPECT_EQ(wavefronts(4, [](int lane) { return cuda::LowBitSums::at(1, lane); }), least(4));
  EXPECT_LE(wavefronts(1,
                       [](int dim) {
                         const int row = C::row_of(dim % C::kUnit);
                         const int lane = dim / C::kUnit * 4;
                         return cuda::LowBitSums::at(row / 2, lane) + row % 2 * 2;
                       }),
            4);
}
TEST(Banks, SumsOfLowBitPages) {
  expect_few_conflicts_of_sums<2>();
  expect_few_conflicts_of_sums<4>();
  expect_few_conflicts_of_sums<8>();
}

// Every location is used once, within the allocated words.
TEST(Banks, PlacesAreExchanged) {
  const auto expect_permutation = [](int count, const std::function<int(int)>& place) {
    std::vector<int> seen(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      ASSERT_LT(place(i), count);
      ++seen[static_cast<size_t>(place(i))];
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
  };
  for (const int dims : {16, 48, 128, 576}) expect_permutation(dims, ScorerBanks::query);
  for (int words = 1; words < 40; ++words) {
    for (int heads = 1; heads <= 8; ++heads) {
      const cuda::ScorerLayout layout{heads, 16 * words, 1};
      const auto room = static_cast<int>(layout.weight_words());
      expect_permutation(room / 4, ScorerBanks::weights<2>);
      expect_permutation(room / 4, ScorerBanks::weights<4>);
      expect_permutation(room / 2, ScorerBanks::weights<8>);
    }
  }
}

}  // namespace
}  // namespace fasa
