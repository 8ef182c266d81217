#include "runtime/llm/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  // Opening a named pipe would wait for a writer.
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) {
    throw InputError(fmt::format("{}: can't be opened: {}", path, std::strerror(errno)));
  }
  try {
    struct stat status = {};
    if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw InputError(fmt::format("{}: is no regular file", path));
    }
    bytes_ = static_cast<uint64_t>(status.st_size);
    void* mapping = bytes_ == 0 ? nullptr : mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file_, 0);
    if (mapping == MAP_FAILED) {
      throw InputError(fmt::format("{}: can't be mapped: {}", path, std::strerror(errno)));
    }
    mapping_ = static_cast<const std::byte*>(mapping);
    entries_ = parse_safetensors_header({mapping_, bytes_}, bytes_, path, &data_begin_);
  } catch (...) {
    close_all();
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close_all(); }

void SafetensorsFile::close_all() {
  if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), bytes_);
  close(file_);
}

void SafetensorsFile::require_whole() const {
  struct stat status = {};
  if (fstat(file_, &status) == 0 && static_cast<uint64_t>(status.st_size) >= bytes_) return;
  throw InputError(
      fmt::format("{}: the file had {} bytes when it was opened, and has {} now; leave "
                  "a model's files alone while it is loaded",
                  path_, bytes_, status.st_size));
}

WeightView SafetensorsFile::view(const std::string& name) const {
  require_whole();
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
  view.data = mapping_ + data_begin_ + entry.begin;
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
    throw InputError(
        fmt::format("{}: has neither model.safetensors nor "
                    "model.safetensors.index.json",
                    dir));
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
    // A shard lies in the model's folder: an index may not name files elsewhere.
    if (shard.empty() || shard.find('/') != std::string::npos) {
      throw InputError(
          fmt::format("{}: weight_map.{} is no file name of the model's folder", index, tensor));
    }
    if (!opened.contains(shard)) {
      files_.push_back(std::make_unique<SafetensorsFile>(dir + "/" + shard));
      opened[shard] = files_.back().get();
    }
    const SafetensorsFile* owner = opened[shard];
    if (!owner->entries().contains(tensor)) {
      throw InputError(fmt::format("{}: {} has no tensor {}, though the index says so", index,
                                   owner->path(), tensor));
    }
    owner_[tensor] = owner;
  }
}

bool WeightFiles::has(const std::string& name) const { return owner_.contains(name); }

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : owner_) all.push_back(name);
  return all;
}

WeightView WeightFiles::require(const std::string& name, std::span<const int64_t> shape) const {
  const auto found = owner_.find(name);
  if (found == owner_.end()) {
    throw InputError(fmt::format("{}: tensor {} is missing; config.json asks for it with shape {}",
                                 source_, name, shape_text(shape)));
  }
  const WeightView view = found->second->view(name);
  if (!std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end())) {
    throw InputError(fmt::format("{}: tensor {} has shape {}, but config.json says {}",
                                 found->second->path(), name, shape_text(view.shape),
                                 shape_text(shape)));
  }
  return view;
}

}  // namespace fasa
