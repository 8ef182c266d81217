/// \file
/// Configs, devices, streams, FC maps.
#ifndef FASA_DEVICE_HPP
#define FASA_DEVICE_HPP

#include <fasa/errors.hpp>
#include <fasa/tensors.hpp>

#include <initializer_list>
#include <string>
#include <vector>

namespace fasa {
inline namespace v0 {

/// A key of docs/configuration.md and its value as in flags: {"fac_tokens", "256"}.
struct Option {
  std::string name;
  std::string value;
};

/// Later sources win, in this order.
struct ConfigSources {
  std::string file;  ///< path of a TOML file; "": none
  std::string toml;  ///< TOML text; "": none
  bool environment = false;
  std::vector<Option> options = {};
};

/// All options, checked.
class Config {
 public:
  Config(std::initializer_list<Option> options = {})
      : Config(from({.file = "", .toml = "", .options = options})) {}
  static Config from(const ConfigSources& sources) {
    std::vector<const char*> names;
    std::vector<const char*> texts;
    for (const Option& option : sources.options) {
      names.push_back(option.name.c_str());
      texts.push_back(option.value.c_str());
    }
    fasa_config_sources c = FASA_CONFIG_SOURCES_INIT;
    c.file = sources.file.empty() ? nullptr : sources.file.c_str();
    c.toml = sources.toml.empty() ? nullptr : sources.toml.c_str();
    c.use_environment = sources.environment ? 1 : 0;
    c.options = names.data();
    c.values = texts.data();
    c.option_count = names.size();
    fasa_config* made = nullptr;
    check(fasa_config_create(&c, &made));
    return Config(made);
  }
  /// The whole config, defaults included, as JSON.
  std::string json() const {
    const char* text = nullptr;
    check(fasa_config_json(handle_.get(), &text));
    return text;
  }
  const fasa_config* c() const { return handle_.get(); }

 private:
  explicit Config(fasa_config* made) : handle_(made) {}
  detail::Owner<fasa_config, fasa_config_destroy> handle_;
};

/// cpu, emulated or a GPU, as the config names it. Runtimes on one device share its memory limits.
class Device {
 public:
  explicit Device(const Config& config = {}) {
    fasa_device* made = nullptr;
    check(fasa_device_open(config.c(), &made));
    handle_.reset(made);
  }
  std::string name() const {
    const char* text = nullptr;
    check(fasa_device_name(handle_.get(), &text));
    return text;
  }
  MemoryUse memory(MemorySpace space) const {
    MemoryUse use = FASA_MEMORY_USE_INIT;
    check(fasa_device_memory(handle_.get(), static_cast<fasa_memory_space>(space), &use));
    return use;
  }
  fasa_device* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_device, fasa_device_destroy> handle_;
};

/// An ordered queue of work. Calls without a stream (null) use the runtime's own.
class Stream {
 public:
  explicit Stream(Device& device) {
    fasa_stream* made = nullptr;
    check(fasa_stream_create(device.c(), &made));
    handle_.reset(made);
  }
  /// Wraps a stream of the caller: `native` is a cudaStream_t on a GPU and null on the cpu device.
  static Stream adopt(Device& device, void* native) {
    fasa_stream* made = nullptr;
    check(fasa_stream_from_native(device.c(), native, &made));
    return Stream(made);
  }
  void synchronize() { check(fasa_stream_synchronize(handle_.get())); }
  fasa_stream* c() const { return handle_.get(); }

 private:
  explicit Stream(fasa_stream* made) : handle_(made) {}
  detail::Owner<fasa_stream, fasa_stream_destroy> handle_;
};

/// The frequency chunks (FCs) that the slices hold, per layer and KV head. Made by `fasa
/// calibrate`.
class FcMap {
 public:
  explicit FcMap(const std::string& path) {
    fasa_fc_map* made = nullptr;
    check(fasa_fc_map_load(path.c_str(), &made));
    handle_.reset(made);
  }
  const fasa_fc_map* c() const { return handle_.get(); }

 private:
  detail::Owner<fasa_fc_map, fasa_fc_map_destroy> handle_;
};

}  // namespace v0
}  // namespace fasa

#endif  // FASA_DEVICE_HPP
