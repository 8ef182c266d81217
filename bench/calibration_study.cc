// Which calibration finds the frequency chunks that long-range recall needs? Calibration data x
// objective -> planted facts recalled through a selection by 8 FCs; and the far mass that each
// slice format keeps of the oracle's. Prints Markdown tables.
//   calibration_study [--texts N] [--window K] [--far-mass-only]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>

#include "bench/question_text.h"
#include "offload/open_device.h"
#include "runtime/calibrate_query.h"
#include "runtime/calibrate_slices.h"
#include "runtime/input_file.h"
#include "runtime/llm/calibration.h"
#include "runtime/llm/probes.h"

namespace fasa::bench {
namespace {

const std::string kModels = std::string(FASA_SOURCE_DIR) + "/models/";
constexpr size_t kShort = 900, kLong = 7500;
constexpr int kFactsPerText = 4;
constexpr int kQueries = 96;
constexpr int kChunks = 8;

struct Study {
  std::unique_ptr<Device> device;
  Model model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string evaluation, calibration;  // texts
  std::optional<int> window;
};

std::string read_text(const std::string& name) {
  const auto text = read_file(kModels + "texts/" + name);
  if (!text) throw InputError(fmt::format("{}texts/{} cannot be read", kModels, name));
  return *text;
}

Study open_study() {
  DeviceOptions options;
  options.name = "cpu";
  auto device = open_device(options);
  Model model = Model::load(kModels + "needle-3m", *device, DType::kF32);
  return {std::move(device),
          std::move(model),
          Tokenizer::load(kModels + "needle-3m"),
          read_text("revelation.txt").substr(20000),
          read_text("ruth.txt") + read_text("state-of-the-union-1996.txt"),
          std::nullopt};
}

std::vector<int32_t> sample(int64_t first, int64_t end, int count, uint64_t seed) {
  std::vector<int32_t> all(static_cast<size_t>(end - first)), chosen;
  std::iota(all.begin(), all.end(), static_cast<int32_t>(first));
  std::mt19937_64 random(seed);
  std::sample(all.begin(), all.end(), std::back_inserter(chosen), count, random);
  return chosen;
}

struct DataKind {
  std::string_view name;
  double probes, questions;  // shares of the queries
};
constexpr std::array<DataKind, 6> kKinds = {{{"plain text", 0, 0},
                                             {"text + 25 % probes", 0.25, 0},
                                             {"probes", 1, 0},
                                             {"text + 5 % questions", 0, 0.05},
                                             {"half questions", 0, 0.5},
                                             {"questions", 0, 1}}};

CalibrationData make_data(const Study& study, const DataKind& kind) {
  constexpr uint64_t kSeed = 77;
  constexpr int kQueriesPerQuestion = 5;
  CalibrationData data;
  const int probes = static_cast<int>(kind.probes * kQueries);
  const int asked = static_cast<int>(kind.questions * kQueries + 0.5);
  int64_t text_end = kShort;
  if (asked > 0) {
    const int questions = (asked + kQueriesPerQuestion - 1) / kQueriesPerQuestion;
    const NeedleText needle = plant_facts(study.calibration, 0, kShort, questions, kSeed);
    QuestionText text = with_questions(*study.tokenizer, needle, static_cast<size_t>(questions));
    data.ids = std::move(text.ids);
    text_end = text.text_end;
    data.positions.assign(text.positions.begin(), text.positions.begin() + asked);
  } else {
    const auto text = study.tokenizer->encode(study.calibration.substr(0, 2 * kShort));
    ProbedText probed = plant_probes(text, kShort + 32 * (probes + 3) / 4,
                                     {.queries = probes, .length = 16, .seed = kSeed});
    data.ids = std::move(probed.ids);
    text_end = probed.text_end;
    data.positions = std::move(probed.positions);
  }
  const auto plain =
      sample(text_end / 4, text_end, kQueries - static_cast<int>(data.positions.size()), kSeed);
  data.positions.insert(data.positions.begin(), plain.begin(), plain.end());
  data.probes = probes > 0;
  return data;
}

// Facts recalled: question and answer run as decode steps, so that every query that looks back
// goes through the selection.
class Recall {
 public:
  Recall(Study& study, int texts, size_t bytes) : study_(study) {
    for (int i = 0; i < texts; ++i) {
      texts_.push_back(plant_facts(study.evaluation, static_cast<size_t>(i) * (bytes / 2), bytes,
                                   kFactsPerText, 1000 + static_cast<uint64_t>(i)));
    }
  }

  double right(const Config& config, const std::vector<int16_t>& slice_dims) {
    int right = 0, asked = 0;
    for (const NeedleText& text : texts_) {
      Runtime runtime(*study_.device, config, study_.model.config().geometry(), DType::kF32,
                      slice_dims);
      const SequenceId whole = runtime.create();
      const auto ids = study_.tokenizer->encode(text.text);
      const std::array step{StepSequence{whole, static_cast<int>(ids.size()), StepMode::kPrefill}};
      study_.model.step(runtime, ids, step, {.no_logits = true});
      for (const auto& question : text.questions) {
        const SequenceId fork = runtime.fork(whole, static_cast<int64_t>(ids.size()));
        right += answer(runtime, fork, question.question) == question.answer ? 1 : 0;
        ++asked;
        runtime.free(fork);
      }
    }
    return static_cast<double>(right) / asked;
  }

  int questions() const { return static_cast<int>(texts_.size()) * kFactsPerText; }

 private:
  std::string answer(Runtime& runtime, SequenceId sequence, const std::string& question) {
    std::vector<int32_t> ids = study_.tokenizer->encode(question), digits;
    const std::array step{StepSequence{sequence, 1, StepMode::kDecode}};
    for (size_t i = 0; digits.size() < 5; ++i) {
      const int32_t id = i < ids.size() ? ids[i] : digits.back();
      const auto logits = study_.model.step(runtime, {&id, 1}, step);
      if (i + 1 < ids.size()) continue;
      digits.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return study_.tokenizer->decode(digits);
  }

  Study& study_;
  std::vector<NeedleText> texts_;
};

Config slice_config(SliceDType dtype, int chunks, int64_t tokens) {
  Config config;
  config.preset = "fasa-c";
  config.apply_preset();
  config.selection.slice_dtype = dtype;
  config.selection.tip_chunks = chunks;
  config.selection.fac_tokens = {{.tokens = tokens, .share = 0}};
  return config;
}

CalibrationOptions options_of(const Study& study, Objective objective) {
  CalibrationOptions options;
  options.objective = objective;
  options.window = study.window;
  options.tip_chunks = kChunks;
  options.prefill_chunk = 4096;
  return options;
}

void print_recall(Study& study, int texts) {
  Recall recall(study, texts, kShort);
  const Geometry geometry = study.model.config().geometry();
  Config full = slice_config(SliceDType::kBF16, 32, 128);
  full.preset = "full";
  full.apply_preset();
  fmt::print("Facts recalled, {} questions in {} texts of {} bytes, k = 32 / 128\n\n",
             recall.questions(), texts, kShort);
  fmt::print("full: {:.2f}; ", recall.right(full, all_slice_dims(geometry)));
  for (const auto dtype : {SliceDType::kF32, SliceDType::kInt2}) {
    fmt::print("all FCs, {}: {:.2f} / {:.2f}; ", slice_dtype_name(dtype),
               recall.right(slice_config(dtype, 32, 32), all_slice_dims(geometry)),
               recall.right(slice_config(dtype, 32, 128), all_slice_dims(geometry)));
  }
  fmt::print("\n\n| 8 FCs, bf16 |");
  for (const DataKind& kind : kKinds) fmt::print(" {} |", kind.name);
  fmt::print("\n|---|---|---|---|---|---|---|\n");
  for (const Objective objective :
       {Objective::kCa, Objective::kFarCa, Objective::kMass, Objective::kFarMass}) {
    fmt::print("| `{}` |", objective_name(objective));
    for (const DataKind& kind : kKinds) {
      const CalibrationData data = make_data(study, kind);
      const FcMap map = rank_capture(capture_attention(study.model, data, 4096), study.model, data,
                                     options_of(study, objective));
      const auto dims = map.slice_dims(kChunks);
      fmt::print(" {:.2f} / {:.2f} |",
                 recall.right(slice_config(SliceDType::kBF16, kChunks, 32), dims),
                 recall.right(slice_config(SliceDType::kBF16, kChunks, 128), dims));
      std::fflush(stdout);
    }
    fmt::print("\n");
  }
}

struct Format {
  SliceDType dtype;
  int chunks;
};
constexpr std::array<Format, 5> kFormats = {{{SliceDType::kBF16, 8},
                                             {SliceDType::kInt2, 16},
                                             {SliceDType::kInt2, 24},
                                             {SliceDType::kInt2, 32},
                                             {SliceDType::kInt4, 32}}};

// [formats][question or text][k 32 or 128]: captured, and the oracle's.
struct FarMass {
  double captured[kFormats.size()][2][2] = {};
  double oracle[2][2] = {};
};

void add_head(const HeadSamples& samples, const FcMap& map, int layer, int head, int64_t text_end,
              FarMass& sums) {
  QueryScratch scratch;
  const std::array<int64_t, 2> budgets = {32, 128};
  for (size_t f = 0; f < kFormats.size(); ++f) {
    const auto all = map.slice_dims(kFormats[f].chunks);
    const auto width = static_cast<size_t>(2 * kFormats[f].chunks);
    const auto index = static_cast<size_t>(layer * map.fingerprint.kv_heads + head);
    const HeadSamples slice =
        coded_samples(samples, kFormats[f].dtype, std::span(all).subspan(index * width, width));
    for (size_t q = 0; q < samples.query_count(); ++q) {
      const size_t kind = samples.positions[q] >= text_end ? 0 : 1;
      for (size_t k = 0; k < 2; ++k) {
        const SelectionRule rule{budgets[k], 4, 16};
        const CalibrationQuery truth(samples, q, rule, scratch);
        const CalibrationQuery guess(slice, q, rule, scratch);
        ScoreRows rows;
        for (int c = 0; c < static_cast<int>(samples.chunks.size()); ++c) guess.add_chunk(c, rows);
        sums.captured[f][kind][k] += truth.captured_far(rows, -1, scratch);
        if (f == 0) sums.oracle[kind][k] += truth.oracle_far();
      }
    }
  }
}

FarMass far_mass(Study& study, size_t bytes, const FcMap& map, int texts) {
  FarMass sums;
  for (int i = 0; i < texts; ++i) {
    const NeedleText needle = plant_facts(study.evaluation, static_cast<size_t>(i) * 3000, bytes, 8,
                                          500 + static_cast<uint64_t>(i));
    const QuestionText text = with_questions(*study.tokenizer, needle, 8);
    CalibrationData data;
    data.ids = text.ids;
    data.positions = sample(text.text_end / 4, text.text_end, 40, 9);
    data.positions.insert(data.positions.end(), text.positions.begin(), text.positions.end());
    AttentionCapture capture = capture_attention(study.model, data, 1024);
    for (int layer = 0; layer < map.fingerprint.layers; ++layer) {
      for (int head = 0; head < map.fingerprint.kv_heads; ++head) {
        add_head(capture.take(layer, head), map, layer, head, text.text_end, sums);
      }
    }
  }
  return sums;
}

void print_far_mass(Study& study, int texts) {
  fmt::print(
      "\nFar mass kept of the oracle's, all layers; question queries 32 / 128, text queries "
      "32 / 128; maps by `far_mass` on text with probes, {} texts\n\n",
      texts);
  std::vector<FarMass> sums;
  for (const size_t bytes : {kShort, kLong}) {
    CalibrationOptions options = options_of(study, Objective::kFarMass);
    options.tip_chunks = 0;
    options.tokens = bytes == kShort ? 950 : 4096;
    const auto ids = study.tokenizer->encode(study.calibration);
    sums.push_back(far_mass(study, bytes, calibrate(study.model, ids, options), texts));
  }
  fmt::print("| slice | {} bytes | {} bytes |\n|---|---|---|\n", kShort, kLong);
  for (size_t f = 0; f < kFormats.size(); ++f) {
    fmt::print("| {} FCs, {} |", kFormats[f].chunks, slice_dtype_name(kFormats[f].dtype));
    for (const FarMass& sum : sums) {
      const auto kept = [&](size_t kind, size_t k) {
        return sum.captured[f][kind][k] / sum.oracle[kind][k];
      };
      fmt::print(" {:.2f} / {:.2f} / {:.2f} / {:.2f} |", kept(0, 0), kept(0, 1), kept(1, 0),
                 kept(1, 1));
    }
    fmt::print("\n");
  }
}

int run(int argc, char** argv) {
  CLI::App app("Calibration data, objectives and slice formats on the bundled model");
  int texts = 8;
  std::optional<int> window;
  bool far_mass_only = false;
  app.add_option("--texts", texts, "Texts of 4 facts each")->check(CLI::Range(1, 100));
  app.add_option("--window", window, "K of calibration; default: by the length");
  app.add_flag("--far-mass-only", far_mass_only, "Only the table of slice formats");
  CLI11_PARSE(app, argc, argv);
  Study study = open_study();
  study.window = window;
  if (!far_mass_only) print_recall(study, texts);
  print_far_mass(study, std::max(1, texts / 4));
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  try {
    return fasa::bench::run(argc, argv);
  } catch (const fasa::Error& error) {
    fmt::print(stderr, "calibration_study: {}\n", error.what());
    return static_cast<int>(error.kind());
  }
}
