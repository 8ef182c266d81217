// An analysis as JSON. Shares are fractions, 0 to 1.
#include "runtime/config/config_options.h"
#include "tools/report/analyze_report.h"

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

}  // namespace

Json to_json(const AnalyzeReport& report) {
  const Analysis& analysis = report.analysis;
  Json texts = Json::array();
  for (const AnalysisText& text : analysis.texts) {
    texts.push_back({{"name", text.name},
                     {"tokens", text.data.ids.size()},
                     {"queries", text.data.positions.size()}});
  }
  return {{"model", report.model},
          {"window", report.options.window},
          {"seconds", report.seconds},
          {"texts", texts},
          {"agreement", agreement_json(analysis)},
          {"map_overlap", {{"texts", analysis.text_overlap}, {"sizes", analysis.size_overlap}}},
          {"config", config_to_json(report.config)}};
}

}  // namespace fasa
