// Ids that must not be mixed are distinct types.
#pragma once

#include <cstdint>
#include <functional>

namespace fasa {

enum class SequenceId : uint64_t {};
enum class PageId : uint32_t {};  // a block of a pool: one page of kPageTokens tokens, all layers

constexpr uint32_t index_of(PageId id) { return static_cast<uint32_t>(id); }
constexpr uint64_t index_of(SequenceId id) { return static_cast<uint64_t>(id); }

}  // namespace fasa
