#include "runtime/base/units.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace fasa {
namespace {

TEST(Bytes, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("6GiB"), 6ull << 30);
  EXPECT_EQ(parse_bytes("512 MiB"), 512ull << 20);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536u);
  EXPECT_EQ(parse_bytes("100kB"), 100000u);
  EXPECT_EQ(parse_bytes("2MB"), 2000000u);
  EXPECT_EQ(parse_bytes("3GB"), 3000000000u);
  EXPECT_EQ(parse_bytes("1TiB"), 1ull << 40);
  EXPECT_EQ(parse_bytes("64B"), 64u);
  EXPECT_EQ(parse_bytes("1048576"), 1u << 20);
  EXPECT_EQ(parse_bytes("0"), 0u);
}

TEST(Bytes, SmallNumbersLackTheirUnit) {
  for (const char* text : {"8", "4096", "0.5", "1048575"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
    EXPECT_EQ(missing_unit_hint(text), "; did you mean " + std::string(text) + "GiB?");
  }
  for (const char* text : {"8B", "8GiB", "0", "1048576", "much", "-1"}) {
    EXPECT_EQ(missing_unit_hint(text), "") << text;
  }
}

TEST(Count, IsANumberOrThousandsOfTokens) {
  EXPECT_EQ(parse_count("4096"), 4096);
  EXPECT_EQ(parse_count("128k"), 131072);
  EXPECT_EQ(parse_count("8K"), 8192);
  EXPECT_EQ(parse_count("1M"), 1048576);
  EXPECT_EQ(parse_count("-5"), -5);
  for (const char* text :
       {"", "k", "1.5k", "128kB", "12x", "-1k", "9223372036854775807k", "0.25"}) {
    EXPECT_FALSE(parse_count(text).has_value()) << text;
  }
}

TEST(Bytes, NothingIsPredicted) {
  for (const char* text : {"", "GiB", "6 Gigs", "6gib", "-1", "-1GiB", "6GiB ", " 6GiB", "1e30GiB",
                           "inf", "nan", "6GiBs", "0x10", "1,5GiB"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << '"' << text << '"';
  }
}

TEST(Bytes, AreShownInTheLargestUnitBelow) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(3ull << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16777216.00 TiB");
}

TEST(Rate, IsAPositiveSizePerSecond) {
  EXPECT_EQ(parse_rate("16GB/s"), 16e9);
  EXPECT_EQ(parse_rate("900 MB/s"), 900e6);
  EXPECT_EQ(parse_rate("1GiB/s"), 1073741824.0);
  for (const char* text :
       {"", "/s", "16", "16GB", "16/s", "0GB/s", "-1GB/s", "GB/s", "16GB/ s", "1e308MB/s"}) {
    EXPECT_FALSE(parse_rate(text).has_value()) << '"' << text << '"';
  }
  EXPECT_EQ(format_rate(25e9), "25GB/s");
}

TEST(Seconds, NeedAUnit) {
  EXPECT_DOUBLE_EQ(parse_seconds("10us").value(), 10e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("10µs").value(), 10e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("1.5ms").value(), 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_seconds("300ns").value(), 300e-9);
  EXPECT_EQ(parse_seconds("2s"), 2.0);
  EXPECT_EQ(parse_seconds("0s"), 0.0);
  for (const char* text : {"", "10", "us", "-1us", "10 m", "10sec", "nan"}) {
    EXPECT_FALSE(parse_seconds(text).has_value()) << '"' << text << '"';
  }
  EXPECT_EQ(format_seconds(10e-6), "10us");
  EXPECT_EQ(format_seconds(0.25), "250ms");
  EXPECT_EQ(format_seconds(12), "12s");
}

TEST(Dashed, TurnsAKeyIntoAFlag) {
  EXPECT_EQ(dashed("fac_tokens"), "fac-tokens");
  EXPECT_EQ(dashed("map"), "map");
  EXPECT_EQ(dashed(""), "");
}

TEST(BudgetError, NamesTheLimitAndTheParts) {
  const BudgetError error("device_memory", 3 << 20, 1 << 20, 2 << 20, "hot rows");
  EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  EXPECT_EQ(error.limit(), "device_memory");
  EXPECT_EQ(error.asked_bytes(), 3u << 20);
  EXPECT_EQ(error.capacity_bytes(), 2u << 20);
  const std::string message = error.what();
  for (const char* part :
       {"device_memory", "hot rows", "3.00 MiB", "1.00 MiB of 2.00 MiB", "--device-memory"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

}  // namespace
}  // namespace fasa
