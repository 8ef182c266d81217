// Finds the repository's files: models, texts, goldens, corpora.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

// The path of a file or folder of the repository. FASA_TEST_DATA names another root, for test
// programs that run elsewhere.
std::string source_path(std::string_view path);

}  // namespace fasa
