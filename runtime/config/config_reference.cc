// The reference page, from the table of options.
#include <fmt/format.h>

#include "runtime/config/config_options.h"

namespace fasa {
namespace {

constexpr std::string_view kHead = R"(# Configuration

Made from the table of options (`fasa config --reference`); a test compares this page with it.

Every option is a key of a TOML file (`--config FILE`), an environment variable and a flag. Later
sources win: default, preset, file, environment, flag. A preset from any source counts as a preset:
what is set explicitly anywhere wins over it.

The flag of a key `a_b` is `--a-b`, its variable `FASA_A_B`. Some keys say too little alone and have
names of their own: `[device] name` is `--device`, `[selection] kind` is `--selection`, `[weights]
format` is `--weights`.

Sizes are written `"6GiB"`, rates `"16GB/s"`, times `"10us"`. In a flag or a variable, lists are
`0,1` or `[0, 1]`. Unknown keys, wrong types and impossible values are errors. `FASA_TARGET` is no
option: it forces an instruction set of the CPU's kernels (`fasa info` lists them). Every command reads
these variables, and `FASA_TRACE_FILE` has some write a file: who starts commands for others passes on
only those variables that are meant.

```toml
preset = "fasa-m"

[memory]
device_memory = "6GiB"

[selection]
fac_tokens = 256
```
)";

std::string default_of(const ConfigOption& option) {
  if (!option.default_text.empty()) return std::string(option.default_text);
  const nlohmann::json value = option.get(Config{});
  return fmt::format("`{}`", value.dump());
}

// A cell ends at a bar, even in code.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string config_reference() {
  std::string page(kHead);
  std::string_view table = "?";
  for (const ConfigOption& option : config_options()) {
    if (option.table != table) {
      table = option.table;
      page += table.empty() ? "\n## Top level\n" : fmt::format("\n## [{}]\n", table);
    }
    page += fmt::format(
        "\n### {}\n\n{}\n\n| flag | variable | default | allowed |\n|---|---|---|---|\n"
        "| `{} {}` | `{}` | {} | {} |\n",
        option.key, option.help, option.flag_name(), cell(option.type), option.variable(),
        default_of(option), option.allowed);
  }
  return page;
}

}  // namespace fasa
