#include "runtime/eval/result_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "runtime/base/error.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using Begin = ResultLog::Begin;

class ResultLogTest : public ::testing::Test {
 protected:
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  // Opens the log and returns the error message; "" on success.
  template <typename E>
  std::string error_of(const Json& setup) const {
    try {
      ResultLog log(path_, setup, Begin::kResume);
    } catch (const E& error) {
      return error.what();
    }
    return "";
  }

  llm_test::TempDir dir_;
  std::string path_ = dir_.path() + "/r.jsonl";
  Json setup_ = {{"task", "ppl 64"}};
};

TEST_F(ResultLogTest, KeepsRecordsOverProcesses) {
  {
    ResultLog log(path_, setup_, Begin::kResume);
    EXPECT_EQ(log.find("0"), nullptr);
    log.add({{"id", "0"}, {"nll", 1.5}});
    log.add({{"id", "1"}, {"nll", 2.5}});
  }
  ResultLog log(path_, setup_, Begin::kResume);
  ASSERT_NE(log.find("1"), nullptr);
  EXPECT_EQ(log.find("1")->at("nll"), 2.5);
  EXPECT_EQ(log.find("2"), nullptr);
}

TEST_F(ResultLogTest, LosesNoMoreThanTheLineThatWasCutOff) {
  {
    ResultLog log(path_, setup_, Begin::kResume);
    log.add({{"id", "0"}});
    log.add({{"id", "1"}});
  }
  const std::string whole = bytes();
  const size_t second = whole.rfind('\n', whole.size() - 2) + 1;
  // Wherever the last line was cut, the first example is still there and the log can be continued.
  for (size_t cut = second; cut < whole.size(); ++cut) {
    write(whole.substr(0, cut));
    ResultLog log(path_, setup_, Begin::kResume);
    EXPECT_NE(log.find("0"), nullptr) << cut;
    EXPECT_EQ(log.find("1"), nullptr) << cut;
    log.add({{"id", "1"}});
    EXPECT_EQ(bytes(), whole) << cut;
  }
}

TEST_F(ResultLogTest, ACutOffHeaderIsWrittenAgain) {
  write("{\"fasa_eval\":1,\"set");
  ResultLog log(path_, setup_, Begin::kResume);
  log.add({{"id", "0"}});
  EXPECT_EQ(read_results(path_).setup, setup_);
}

TEST_F(ResultLogTest, AfreshForgets) {
  ResultLog(path_, setup_, Begin::kResume).add({{"id", "0"}});
  ResultLog log(path_, {{"task", "other"}}, Begin::kAfresh);
  EXPECT_EQ(log.find("0"), nullptr);
  EXPECT_EQ(read_results(path_).records.size(), 0);
}

TEST_F(ResultLogTest, BytesThatAreNoUtf8AreKeptReadable) {
  ResultLog(path_, setup_, Begin::kResume).add({{"id", "0"}, {"answer", "\xff\xfe"}});
  EXPECT_EQ(read_results(path_).records.size(), 1);
}

TEST_F(ResultLogTest, OneWriterAtATime) {
  const ResultLog log(path_, setup_, Begin::kResume);
  EXPECT_THAT(error_of<UsageError>(setup_), HasSubstr("another evaluation"));
}

TEST_F(ResultLogTest, OtherFilesAreNotTouched) {
  write("a letter\n");
  EXPECT_THAT(error_of<InputError>(setup_), HasSubstr(":1:"));
  EXPECT_EQ(bytes(), "a letter\n");
  write("{\"x\":1}\n");
  EXPECT_THAT(error_of<InputError>(setup_), HasSubstr("not a results file"));
}

TEST_F(ResultLogTest, AnotherSetupAndSpoiltLinesAreNamed) {
  ResultLog(path_, setup_, Begin::kResume).add({{"id", "0"}});
  EXPECT_THAT(error_of<InputError>({{"task", "other"}}), HasSubstr("a different setup"));
  write(bytes() + "{spoilt}\n" + "{\"id\":\"2\"}\n");
  EXPECT_THAT(error_of<InputError>(setup_), HasSubstr("r.jsonl:3:"));
}

TEST_F(ResultLogTest, AFolderThatIsNotThere) {
  path_ = dir_.path() + "/none/r.jsonl";
  EXPECT_THAT(error_of<UsageError>(setup_), HasSubstr(path_));
}

}  // namespace
}  // namespace fasa
