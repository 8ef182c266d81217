// Options from the environment and from flags: lines NAME=VALUE. Lines that begin with "--" are
// flags, the others environment variables.
#include "runtime/config/config_load.h"
#include "runtime/config/config_options.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(settings) {
  fasa::ConfigSources sources;
  std::string_view text = text_of(data, size);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(line.substr(0, equals));
    const std::string value(line.substr(equals + 1));
    if (!name.starts_with("--")) {
      sources.environment["FASA_" + name] = value;
      continue;
    }
    for (const fasa::ConfigOption& option : fasa::config_options()) {
      if (option.flag_name() == name) sources.flags.push_back({&option, value});
    }
  }
  fasa::config_to_json(fasa::load_config(sources));
}
