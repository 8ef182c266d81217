// The kernel body that reads rows back gives the processor's values.
#include "kernels/cuda/read_rows_inl.h"

#include <gtest/gtest.h>

#include "tests/kernels/read_rows_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

class ReadRowsBody : public ::testing::TestWithParam<SimtRun> {
 protected:
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

TEST_P(ReadRowsBody, SameAsTheProcessors) {
  read_rows_case::expect_same_as_the_processors(
      [&](const ReadRowsParams& params) { cuda::start(params, SimtLauncher(interpreter_)); });
}

INSTANTIATE_TEST_SUITE_P(Orders, ReadRowsBody, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
