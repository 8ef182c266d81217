// Options of commands that take a value, with the name of its type in help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/flags/prompt.h"

namespace fasa {

template <typename Value>
CLI::Option* add_option(CLI::App& command, const std::string& names, Value& value,
                        const std::string& type, const std::string& text) {
  return command.add_option(names, value, text)->type_name(type);
}

// Help shows the value before parsing as the default.
template <typename Value>
CLI::Option* add_shown_option(CLI::App& command, const std::string& names, Value& value,
                              const std::string& type, const std::string& text) {
  return add_option(command, names, value, type, text)->capture_default_str();
}

// Options that several commands have.
CLI::Option* add_model_option(CLI::App& command, std::string& path);
void add_dtype_option(CLI::App& command, std::string& name);
void add_prompt_options(CLI::App& command, PromptSource& prompt);
void add_pre_option(CLI::App& command, std::string& pre);  // of commands that tokenize

}  // namespace fasa
