#include "runtime/llm/generation/open_drafts.h"

#include "runtime/llm/generation/drafts.h"
#include "runtime/llm/generation/mtp_drafts.h"

namespace fasa {

std::unique_ptr<DraftSource> open_drafts(const AnswerOptions& options,
                                         std::span<const int32_t> text, int64_t cached,
                                         MtpCache* mtp) {
  if (options.drafts == DraftKind::kLookup) {
    return std::make_unique<Drafts>(options.prediction, text);
  }
  if (options.drafts != DraftKind::kMtp || mtp == nullptr) return nullptr;
  auto drafts = std::make_unique<MtpDrafts>(*mtp, cached);
  for (const int32_t token : text.subspan(static_cast<size_t>(cached))) drafts->append(token);
  return drafts;
}

}  // namespace fasa
