// Which calibration finds the frequency chunks that long-range recall needs? For calibration data x
// objective: planted facts recalled through a selection by 8 FCs. Prints Markdown tables.
//   calibration_study [--texts N] [--window K] [--bytes N]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "bench/study_main.h"
#include "bench/study_model.h"
#include "runtime/capture/calibration.h"
#include "runtime/capture/probes.h"

namespace fasa::bench {
namespace {

constexpr int kFactsPerText = 4;
constexpr int kQueries = 96;
constexpr int kChunks = 8;

struct Study : StudyModel {
  std::optional<int> window;
  size_t bytes;  // of a text, for calibration or for planted facts
};

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
  auto text_end = static_cast<int64_t>(study.bytes);
  if (asked > 0) {
    const int questions = (asked + kQueriesPerQuestion - 1) / kQueriesPerQuestion;
    const NeedleText needle = plant_facts(study.calibration, 0, study.bytes, questions, kSeed);
    QuestionText text = with_questions(*study.tokenizer, needle, static_cast<size_t>(questions));
    data.ids = std::move(text.ids);
    text_end = text.text_end;
    data.positions.assign(text.positions.begin(), text.positions.begin() + asked);
  } else {
    const auto text = study.tokenizer->encode(study.calibration.substr(0, 2 * study.bytes));
    ProbedText probed = plant_probes(text, text_end + 32 * (probes + 3) / 4,
                                     {.queries = probes, .length = 16, .seed = kSeed});
    data.ids = std::move(probed.ids);
    text_end = probed.text_end;
    data.positions = std::move(probed.positions);
  }
  const auto plain = sample_positions(text_end / 4, text_end,
                                      kQueries - static_cast<int>(data.positions.size()), kSeed);
  data.positions.insert(data.positions.begin(), plain.begin(), plain.end());
  data.probes = probes > 0;
  return data;
}

// Facts recalled: question and answer run as decode steps, so that every query about a fact goes
// through the selection.
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
  config.selection.low_bit_tokens = TokenCount{};
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
  Recall recall(study, texts, study.bytes);
  const Geometry geometry = study.model.config().geometry();
  Config full = slice_config(SliceDType::kBF16, 32, 128);
  full.preset = "full";
  full.apply_preset();
  fmt::print("Facts recalled, {} questions in {} texts of {} bytes, k = 32 / 128\n\n",
             recall.questions(), texts, study.bytes);
  fmt::print("full: {:.2f}; ", recall.right(full, all_slice_dims(geometry)));
  for (const auto dtype : {SliceDType::kF32, SliceDType::kInt2}) {
    fmt::print("all FCs, {}: {:.2f} / {:.2f}; ", slice_dtype_name(dtype),
               recall.right(slice_config(dtype, 32, 32), all_slice_dims(geometry)),
               recall.right(slice_config(dtype, 32, 128), all_slice_dims(geometry)));
  }
  fmt::print("\n\n| 8 FCs, bf16 |");
  for (const DataKind& kind : kKinds) fmt::print(" {} |", kind.name);
  fmt::print("\n|---|---|---|---|---|---|---|\n");
  for (const Objective objective : {Objective::kCa, Objective::kDistantCa, Objective::kAttention,
                                    Objective::kDistantAttention}) {
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

int run(int argc, char** argv) {
  CLI::App app("Calibration data, objectives and slice formats on the bundled model");
  int texts = 8;
  std::optional<int> window;
  size_t bytes = 900;
  app.add_option("--texts", texts, "Texts of 4 facts each")->check(CLI::Range(1, 100));
  app.add_option("--window", window, "K of calibration; default: by the length");
  app.add_option("--bytes", bytes, "Bytes per text")
      ->capture_default_str()
      ->check(CLI::Range(500, 7500));
  CLI11_PARSE(app, argc, argv);
  Study study{open_study_model(), window, bytes};
  print_recall(study, texts);
  return 0;
}

}  // namespace
}  // namespace fasa::bench

int main(int argc, char** argv) {
  return fasa::bench::study_main("calibration_study", fasa::bench::run, argc, argv);
}
