// fasa info: the machine, its devices, and the memory of a model's KV cache.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/api/kv_cost.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/config/config.h"
#include "runtime/io/machine.h"
#include "runtime/llm/compute/host_sink.h"
#include "runtime/llm/compute/list_gpus.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_weights.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/config/text_root.h"
#include "runtime/llm/generation/model_templates.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"
#include "runtime/text/answer/format_choice.h"
#include "tools/commands/command.h"
#include "tools/commands/version.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/help_text.h"
#include "tools/report/text_table.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// Empty if there are no files beside config.json.
std::map<std::string, int> unread_parts_of(const std::string& dir, const ModelConfig& model) {
  try {
    return unread_parts(*open_weights(dir), *model.family);
  } catch (const InputError&) {
    return {};
  }
}

// Empty for a folder.
std::vector<std::string> unknown_keys_of(const std::string& dir) {
  if (!is_gguf(dir)) return {};
  return gguf_unknown_keys(GgufFiles(dir).header());
}

// Warns of the first tensor of the text model that cannot be read. None for a folder.
void warn_of_types(const std::string& dir) {
  if (!is_gguf(dir)) return;
  const GgufFiles files(dir);
  for (const auto& [name, tensor] : files.header().tensors()) {
    const bool of_text =
        name.starts_with("blk.") || name.starts_with("token_embd.") || name.starts_with("output");
    if (!of_text || tensor.block->is_read()) continue;
    try {
      files.header().require_read(tensor);
    } catch (const InputError& error) {
      log_warning(fmt::format("{}; the model cannot run", error.what()));
    }
    return;
  }
}

struct EndToken {
  int32_t id;
  std::string text;  // "" without a tokenizer
};

// Tokens that end an answer, ascending.
std::vector<EndToken> ends_of(const std::string& dir, const ModelConfig& model) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(dir);
  } catch (const InputError& error) {
    log_warning(fmt::format("{}; the model cannot take texts", error.what()));
  }
  std::set<int32_t> ids(model.eos_ids.begin(), model.eos_ids.end());
  if (tokenizer) ids.insert(tokenizer->ends().begin(), tokenizer->ends().end());
  ids.erase(-1);
  std::vector<EndToken> ends;
  for (const int32_t id : ids) {
    ends.push_back({id, tokenizer ? std::string(tokenizer->piece(id)) : ""});
  }
  return ends;
}

// Null if there is no chat template.
Json answer_format_of(const std::string& dir) {
  const auto templates = open_templates(dir);
  return templates ? Json(text::format_json(text::choose_answer_format(*templates))) : Json();
}

Json model_json(const std::string& dir) {
  const ModelConfig model = ModelConfig::load(dir);
  const Geometry geometry = model.geometry();
  const RowDType rows = model.row_dtype();
  Json costs = Json::array();
  for (const KvCost& cost : kv_costs(geometry, rows)) {
    costs.push_back({{"preset", cost.preset},
                     {"slice", cost.slice},
                     {"tip_chunks", cost.tip_chunks},
                     {"slice_dtype", std::string(slice_dtype_name(cost.slice_dtype))},
                     {"device_bytes_per_token", cost.device_bytes},
                     {"host_bytes_per_token", cost.host_bytes}});
  }
  Json ends = Json::array();
  for (const EndToken& end : ends_of(dir, model)) {
    ends.push_back({{"id", end.id}, {"text", end.text}});
  }
  return {{"type", model.model_type},
          {"parameters", model.parameters()},
          {"layers", geometry.layers},
          {"shared_layers", geometry.shared_layers},
          {"query_heads", geometry.query_heads},
          {"kv_heads", geometry.kv_heads},
          {"head_dim", geometry.key_dim},
          {"rotary_dims", geometry.rotary_dims},
          {"chunks", geometry.chunks()},
          {"windows", geometry.windows},
          {"window_heads", geometry.has_window_heads()
                               ? Json{{"kv_heads", geometry.window_heads.kv_heads},
                                      {"head_dim", geometry.window_heads.key_dim}}
                               : Json()},
          {"vocab_size", model.vocab_size},
          {"max_positions", model.max_positions},
          {"row_dtype", std::string(row_dtype_name(rows))},
          {"full_kv_bytes_per_token", full_kv_bytes_per_token(geometry)},
          {"ends", ends},
          {"unread_parts", unread_parts_of(dir, model)},
          {"unknown_keys", unknown_keys_of(dir)},
          {"answer_format", answer_format_of(dir)},
          {"presets", costs}};
}

std::string model_text(const std::string& dir) {
  const ModelConfig model = ModelConfig::load(dir);
  const Geometry geometry = model.geometry();
  const RowDType rows = model.row_dtype();
  const auto full = static_cast<double>(full_kv_bytes_per_token(geometry));
  std::string text = fmt::format(
      "\n{}: {}, {:.1f} M parameters, {} positions, vocabulary {}\n", dir, model.model_type,
      static_cast<double>(model.parameters()) / 1e6, model.max_positions, model.vocab_size);
  text +=
      fmt::format("{} layers, {} query heads on {} KV heads, head_dim {} ({} frequency chunks)\n",
                  geometry.layers, geometry.query_heads, geometry.kv_heads, geometry.key_dim,
                  geometry.chunks());
  if (geometry.has_window_heads()) {
    const HeadShape& heads = geometry.window_heads;
    text += fmt::format("Layers with a window: {} KV heads, head_dim {}\n", heads.kv_heads,
                        heads.key_dim);
  }
  if (geometry.shared_layers > 0) {
    text += fmt::format("The last {} layers share the keys and values of earlier ones\n",
                        geometry.shared_layers);
  }
  std::string ends;
  for (const EndToken& end : ends_of(dir, model)) {
    ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", end.id, end.text);
  }
  text += fmt::format("An answer ends at: {}\n", ends.empty() ? "no token" : ends);
  for (const auto& [part, tensors] : unread_parts_of(dir, model)) {
    text += fmt::format("Not read: {} ({} tensors)\n", part, tensors);
  }
  for (const std::string& key : unknown_keys_of(dir)) {
    text +=
        fmt::format("Warning: unknown key {}; if it changes the model, results are wrong\n", key);
  }
  if (const Json format = answer_format_of(dir); !format.is_null()) {
    text += fmt::format("Answers: format {} ({}), arguments as {}, reasoning {}\n",
                        format["name"].get<std::string>(), format["source"].get<std::string>(),
                        format["history"]["arguments"].get<std::string>(),
                        format["history"]["reasoning"].get<std::string>());
  }
  text += fmt::format("\nKV cache, bytes per token (full KV in 2 bytes: {:.0f}; rows in {})\n",
                      full, row_dtype_name(rows));
  TextTable table({"preset", "slice", "slices hold", "device", "host", "full / device"}, 3);
  for (const KvCost& cost : kv_costs(geometry, rows)) {
    table.add({std::string(cost.preset), std::string(cost.slice),
               fmt::format("{} FCs {}", cost.tip_chunks, slice_dtype_name(cost.slice_dtype)),
               fmt::format("{:.1f}", cost.device_bytes), fmt::format("{:.1f}", cost.host_bytes),
               fmt::format("{:.2f}", full / cost.device_bytes)});
  }
  return text + table.text() +
         "The device also holds the newest page, sinks and recent tokens, hot rows and scratch.\n";
}

GpuList listed_gpus() { return list_gpus(ConfigFlags().load().device_options()); }

// devices: names as of --device; gpus; auto: what --device auto uses, and why not a GPU.
void add_gpus(Json& json) {
  const GpuList list = listed_gpus();
  json["gpus"] = Json::array();
  for (const GpuEntry& entry : list.gpus) {
    if (entry.obstacle.empty()) json["devices"].push_back(entry.name);
    Json gpu = {{"name", entry.name},
                {"gpu", entry.gpu.name},
                {"compute_capability", fmt::format("{}.{}", entry.gpu.major, entry.gpu.minor)},
                {"memory_bytes", entry.gpu.memory_bytes},
                {"obstacle", entry.obstacle}};
    if (entry.rates) {
      gpu["link_bandwidth"] = entry.rates->link_bandwidth;
      gpu["memory_bandwidth"] = entry.rates->memory_bandwidth;
      gpu["kernels"] = entry.rates->kernels.text();
    }
    json["gpus"].push_back(gpu);
  }
  json["auto"] = {{"device", list.obstacle.empty() ? "cuda:0" : "cpu"}, {"reason", list.obstacle}};
}

std::string gpus_text() {
  const GpuList list = listed_gpus();
  std::string text;
  for (const GpuEntry& entry : list.gpus) {
    text += fmt::format("{}: {}, compute capability {}.{}, {:.1f} GiB\n", entry.name,
                        entry.gpu.name, entry.gpu.major, entry.gpu.minor,
                        static_cast<double>(entry.gpu.memory_bytes) / (1 << 30));
    if (entry.rates) {
      text += fmt::format("  link {:.1f} GB/s, memory {:.0f} GB/s\n  {}\n",
                          entry.rates->link_bandwidth / 1e9, entry.rates->memory_bandwidth / 1e9,
                          entry.rates->kernels.text());
    } else if (!entry.obstacle.empty()) {
      text += fmt::format("  cannot be used: {}\n", entry.obstacle);
    }
  }
  return text + (list.obstacle.empty()
                     ? "device 'auto' uses cuda:0\n"
                     : fmt::format("device 'auto' uses the cpu: {}\n", list.obstacle));
}

class InfoCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("info", "Show the machine, the devices and a model's KV cache");
    add_model_option(*command_, model_dir_);
    command_->add_flag("--json", json_, "Print one JSON object");
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    if (!model_dir_.empty()) warn_of_types(model_dir_);
    if (json_) {
      Json json = machine_to_json();
      add_gpus(json);
      json["version"] = FASA_VERSION;
      json["onednn"] = host_projections_note();
      if (!model_dir_.empty()) json["model"] = model_json(model_dir_);
      fmt::print("{}\n", json.dump(2));
      return 0;
    }
    std::string text = fmt::format("{}\n{}{}oneDNN: {}\n", version_line(), describe_machine(),
                                   gpus_text(), host_projections_note());
    if (!model_dir_.empty()) text += model_text(model_dir_);
    fmt::print("{}", folded(text));
    return 0;
  }

 private:
  CLI::App* command_ = nullptr;
  std::string model_dir_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_info_command() { return std::make_unique<InfoCommand>(); }

}  // namespace fasa
