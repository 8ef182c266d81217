#include "tools/flags/option_list.h"

#include <fmt/format.h>

#include <map>

namespace fasa {
namespace {

// CLI11 adds the ranges that it checks behind a colon; errors name them, help texts do not.
std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  return type.substr(0, type.find_first_of(":["));
}

ListedOption listed(const CLI::Option& option) {
  ListedOption one;
  one.positional = option.get_positional();
  if (one.positional) {
    one.names.push_back(option.get_name(true, false));
  } else {
    for (const std::string& name : option.get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) one.names.push_back("--" + name);
  }
  one.type = type_of(option);
  one.text = option.get_description();
  const std::string initial = option.get_default_str();
  if (!one.type.empty() && !initial.empty()) one.text += fmt::format(" (default: {})", initial);
  if (option.get_required()) one.text += " (required)";
  return one;
}

const std::map<std::string, std::vector<std::string>>& examples() {
  static const std::map<std::string, std::vector<std::string>> lines{
      {"demo", {"fasa demo", "fasa demo --quick", "fasa demo --model MODEL.gguf"}},
      {"generate",
       {"fasa generate --model DIR --prompt \"In the beginning\" --stats",
        "fasa generate --model DIR --prompt-file book.txt --max-tokens 200 --json"}},
      {"chat",
       {"fasa chat --model DIR", "fasa chat --model MODEL.gguf --device emulated --preset fasa-m"}},
      {"serve",
       {"fasa serve --model DIR --port 8080",
        "fasa serve --model DIR --config tuned.toml --sessions-dir /var/lib/fasa/sessions"}},
      {"plan",
       {"fasa plan --geometry Llama-3.1-8B --gpu \"RTX 4060 Ti 16GB\" --weight-bits 4",
        "fasa plan --model DIR --tokens 131072 --device-memory 6GiB"}},
      {"tune",
       {"fasa tune --geometry Llama-3.1-8B --tokens 131072 -o tuned.toml",
        "fasa tune --model DIR --prompt-file book.txt --device emulated"}},
      {"profile",
       {"fasa profile --geometry Llama-3.1-8B --html profile.html",
        "fasa profile --geometry Llama-3.1-8B --config tuned.toml --json"}},
      {"eval",
       {"fasa eval ppl --model DIR --context 8192",
        "fasa eval needle --model DIR --selections full,fasa --budgets 64 128"}},
      {"trace", {"fasa trace --model DIR --prompt-file book.txt -o book.fasatrace"}},
      {"calibrate", {"fasa calibrate --model DIR -o fc_map.json"}},
      {"config", {"fasa config --preset fasa-m > fasa.toml"}},
      {"info", {"fasa info", "fasa info --model DIR"}},
  };
  return lines;
}

}  // namespace

bool OptionGroup::of_config() const { return name.starts_with("Config"); }

std::vector<OptionGroup> option_groups(const CLI::App& command) {
  std::vector<OptionGroup> groups;
  const auto group_named = [&](const std::string& name) -> OptionGroup& {
    for (OptionGroup& group : groups) {
      if (group.name == name) return group;
    }
    return groups.emplace_back(OptionGroup{name, {}});
  };
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_positional() != positional || option->get_group().empty()) continue;
      const std::string name = positional ? "Arguments" : option->get_group();
      group_named(name).options.push_back(listed(*option));
    }
  }
  return groups;
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
}

std::vector<std::string> examples_of(const std::string& command) {
  const auto found = examples().find(command);
  return found == examples().end() ? std::vector<std::string>{} : found->second;
}

}  // namespace fasa
