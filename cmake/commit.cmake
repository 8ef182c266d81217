# cmake -DSOURCE=... -DHEADER=... -P commit.cmake: writes the sources' commit to a header, if it has
# changed. Sources without git have no commit.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=8 HEAD OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT [[
#pragma once

namespace fasa {

constexpr const char* kCommit = "@commit@";

}  // namespace fasa
]] @ONLY)
