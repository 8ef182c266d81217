// What `fasa demo` measures: fasa-m and full attention side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/api/kv_metrics.h"

namespace fasa {

// Called with what is done and what there is to do, in tokens or steps.
using DemoProgress = std::function<void(int64_t done, int64_t total)>;

// One of the two on a document.
struct DocumentRun {
  std::string answer;  // the continuation of the beginning of the added sentence
  bool right = false;
  KvMemory memory;  // after the last token
};

struct DocumentResult {
  int64_t document_tokens = 0;  // prefilled, once for both
  int64_t cache_tokens = 0;     // at the end
  DocumentRun tiered, full;
  int64_t compared = 0;    // tokens after the document, each predicted by both
  int64_t same_token = 0;  // the most likely one is the same
  double kl = 0;           // KL(full || fasa-m), nats a token
};

// Prefills a text to which one sentence was added, once. fasa-m and full attention then complete
// the sentence's beginning and predict the text's next tokens, on the emulated device. Throws
// InputError (model, texts), BudgetError.
DocumentResult measure_document(const std::string& model, const DemoProgress& progress);

// The sentence that measure_document() adds, and its beginning.
extern const char* const kAddedSentence;
extern const char* const kAddedBeginning;

// Seconds a decoded token on this processor.
struct SpeedResult {
  int64_t tokens = 0;  // of context
  double fasa_seconds = 0;
  double full_seconds = 0;
};

// A model's whole decode step on the cpu device, behind `tokens` random keys and values.
SpeedResult measure_model_speed(const std::string& model, int64_t tokens);

// The attention of Llama-3.1-8B on the cpu device: one layer's time, times the layers.
SpeedResult measure_attention_speed(int64_t tokens);

// The same geometry's whole step on an emulated GPU, weights in 4 bits.
SpeedResult measure_emulated_step(const std::string& gpu, int64_t tokens);

// Facts planted in the bundled texts, asked of the bundled model on the emulated device.
struct FactsResult {
  int asked = 0;
  int tiered_right = 0;
  int full_right = 0;
};
FactsResult measure_facts(const DemoProgress& progress);

}  // namespace fasa
