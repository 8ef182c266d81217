// Post-processors of the supported families, which add tokens around a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa::text {

struct Surroundings {
  std::vector<int32_t> prefix, suffix;
};

// `part`: the "post_processor" of a tokenizer.json, or null: ByteLevel (which changes no id),
// TemplateProcessing (only its form for one text is used), or a sequence of them. Throws InputError
// for any other, and for a template that is not one text with tokens around it.
Surroundings read_post_processor(const nlohmann::json& part, const std::string& place);

}  // namespace fasa::text
