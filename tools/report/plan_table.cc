#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "runtime/base/units.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "tools/flags/help_text.h"
#include "tools/report/plan_report.h"
#include "tools/report/text_table.h"

namespace fasa {
namespace {

std::string count_of(int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  return count < 1e9 ? fmt::format("{:.1f} M", count / 1e6) : fmt::format("{:.1f} B", count / 1e9);
}

std::string weights_of(const PlanOptions& request) {
  if (!request.weights) return fmt::format("in {} bits", request.weight_bits);
  const WeightOptions& weights = request.config.weights;
  if (weights.rounding == WeightRounding::kAsIs) return "as stored in the model";
  return fmt::format("in int{}, groups of {}", weights.rounding == WeightRounding::kInt8 ? 8 : 4,
                     weights.group);
}

std::string experts_table(const PlanOptions& request, const Plan& plan) {
  const PlannedWeights& weights = *request.weights;
  std::string text =
      fmt::format("  experts     {}, of which a token reads {}; all weights together take\n",
                  format_bytes(weights.experts), format_bytes(weights.chosen));
  text += fmt::format("              {:<24} {:>12} {:>12} {:>20}\n", "", "device", "host",
                      "to read per token");
  for (const ExpertOption& option : plan.experts) {
    text += fmt::format("            {} {:<24} {:>12} {:>12} {:>20}\n",
                        option.on_host == (weights.host > 0) ? '*' : ' ',
                        option.on_host ? "--experts host" : "--experts device",
                        format_bytes(option.device_bytes), format_bytes(option.host_bytes),
                        format_seconds(option.seconds));
  }
  return text;
}

// What a prompt of all tokens takes.
std::string prompt_lines(const PlanOptions& request, const Plan& plan) {
  if (plan.options.empty() || plan.shown().prompt.seconds <= 0) return "";
  const PlanOption& option = plan.shown();
  const PromptPlan& prompt = option.prompt;
  const bool assumed = request.config.device.gpu.empty();
  std::string text = fmt::format(
      "  prompt      first token after {}, read in chunks of {}{}: matrix products {} at {:g} "
      "TFLOP/s{}, attention's at {:.3g}",
      format_seconds(prompt.seconds), option.prompt.chunk,
      option.prompt.piece > 0 ? ", layer by layer" : "", format_seconds(prompt.products),
      request.machine.rates.operations / 1e12, assumed ? " (assumed)" : " (data sheet)",
      1e-12 / request.machine.rates.prompt_attended(1));
  if (prompt.rows_to_host == 0 && prompt.experts == 0) return text + "\n";
  const std::string experts =
      prompt.experts > 0 ? fmt::format(", {} of experts", format_bytes(prompt.experts)) : "";
  return text +
         fmt::format("; over the link {} of rows to the host and {} back to the device{}, {}\n",
                     format_bytes(prompt.rows_to_host), format_bytes(prompt.rows_back), experts,
                     format_seconds(prompt.link));
}

std::string head(const PlanOptions& request, const Plan& plan) {
  const PlanMachine& machine = request.machine;
  std::string text = fmt::format("{} ({} parameters, {} positions), {} tokens, on {}\n",
                                 request.model.name, count_of(request.model.parameters()),
                                 request.model.max_positions, request.tokens, machine.name);
  // Without a GPU or a given value, the bandwidths of a common card are assumed.
  const bool assumed = !machine.rates.unified && request.config.device.gpu.empty();
  const char* const mark = assumed ? " (assumed)" : "";
  text += fmt::format("  memory      {}, {}{}",
                      machine.device_memory ? format_bytes(*machine.device_memory) : "no limit",
                      format_rate(machine.rates.memory_bandwidth),
                      request.given_machine.memory_bandwidth ? "" : mark);
  if (machine.reserved_bytes > 0) {
    text += fmt::format("; {} of it for the driver", format_bytes(machine.reserved_bytes));
  }
  if (machine.rates.unified) {
    text += "; one tier, no transfers\n";
  } else {
    const bool link_given = request.given_machine.link_bandwidth || request.config.link.bandwidth;
    text += fmt::format("\n  link        {}{}, {} a transfer; {} a kernel launch\n",
                        format_rate(machine.rates.link_bandwidth), link_given ? "" : mark,
                        format_seconds(machine.rates.link_latency),
                        format_seconds(machine.rates.kernels.launch));
  }
  text += fmt::format("  weights     {} {}; activations {}\n", format_bytes(plan.weight_bytes),
                      weights_of(request), format_bytes(plan.activation_bytes));
  if (const LinearShape& linear = request.model.geometry.linear;
      linear.layers > 0 && !plan.options.empty()) {
    const KvMemory& kv = plan.options.front().kv;
    text += fmt::format(
        "  state       {} of {} layers with linear attention; up to {} of snapshots on the host\n",
        format_bytes(kv.device_states), linear.layers, format_bytes(kv.host_states));
  }
  if (!plan.experts.empty()) text += experts_table(request, plan);
  return text + prompt_lines(request, plan);
}

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return fmt::format("{:.{}f}", ms, ms < 1e3 ? 3 : ms < 1e5 ? 1 : 0);
}

std::string attended_words(const PlanOption& option) {
  if (option.chunks == 0) return "all tokens";
  const AttendedTokens& tokens = option.attended;
  std::string text = fmt::to_string(tokens.rows);
  const std::string codes =
      option.value_dtype ? std::string(slice_dtype_name(option.slice_dtype)) : "";
  if (tokens.all_others) return text + " + all in " + codes;
  if (tokens.low_bit_tokens == 0) return text;
  return text + fmt::format(" + {} in {}", tokens.low_bit_tokens, codes);
}

std::string loss_words(const PlanOption& option) {
  if (option.chunks == 0) return "0";
  if (!option.loss) return "-";
  return fmt::format("{}{:.4f}", option.loss->extrapolated ? "~" : "", option.loss->kl);
}

std::vector<std::string> option_cells(const PlanOption& option, bool recommended) {
  std::string longest =
      option.longest_context ? fmt::to_string(*option.longest_context) : "no limit";
  if (option.longest_context == 0) longest = "none";
  return {(recommended ? "* " : "  ") + option.name,
          attended_words(option),
          loss_words(option),
          format_bytes(option.device_bytes) + (option.fits ? "" : " !"),
          format_bytes(option.host_bytes),
          longest,
          milliseconds(option.seconds()),
          fmt::format("{:.1f}", 1 / option.seconds())};
}

bool shown(const Plan& plan, size_t index, bool all) {
  return all || plan.options[index].usual || plan.recommended == index;
}

std::string options_table(const Plan& plan, bool all) {
  TextTable table({"\n  name", "tokens\nattended to", "KL,\nnats", "device\nmemory", "host\nmemory",
                   "longest\ncontext", "ms a\ntoken", "tokens\na second"});
  for (size_t i = 0; i < plan.options.size(); ++i) {
    if (!shown(plan, i, all)) continue;
    table.add(option_cells(plan.options[i], plan.recommended == i));
  }
  return table.text();
}

struct Column {
  std::string name;
  const CostTerms* terms;
};

std::vector<Column> term_columns(const Plan& plan) {
  std::vector<Column> columns;
  for (const PlanOption& option : plan.options) {
    if (!option.configured) continue;
    columns.push_back({option.config.preset, &option.step.whole});
    if (option.prefetched) {
      columns.push_back({option.config.preset + " + prefetch", &option.prefetched->whole});
    }
  }
  return columns;
}

std::string terms_table(const Plan& plan) {
  struct Row {
    const char* name;
    double (*value)(const CostTerms&);
  };
  static constexpr Row kRows[] = {
      {"append", [](const CostTerms& t) { return t.append; }},
      {"scoring", [](const CostTerms& t) { return t.scoring; }},
      {"resolve", [](const CostTerms& t) { return t.resolve; }},
      {"attention", [](const CostTerms& t) { return t.attention; }},
      {"prediction", [](const CostTerms& t) { return t.prediction; }},
      {"weights", [](const CostTerms& t) { return t.weights; }},
      {"kernel launches", [](const CostTerms& t) { return t.launches; }},
      {"waits for rows", [](const CostTerms& t) { return t.wait; }},
      {"tables, logits", [](const CostTerms& t) { return t.setup; }},
      {"sum", [](const CostTerms& t) { return t.total(); }},
      {"(row transfer)", [](const CostTerms& t) { return t.transfer; }}};
  const std::vector<Column> columns = term_columns(plan);
  std::vector<std::string> titles{"ms a token"};
  for (const Column& column : columns) titles.push_back(column.name);
  TextTable table(titles);
  for (const Row& row : kRows) {
    std::vector<std::string> cells{std::string("  ") + row.name};
    for (const Column& column : columns) cells.push_back(milliseconds(row.value(*column.terms)));
    table.add(cells);
  }
  std::vector<std::string> hidden{"  (hidden)"};
  for (const Column& column : columns) {
    const bool any = column.terms->transfer > 0;
    hidden.push_back(any ? fmt::format("{:.0f} %", 100 * column.terms->hidden()) : "-");
  }
  table.add(hidden);
  return table.text();
}

// What to type for the rows of the table.
std::string settings_words(const Plan& plan, bool all) {
  std::string text;
  for (size_t i = 0; i < plan.options.size(); ++i) {
    const PlanOption& option = plan.options[i];
    if (!shown(plan, i, all)) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", option.name, option.set);
  }
  const size_t hidden =
      static_cast<size_t>(std::count_if(plan.options.begin(), plan.options.end(),
                                        [](const PlanOption& option) { return !option.usual; }));
  if (!all && hidden > 0) text += fmt::format("; --all shows {} others", hidden);
  const bool fit = std::all_of(plan.options.begin(), plan.options.end(),
                               [](const PlanOption& option) { return option.fits; });
  return paragraph(text + "." + (fit ? "" : " \"!\": does not fit."));
}

std::string loss_source(const Plan& plan) {
  const auto has = [&](auto fits) {
    return std::any_of(plan.options.begin(), plan.options.end(),
                       [&](const PlanOption& option) { return option.loss && fits(*option.loss); });
  };
  if (!has([](const PredictedLoss&) { return true; })) return "";
  return paragraph(
      std::string("KL: of the next token from full attention, fitted to a small model at 8,192 to "
                  "32,768 tokens (docs/results/eval.md)") +
      (has([](const PredictedLoss& loss) { return loss.extrapolated; })
           ? "; \"~\": a prediction beyond what was measured."
           : "."));
}

std::string notes(const Plan& plan) {
  std::string text;
  for (const PlanOption& option : plan.options) {
    if (!option.configured || option.config.preset != "fasa-m") continue;
    text +=
        paragraph(fmt::format("Assumed for {}: warm hot rows ({}) hold {:.1f} % of a set; prefetch "
                              "brings {:.0f} % of the "
                              "rest in time, where it pays.",
                              option.name, std::max(option.hot_rows, option.extra_hot_rows),
                              100 * option.hit_rate, 100 * option.coverage));
    if (option.extra_hot_rows > 0) {
      text += paragraph(fmt::format(
          "{} of these {} hot rows are guaranteed; the others take up to {} of the free memory "
          "until it is needed elsewhere.",
          option.hot_rows, option.extra_hot_rows, format_bytes(option.extra_bytes)));
    }
  }
  return text + paragraph(
                    "Times are those of the emulated device: bytes over bandwidth, and what calls "
                    "of kernels cost besides. fasa profile measures them.");
}

// Host memory that rows take, as they are and in int8, against the host's.
std::string host_words(const PlanOptions& request, const Plan& plan) {
  if (plan.options.empty()) return "";
  const auto most = std::max_element(
      plan.options.begin(), plan.options.end(),
      [](const PlanOption& a, const PlanOption& b) { return a.host_bytes < b.host_bytes; });
  const PlanOption& option = plan.recommended ? plan.shown() : *most;
  const uint64_t needed = option.host_bytes;
  if (needed == 0) return "";
  const std::optional<uint64_t>& given = request.machine.host_memory;
  const uint64_t there = given.value_or(request.machine.this_host_memory);
  const bool coded = option.int8_host_bytes < needed;
  std::string text = fmt::format("Host memory: {} needed", format_bytes(needed));
  if (coded)
    text += fmt::format(" ({} with row_dtype = \"int8\")", format_bytes(option.int8_host_bytes));
  text += fmt::format(", {} {}", given ? "given" : "this machine has", format_bytes(there));
  if (needed <= there) return paragraph(text + ".");
  text += ": too little";
  if (coded && option.int8_host_bytes <= there) text += " but for int8 rows";
  return paragraph(text + (given ? "." : "; --host-memory SIZE plans for another machine."));
}

// The command that serves what was planned, in lines that can be pasted.
std::string serve_lines(const PlanOptions& request, const std::string& file) {
  return fmt::format("  fasa serve --model {} \\\n      --config {} --max-context {}\n",
                     request.model_path.empty() ? "MODEL" : request.model_path, file,
                     request.tokens);
}

std::string recommendation(const PlanOptions& request, const Plan& plan,
                           const PlanTableOptions& table) {
  if (!plan.recommended) {
    return paragraph("No preset fits at this length. " + what_would_fit(request, plan));
  }
  if (!table.file.empty()) {
    return fmt::format("Recommended (*), written to {}; it is served by\n\n{}", table.file,
                       serve_lines(request, table.file));
  }
  return fmt::format(
      "Recommended (*), as a file (-o plan.toml writes it):\n\n{}\nIt is served by\n\n{}",
      recommended_toml(request, plan), serve_lines(request, "plan.toml"));
}

}  // namespace

std::string to_table(const PlanOptions& request, const Plan& plan, const PlanTableOptions& table) {
  return folded(head(request, plan)) + '\n' + options_table(plan, table.all) + '\n' +
         settings_words(plan, table.all) + loss_source(plan) + '\n' + terms_table(plan) + '\n' +
         notes(plan) + host_words(request, plan) + '\n' + recommendation(request, plan, table);
}

std::string catalog_table() {
  TextTable cards({"GPU", "memory", "bandwidth", "bf16", "PCIe", "link"});
  for (const Gpu& gpu : gpus()) {
    cards.add({gpu.name, format_bytes(gpu.memory_bytes), format_rate(gpu.memory_bandwidth),
               fmt::format("{:g} TF/s", gpu.tensor_flops / 1e12),
               fmt::format("{} x{}", gpu.pcie_generation, gpu.pcie_lanes),
               format_rate(gpu.link_bandwidth())});
  }
  TextTable models({"geometry", "parameters", "layers", "query x KV", "head_dim", "positions"});
  for (const ModelShape& model : model_shapes()) {
    const Geometry& g = model.geometry;
    models.add({model.name, fmt::format("{:.2f} B", static_cast<double>(model.parameters()) / 1e9),
                fmt::to_string(g.layers), fmt::format("{} x {}", g.query_heads, g.kv_heads),
                fmt::to_string(g.key_dim), fmt::to_string(model.max_positions)});
  }
  return cards.text() + '\n' + models.text();
}

}  // namespace fasa
