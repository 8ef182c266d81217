// Unicode's canonical normal forms, by utf8proc.
#pragma once

#include "runtime/text/mapped_text.h"

namespace fasa::text {

enum class CanonicalForm { kComposed, kDecomposed };  // NFC, NFD

MappedText canonical(const MappedText& text, CanonicalForm form);

}  // namespace fasa::text
