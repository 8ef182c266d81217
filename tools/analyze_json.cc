// An analysis as JSON. Shares are fractions, 0 to 1.
#include "runtime/config/config_options.h"
#include "tools/analyze_report.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

Json agreement_json(const Analysis& analysis) {
  const AgreementTable& shape = analysis.agreement.front();
  Json layers = Json::array();
  for (int layer = 0; layer < shape.layers(); ++layer) {
    Json heads = Json::array();
    for (int head = 0; head < shape.query_heads(); ++head) {
      Json chunks = Json::array();
      for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
        chunks.push_back(analysis.mean_agreement(layer, head, chunk));
      }
      heads.push_back(std::move(chunks));
    }
    layers.push_back(std::move(heads));
  }
  return {{"mean", layers},
          {"over_0.4", analysis.share_of_chunks([](double ca) { return ca > 0.4; })},
          {"under_0.15", analysis.share_of_chunks([](double ca) { return ca < 0.15; })}};
}

Json compound_json(const CompoundTable& table) {
  Json rows = Json::object();
  for (size_t row = 0; row < table.rows.size(); ++row) {
    Json values = Json::array();
    for (const double share : table.share[row]) {
      values.push_back(share < 0 ? Json(nullptr) : Json(share));
    }
    rows[table.rows[row]] = std::move(values);
  }
  return {{"windows", table.windows}, {"agreement", rows}};
}

Json attention_json(const CapturedAttention& attention) {
  return {{"attention", attention.attention_share()},
          {"distant_attention", attention.distant_share()},
          {"queries", attention.queries}};
}

// [layers][query_heads]
Json attention_by_head(const SelectionAttention& selection) {
  Json layers = Json::array();
  for (const auto& heads : selection.heads) {
    Json shares = Json::array();
    for (const CapturedAttention& head : heads) shares.push_back(head.attention_share());
    layers.push_back(std::move(shares));
  }
  return layers;
}

}  // namespace

Json to_json(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  Json texts = Json::array();
  for (const AnalysisText& text : analysis.texts) {
    texts.push_back({{"name", text.name},
                     {"tokens", text.data.ids.size()},
                     {"queries", text.anchors.size()},
                     {"probes", text.probes.size()}});
  }
  Json slices = Json::array();
  for (const SliceChoiceAttention& one : analysis.slices) {
    slices.push_back({{"dtype", std::string(slice_dtype_name(one.dtype))},
                      {"chunks", one.chunks},
                      {"bytes", one.bytes},
                      {"kept_text", one.kept(0)},
                      {"kept_probes", one.kept(1)}});
  }
  Json selections = Json::array();
  for (const SelectionAttention& one : analysis.selections) {
    selections.push_back({{"method", one.method},
                          {"fac_tokens", one.budget},
                          {"text", attention_json(one.text)},
                          {"probes", attention_json(one.probes)},
                          {"attention_by_head", attention_by_head(one)}});
  }
  return {{"model", report.model},
          {"window", report.options.window},
          {"slice_window", report.options.slice_window},
          {"text_steps", report.text_steps},
          {"seconds", report.seconds},
          {"texts", texts},
          {"agreement", agreement_json(analysis)},
          {"compound", compound_json(analysis.compound)},
          {"fifths", {{"dominant", analysis.fifths.dominant}, {"others", analysis.fifths.others}}},
          {"map_overlap", {{"texts", analysis.text_overlap}, {"sizes", analysis.size_overlap}}},
          {"slices", slices},
          {"selections", selections},
          {"config", config_to_json(report.config)}};
}

}  // namespace fasa
