// What is put around the ids of a text: the post-processors that the supported families use.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa::text {

struct Surroundings {
  std::vector<int32_t> prefix, suffix;
};

// `part`: the "post_processor" of a tokenizer.json, null for none: ByteLevel (which changes no id),
// TemplateProcessing (of which the form for one text counts), a sequence of them. Throws InputError
// for any other, and for a template that is not one text with tokens around it.
Surroundings read_post_processor(const nlohmann::json& part, const std::string& place);

}  // namespace fasa::text
