#include "runtime/api/pages/paged_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace fasa {

void PagedRequest::take(const PageStore& store, const BlockTable& block_table,
                        std::span<const int32_t> seq_lens) {
  const int page_size = store.page_size();
  const auto pages_for = [&](int length) { return (int64_t{length} + page_size - 1) / page_size; };
  table.clear();
  lengths.assign(seq_lens.begin(), seq_lens.end());
  parts.assign(seq_lens.size(), {});
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    const int32_t* pages = block_table.pages + static_cast<int64_t>(i) * block_table.stride;
    for (int64_t page = 0; page < pages_for(seq_lens[i]); ++page) {
      store.require_page(pages[page]);
      table.push_back(pages[page]);
    }
  }
  size_t first = 0;
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    const auto pages = static_cast<size_t>(pages_for(seq_lens[i]));
    parts[i].pages = std::span<const int32_t>(table).subspan(first, pages);
    parts[i].length = seq_lens[i];
    first += pages;
  }
}

bool PagedRequest::matches(const BlockTable& block_table, std::span<const int32_t> seq_lens) const {
  if (!std::equal(seq_lens.begin(), seq_lens.end(), lengths.begin(), lengths.end())) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::span<const int32_t> pages = parts[i].pages;
    if (!std::equal(pages.begin(), pages.end(),
                    block_table.pages + static_cast<int64_t>(i) * block_table.stride)) {
      return false;
    }
  }
  return true;
}

void PagedRequest::require_held(const PageStore& store, const char* call, int layer) const {
  const int page_size = store.page_size();
  for (size_t index = 0; index < parts.size(); ++index) {
    const Part& part = parts[index];
    for (int64_t i = part.first_open; i < std::ssize(part.pages); ++i) {
      const int32_t page = part.pages[static_cast<size_t>(i)];
      const int64_t read = std::min<int64_t>(part.length - i * page_size, page_size);
      if (store.held(page, layer) >= read) continue;
      throw UsageError(
          fmt::format("{} to {} tokens of sequence {}: page {} (id {}) holds {} tokens of layer "
                      "{}, but {} are needed; append them first",
                      call, part.length, index, i, page, store.held(page, layer), layer, read));
    }
  }
}

int PagedRequest::longest() const { return *std::max_element(lengths.begin(), lengths.end()); }

void check_lengths(int page_size, const char* call, const BlockTable& block_table,
                   std::span<const int32_t> seq_lens) {
  if (block_table.pages == nullptr || block_table.sequences < 1) {
    throw UsageError(fmt::format("{}: the block table is empty", call));
  }
  if (static_cast<int64_t>(seq_lens.size()) != block_table.sequences) {
    throw UsageError(fmt::format("{}: {} seq_lens for the {} sequences of the block table", call,
                                 seq_lens.size(), block_table.sequences));
  }
  const int64_t most = std::min<int64_t>(block_table.columns * page_size, INT32_MAX - page_size);
  for (size_t i = 0; i < seq_lens.size(); ++i) {
    if (seq_lens[i] >= 1 && seq_lens[i] <= most) continue;
    throw UsageError(
        fmt::format("{}: seq_lens[{}] = {}: allowed: 1 to {} ({} columns of {} tokens)", call, i,
                    seq_lens[i], most, block_table.columns, page_size));
  }
}

}  // namespace fasa
