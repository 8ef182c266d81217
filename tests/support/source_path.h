// Where the repository's files are: models, texts, goldens, corpora.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

// The place of a file or folder of the repository. FASA_TEST_DATA names another root, for programs
// that were taken elsewhere.
std::string source_path(std::string_view path);

}  // namespace fasa
