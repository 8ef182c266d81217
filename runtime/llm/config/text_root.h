// Where a text model's tensors lie in its files.
#pragma once

#include <map>
#include <string>

#include "runtime/llm/family/model_family.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// The head's prefix beside a vision part.
inline constexpr const char* kHeadRoot = "language_model.";

// The prefix of a text model's tensors, "" = none.
std::string text_root(const WeightSource& files, const ModelFamily& family);
// The other parts of the files, which are not read: name -> number of tensors.
std::map<std::string, int> unread_parts(const WeightSource& files, const ModelFamily& family);

}  // namespace fasa
