#include "runtime/llm/config/text_root.h"

#include <fmt/format.h>

namespace fasa {

// Files of the bare model, without its head, have names without the root. Beside a vision part the
// text model has a root of its own.
std::string text_root(const WeightSource& files, const ModelFamily& family) {
  const TensorNames& names = family.names;
  for (const std::string_view root :
       {names.root, std::string_view(), std::string_view("model.language_model."),
        std::string_view("language_model.model.")}) {
    if (files.has(fmt::format("{}{}.weight", root, names.embeddings))) return std::string(root);
  }
  return std::string(names.root);
}

std::map<std::string, int> unread_parts(const WeightSource& files, const ModelFamily& family) {
  const std::string root = text_root(files, family);
  std::map<std::string, int> parts;
  for (const std::string& name : files.names()) {
    if (name.starts_with(root) || name.starts_with(family.names.head)) continue;
    if (name.starts_with(kHeadRoot + std::string(family.names.head))) continue;
    constexpr std::string_view kModel = "model.";
    const size_t from = name.starts_with(kModel) ? kModel.size() : 0;
    ++parts[name.substr(0, name.find('.', from))];
  }
  return parts;
}

}  // namespace fasa
