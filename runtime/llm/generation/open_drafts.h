// Opens the source of an answer's drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/draft_source.h"
#include "runtime/llm/generation/mtp_cache.h"

namespace fasa {

// `text`: tokens before the answer; DraftSource::computed() is called for those from `cached` on.
// `mtp`: for DraftKind::kMtp, which makes no drafts without it; must outlive the source. Null: no
// drafts.
std::unique_ptr<DraftSource> open_drafts(const AnswerOptions& options,
                                         std::span<const int32_t> text, int64_t cached,
                                         MtpCache* mtp);

}  // namespace fasa
