// Generates docs/configuration.md from the table of options.
#include <fmt/format.h>

#include "runtime/config/config_options.h"

namespace fasa {
namespace {

constexpr std::string_view kHead = R"(# Configuration

Made from the table of options (`fasa config --reference`); a test compares this page with it.

Every option is a key of a TOML file (`--config FILE`), an environment variable and a flag. Later
sources override earlier ones: default, preset, file, environment, flag. A preset may come from any
source; explicit values from any source override it.

The flag of a key `a_b` is `--a-b`, its variable `FASA_A_B`. Keys that are unclear without their
table have flags of their own: `[device] name` is `--device`, `[selection] kind` is `--selection`,
`[weights] format` is `--weights`.

Sizes are written `"6GiB"`, rates `"16GB/s"`, times `"10us"`. In a flag or a variable, lists are
`0,1` or `[0, 1]`. Unknown keys, wrong types and impossible values are errors. `FASA_TARGET` is not
an option: it forces an instruction set for the CPU kernels (`fasa info` lists them).

Every command reads these variables, and `FASA_TRACE_FILE` makes some commands write a file. A
program that runs commands for other users should pass on only the variables that it intends to.

```toml
preset = "fasa-m"

[memory]
device_memory = "6GiB"

[selection]
fac_tokens = 256
```
)";

std::string default_of(const ConfigOption& option) {
  return option.default_text.empty() ? fmt::format("`{}`", option.default_value())
                                     : std::string(option.default_text);
}

// A bar ends a table cell, even inside code, so bars are escaped.
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
