#include "bindings/http/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings/http/api_error.h"

namespace fasa::serve {

Slots::Slot& Slots::at(const std::string& salt, int64_t slot) {
  if (slot < 0 || static_cast<size_t>(slot) >= count_) {
    throw ApiError::bad_field(
        "id_slot", fmt::format("{}; allowed: 0 to {} (--max-sequences)", slot, count_ - 1));
  }
  std::vector<Slot>& all = slots_[salt];
  all.resize(count_);
  return all[static_cast<size_t>(slot)];
}

int Slots::take(const std::string& salt, int64_t wanted, std::span<const int32_t> prompt) {
  const std::lock_guard lock(mutex_);
  if (wanted < 0) {
    const Slot* const all = &at(salt, 0);
    const auto rank = [&](const Slot& slot) {
      const bool continued = slot.ids.size() <= prompt.size() &&
                             std::equal(slot.ids.begin(), slot.ids.end(), prompt.begin());
      return std::pair(continued ? slot.ids.size() : 0, ~slot.used);
    };
    wanted = std::max_element(all, all + count_,
                              [&](const Slot& a, const Slot& b) { return rank(a) < rank(b); }) -
             all;
  }
  at(salt, wanted).used = ++uses_;
  return static_cast<int>(wanted);
}

void Slots::set(const std::string& salt, int slot, std::vector<int32_t> ids) {
  const std::lock_guard lock(mutex_);
  at(salt, slot).ids = std::move(ids);
}

std::vector<int32_t> Slots::ids(const std::string& salt, int64_t slot) {
  const std::lock_guard lock(mutex_);
  return at(salt, slot).ids;
}

std::string slot_record_id(const std::string& name) { return "slot:" + name; }

std::shared_ptr<const Record> slot_record(const std::string& name, std::span<const int32_t> ids) {
  std::string data(ids.size_bytes(), '\0');
  if (!ids.empty()) std::memcpy(data.data(), ids.data(), data.size());
  return std::make_shared<Record>(slot_record_id(name), std::move(data));
}

std::vector<int32_t> ids_of(const Record& record) {
  std::vector<int32_t> ids(record.data.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), record.data.data(), ids.size() * sizeof(int32_t));
  return ids;
}

}  // namespace fasa::serve
