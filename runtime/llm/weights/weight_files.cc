#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/weights/safetensors.h"

namespace fasa {
namespace {

namespace fs = std::filesystem;

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Weights in other layouts, with what to do.
struct OtherFile {
  std::string_view end;
  std::string_view advice;
};
constexpr OtherFile kOtherFiles[] = {
    {"consolidated.safetensors", "is in the makers' own layout; fetch the model's *.safetensors"},
    {"pytorch_model.bin", "is in PyTorch's format; convert it to safetensors"},
    {".bin.index.json", "is in PyTorch's format; convert it to safetensors"},
    {".safetensors", "is a part without model.safetensors.index.json; fetch the index too"},
    {".pth", "is in PyTorch's format; convert it to safetensors"}};

std::string advice_for(const std::string& dir) {
  std::error_code error;
  for (const OtherFile& other : kOtherFiles) {
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!name.ends_with(other.end)) continue;
      if (!fs::exists(entry->path(), error)) {
        return fmt::format("; {} is a link to a missing file", name);
      }
      return fmt::format("; {} {}", name, other.advice);
    }
  }
  return "";
}

using WeightMap = std::map<std::string, std::string>;

WeightMap read_index(const std::string& index) {
  const nlohmann::json document = parse_json(read_file(index), index);
  const JsonFields fields(document, index);
  if (!fields.has("weight_map") || !fields.at("weight_map").is_object()) {
    fields.fail("weight_map", "an object of tensor names and file names");
  }
  WeightMap shards;
  for (const auto& [tensor, file] : fields.at("weight_map").items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    // Shards must be in the model's folder: an index may not name files elsewhere.
    if (shard.empty() || shard.find('/') != std::string::npos) {
      throw InputError(fmt::format(
          "{}: weight_map.{} is not the name of a file in the model's folder", index, tensor));
    }
    shards.emplace(tensor, shard);
  }
  return shards;
}

}  // namespace

WeightFiles::WeightFiles(const std::string& dir) {
  const std::string single = dir + "/model.safetensors";
  const std::string index = single + ".index.json";
  const bool whole = fs::exists(single);
  if (fs::exists(index)) {
    source_ = index;
    const WeightMap shards = read_index(index);
    const auto missing = std::find_if(shards.begin(), shards.end(), [&](const auto& entry) {
      return !fs::exists(dir + "/" + entry.second);
    });
    if (missing == shards.end()) {
      open_shards(dir, shards);
      return;
    }
    if (!whole) {
      throw InputError(
          fmt::format("{}: the file is missing; {} names it", dir + "/" + missing->second, index));
    }
    log_warning(fmt::format("{} names {}, which is missing; {} is read instead", index,
                            missing->second, single));
  } else if (!whole) {
    throw InputError(fmt::format(
        "{}: the folder has neither model.safetensors nor model.safetensors.index.json{}", dir,
        advice_for(dir)));
  }
  source_ = single;
  files_.push_back(std::make_unique<SafetensorsFile>(single));
  for (const auto& [name, entry] : files_[0]->entries()) owner_[name] = files_[0].get();
}

// As in transformers, all tensors of the files that the index names count, wherever it places
// them. A tensor in two files is read from the one that the index says.
void WeightFiles::open_shards(const std::string& dir,
                              const std::map<std::string, std::string>& shards) {
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, shard] : shards) {
    if (opened.contains(shard)) continue;
    files_.push_back(std::make_unique<SafetensorsFile>(dir + "/" + shard));
    opened[shard] = files_.back().get();
    for (const auto& [name, entry] : files_.back()->entries()) {
      owner_.emplace(name, files_.back().get());
    }
  }
  for (const auto& [tensor, shard] : shards) {
    if (opened[shard]->entries().contains(tensor)) owner_[tensor] = opened[shard];
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
