// A sequence's rows in host memory, and what the device has of them. They are reached in one of two
// ways. A short sequence is local: each page has a device copy, which kernels read and write in
// place; new rows are written back to the host as well. Once the copies would take more memory than
// hot rows (CacheLayout::copied_pages), rows are read over the link: protected rows and hot rows
// replace the copies, once and for good.
#pragma once

#include "offload/store/device_copies.h"
#include "offload/store/hot_rows.h"
#include "offload/store/sequence_rows.h"

namespace fasa {

class HostStore;

class HostRows final : public SequenceRows {
 public:
  explicit HostRows(HostStore& store);
  ~HostRows() override;

  RowAccess access() const override { return access_; }
  bool copied() const override { return access_ == RowAccess::kLocal; }
  RowView view() const override {
    if (copied()) return SequenceRows::view();
    return {.blocks = blocks(), .copies = copies_.blocks()};
  }
  HotRows* hot_rows() override { return &hot_rows_; }
  RowMemory memory() const override;

  void grow(int64_t tokens, int64_t first_page) override;
  void promise(int64_t tokens, int64_t pages) override;
  Mark mark() const override;
  bool back_to(const Mark& mark, int64_t length) noexcept override;
  void retake(const Mark& mark) noexcept override;
  void truncate(int64_t tokens) override;
  void invalidate(int64_t length) override;
  bool outgrows_copies(int64_t tokens) const override;
  void read_over_link(int64_t length) override;
  void forget_hot_rows() override;
  void upload(StreamView control) override;
  void prepare(int64_t length, int tokens, StreamView control) override;
  void describe(SequenceDesc* desc) const override;
  void describe_in_place(int64_t length, SequenceDesc* desc) const override;

  // Copies that the store lends; null while the sequence is local. A fork begins without copies.
  DeviceCopies* lent() { return copied() ? nullptr : &copies_; }
  // Takes the first lent copy away; empty if there is none. Its memory may still be in use.
  Buffer take_oldest_copy();

 private:
  void drop(PageRange pages) override;
  void reserve_hot_rows();
  void truncate_copies(int64_t pages) noexcept;
  void fill_copies(int64_t length, StreamView control);

  HostStore& store_;
  DeviceCopies copies_;
  int64_t filled_copies_ = 0;  // first pages whose copies have all rows, while the rows are local
  RowAccess access_ = RowAccess::kLocal;
  Buffer protected_rows_;
  HotRows hot_rows_;
};

}  // namespace fasa
