// fasa template: the prompt that a model's chat template makes of messages.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/io/input_file.h"
#include "runtime/io/json_fields.h"
#include "runtime/llm/generation/model_templates.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/terminal/clock.h"

namespace fasa {
namespace {

class TemplateCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("template", "Print the prompt that a chat template renders");
    add_option(*command_, "--model", dir_, "DIR",
               "Folder with chat_template.jinja or tokenizer_config.json, or a GGUF file")
        ->required();
    add_option(*command_, "--context", context_, "FILE",
               "JSON object that the template reads: messages, tools, add_generation_prompt...")
        ->required();
    add_option(*command_, "--template", name_, "NAME",
               "Name of the template, if the model has several");
    add_option(*command_, "--now", now_, "DATE",
               "Time for templates, such as 2026-11-22 or 2026-11-22T18:30:05; default: "
               "SOURCE_DATE_EPOCH, else now");
    command_->add_flag("--json", json_,
                       "Print one JSON object: the text, and its parts with their roles");
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    const auto templates = require_templates(dir_);
    jinja::Context context = jinja::parse_context(read_file(context_), context_);
    context.now = shown_time(now_);
    const text::ChatPrompt prompt = templates.render(std::move(context), name_);
    if (json_) {
      fmt::print("{}\n", to_json(prompt).dump(2));
    } else {
      std::fwrite(prompt.text().data(), 1, prompt.text().size(), stdout);
    }
    return 0;
  }

 private:
  static nlohmann::ordered_json to_json(const text::ChatPrompt& prompt) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::array();
    for (const text::Segment& segment : prompt.segments()) {
      const bool user = segment.trust == text::Trust::kUser;
      parts.push_back({{"from", user ? "user" : "template"}, {"text", segment.text}});
    }
    return {{"text", prompt.text()}, {"parts", std::move(parts)}};
  }

  CLI::App* command_ = nullptr;
  std::string dir_;
  std::string context_;
  std::string name_;
  std::string now_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_template_command() { return std::make_unique<TemplateCommand>(); }

}  // namespace fasa
