#include "bindings/http/record_index.h"

namespace fasa::serve {

void RecordIndex::add(const std::string& salt, const std::shared_ptr<const Record>& record) {
  constexpr size_t kFew = 1000;
  const std::lock_guard lock(mutex_);
  records_[{salt, record->id}] = record;
  if (records_.size() < 2 * swept_ + kFew) return;
  std::erase_if(records_, [](const auto& one) { return one.second.expired(); });
  swept_ = records_.size();
}

std::shared_ptr<const Record> RecordIndex::find(const std::string& salt,
                                                const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find({salt, id});
  return found == records_.end() ? nullptr : found->second.lock();
}

bool RecordIndex::erase(const std::string& salt, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find({salt, id});
  if (found == records_.end()) return false;
  const bool there = !found->second.expired();
  records_.erase(found);
  return there;
}

}  // namespace fasa::serve
