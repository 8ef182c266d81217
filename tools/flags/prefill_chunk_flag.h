// The flag --prefill-chunk of commands that read prompts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/api/prefill_chunk.h"

namespace fasa {

// `chunk` becomes kAutomaticChunk for "auto", the default.
inline void add_prefill_chunk(CLI::App& command, int& chunk) {
  chunk = kAutomaticChunk;
  command
      .add_option("--prefill-chunk", chunk,
                  "Number of prompt tokens per step; auto = as many as memory allows, from 512 to "
                  "4096 (fasa serve: 1024, or 2048 where prompts are read by steps); 512 on the "
                  "processor")
      ->type_name("N")
      ->default_str("auto")
      ->transform(CLI::Validator(
          [](std::string& value) {
            if (value == "auto") {
              value = std::to_string(kAutomaticChunk);
            } else if (value.find_first_not_of("-0") == std::string::npos || value[0] == '-') {
              return "prefill_chunk = " + value + "; allowed: auto, or 1 or more";
            }
            return std::string();
          },
          ""));
}

}  // namespace fasa
