#include "runtime/llm/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  entries_ = parse_safetensors_header(file_.bytes(), file_.bytes().size(), path, &data_begin_);
}

RawTensor SafetensorsFile::raw(const std::string& name) const {
  file_.require_whole();
  const SafetensorsEntry& entry = entries_.at(name);
  file_.require_whole();
  return {entry.dtype, entry.shape, file_.bytes().data() + data_begin_ + entry.begin};
}

WeightView SafetensorsFile::view(const std::string& name) const {
  file_.require_whole();
  const SafetensorsEntry& entry = entries_.at(name);
  WeightView view;
  if (entry.dtype == "F32") {
    view.dtype = DType::kF32;
  } else if (entry.dtype == "F16") {
    view.dtype = DType::kF16;
  } else if (entry.dtype == "BF16") {
    view.dtype = DType::kBF16;
  } else {
    throw InputError(fmt::format("{}: tensor {} has dtype {}; allowed: F32, F16, BF16", path_, name,
                                 entry.dtype));
  }
  view.shape = entry.shape;
  view.data = file_.bytes().data() + data_begin_ + entry.begin;
  return view;
}

WeightFiles::WeightFiles(const std::string& dir) {
  const std::string single = dir + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (std::filesystem::exists(index)) {
    source_ = index;
    load_shards(dir, index);
  } else if (std::filesystem::exists(single)) {
    source_ = single;
    files_.push_back(std::make_unique<SafetensorsFile>(single));
    for (const auto& [name, entry] : files_[0]->entries()) owner_[name] = files_[0].get();
  } else {
    throw InputError(fmt::format(
        "{}: the folder has neither model.safetensors nor model.safetensors.index.json", dir));
  }
}

void WeightFiles::load_shards(const std::string& dir, const std::string& index) {
  const nlohmann::json document = parse_json(read_file(index), index);
  const JsonFields fields(document, index);
  if (!fields.has("weight_map") || !fields.at("weight_map").is_object()) {
    fields.fail("weight_map", "an object of tensor names and file names");
  }
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, file] : fields.at("weight_map").items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    // Shards must be in the model's folder: an index may not name files elsewhere.
    if (shard.empty() || shard.find('/') != std::string::npos) {
      throw InputError(fmt::format(
          "{}: weight_map.{} is not the name of a file in the model's folder", index, tensor));
    }
    if (!opened.contains(shard)) {
      files_.push_back(std::make_unique<SafetensorsFile>(dir + "/" + shard));
      opened[shard] = files_.back().get();
    }
    const SafetensorsFile* owner = opened[shard];
    if (!owner->entries().contains(tensor)) {
      throw InputError(
          fmt::format("{}: {} does not contain tensor {}, which the index places there", index,
                      owner->path(), tensor));
    }
    owner_[tensor] = owner;
  }
}

RawTensor WeightFiles::raw(const std::string& name) const { return owner_.at(name)->raw(name); }

bool WeightFiles::has(const std::string& name) const { return owner_.contains(name); }

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : owner_) all.push_back(name);
  return all;
}

WeightView WeightFiles::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = owner_.find(name);
  if (found == owner_.end()) {
    throw InputError(fmt::format("{}: tensor {} is missing; config.json expects it with shape {}",
                                 source_, name, shape_text(shape)));
  }
  const WeightView view = found->second->view(name);
  if (!std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end())) {
    throw InputError(fmt::format("{}: tensor {} has shape {}, but config.json expects {}",
                                 found->second->path(), name, shape_text(view.shape),
                                 shape_text(shape)));
  }
  return view;
}

}  // namespace fasa
