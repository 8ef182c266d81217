#include "runtime/api/sequences/step_describer.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/hot_slots.h"
#include "runtime/base/error.h"

namespace fasa {

namespace {

// `desc` with its rows in the pages of `window_rows`.
SequenceDesc in_window_rows(const SequenceDesc& desc, std::byte* const* blocks) {
  SequenceDesc window_rows;
  window_rows.row_blocks = blocks;
  window_rows.mode = desc.mode;
  window_rows.first_token = desc.first_token;
  window_rows.tokens = desc.tokens;
  window_rows.start = desc.start;
  window_rows.step_number = desc.step_number;
  return window_rows;
}

// One token of those that a sequence decodes, a prompt in place of its first; else a sequence that
// takes no part.
SequenceDesc token_of(const SequenceDesc& whole, int token) {
  SequenceDesc one;
  one.mode = StepMode::kPrefill;
  if (token >= (whole.mode == StepMode::kDecode ? whole.tokens : 1)) return one;
  one = whole;
  if (whole.mode == StepMode::kPrefill) return one;
  one.first_token += token;
  one.start += token;
  one.earlier = token;
  one.tokens = 1;
  return one;
}

}  // namespace

StepDescriber::StepDescriber(StepStreams& streams, int32_t max_steps)
    : streams_(streams),
      engine_(streams.engine()),
      sequences_(streams.sequences()),
      max_steps_(max_steps) {
  if (max_steps < 1 || max_steps > kMaxSteps) {
    throw UsageError(fmt::format("max_steps = {}: allowed: 1 to {}", max_steps, kMaxSteps));
  }
}

void StepDescriber::make_room(int numbers) {
  if (step_number_ <= max_steps_ - numbers) return;
  for (const auto& [id, sequence] : sequences_) sequence->rows().forget_hot_rows();
  step_number_ = 0;
}

void StepDescriber::list(OpenStep& step) const {
  const StepSettings& settings = engine_.settings();
  auto& descs = step.slot->host(DescriptorBuffer::kStep);
  auto& restore = step.slot->host(DescriptorBuffer::kRestore);
  auto& code = step.slot->host(DescriptorBuffer::kCode);
  auto& window_rows = step.slot->host(DescriptorBuffer::kWindowRows);
  descs.clear();
  restore.clear();
  code.clear();
  window_rows.clear();
  int64_t write_back_pages = 0;
  for (const StepPart& part : step.sequences) {
    KvSequence& sequence = *part.sequence;
    SequenceDesc desc = sequence.describe();
    if (sequence.stale()) restore.push_back(desc);
    if (const auto uncoded = sequence.code_slices()) code.push_back(*uncoded);
    desc.mode = part.mode;
    desc.first_token = static_cast<int32_t>(step.tokens);
    desc.tokens = part.tokens;
    desc.step_number = step_number_;
    step.tokens += part.tokens;
    step.decodes |= part.mode == StepMode::kDecode;
    if (step.piece) {
      desc.start = static_cast<int32_t>(step.piece->start);
      desc.write_back_buffer = step.piece->rows.page(desc.start / kPageTokens);
    } else if (part.mode == StepMode::kPrefill &&
               sequence.rows().access() == RowAccess::kOverLink) {
      desc.write_back_buffer = engine_.scratch().prefill().write_back_buffer +
                               write_back_pages * settings.layout.row_layer_bytes();
      write_back_pages += write_back_pages_of(desc.start, part.tokens);
    }
    descs.push_back(desc);
    if (const SequenceRows* const rows = sequence.window_rows())
      window_rows.push_back(in_window_rows(desc, rows->device_blocks()));
    step.tables.rows.push_back(sequence.rows().view());
    step.tables.histories.push_back(sequence.history());
  }
}

void StepDescriber::restore(const OpenStep& step) const {
  if (!engine_.restore(*step.slot)) return;
  for (const StepPart& part : step.sequences) part.sequence->restored();
}

void StepDescriber::code(const DescriptorBuffer& slot) const {
  if (slot.host(DescriptorBuffer::kCode).empty()) return;
  streams_.order(streams_.latest());  // earlier steps may still write the rows
  for (int layer = 0; layer < engine_.settings().layout.layers; ++layer) {
    const StepParams params = engine_.params(slot, DescriptorBuffer::kCode, layer);
    engine_.device().enqueue(AppendParams{.step = params, .k = {}, .v = {}}, engine_.control(),
                             tag_of(layer, Cause::kControl));
  }
}

void StepDescriber::code(KvSequence& sequence, DescriptorBuffer& slot) {
  const StreamView control = engine_.control();
  sequence.upload_tables(control);
  for (const auto kind :
       {DescriptorBuffer::kStep, DescriptorBuffer::kRestore, DescriptorBuffer::kWindowRows,
        DescriptorBuffer::kRounds, DescriptorBuffer::kRoundsInWindowRows}) {
    slot.host(kind).clear();
  }
  slot.host(DescriptorBuffer::kCode).assign(1, *sequence.code_slices());
  slot.upload(control);
  code(slot);
}

void StepDescriber::describe(OpenStep& step, const DecodeRounds& rounds) {
  const StreamView control = engine_.control();
  for (const StepPart& part : step.sequences) {
    KvSequence& sequence = *part.sequence;
    const int64_t before = step.piece ? step.piece->start - sequence.length() : 0;
    sequence.upload_tables(control);
    sequence.prepare(static_cast<int>(before) + part.tokens, control);
  }
  list(step);  // after the uploads: tables may have moved
  list_rounds(step, rounds);
  step.slot->upload(control);
  restore(step);
  code(*step.slot);
  engine_.record_tables();
  engine_.describe(*step.slot, &step.tables);
  if (step.piece) {
    step.tables.piece = true;
    step.tables.layer_rows = step.piece->rows;
    step.tables.second_write_back_buffer = 0;
  }
  step.tables.step_number =
      StepNumber::of_device(DescriptorBuffer::step_number_of(step.tables.on_device));
}

// All tokens that a sequence decodes in a step lie in one page, so sealed pages and the tail hold
// everything that each of them attends to.
void StepDescriber::list_rounds(OpenStep& step, const DecodeRounds& rounds) {
  auto& descs = step.slot->host(DescriptorBuffer::kRounds);
  auto& window_rows = step.slot->host(DescriptorBuffer::kRoundsInWindowRows);
  descs.clear();
  window_rows.clear();
  const auto& whole = step.slot->host(DescriptorBuffer::kStep);
  const auto& whole_in_window_rows = step.slot->host(DescriptorBuffer::kWindowRows);
  const auto add = [&](size_t member, int round, int token) {
    SequenceDesc desc = token_of(whole[member], token);
    desc.step_number = step_number_ + round;
    descs.push_back(desc);
    step.round_members.push_back(member);
    if (whole_in_window_rows.empty()) return;
    window_rows.push_back(in_window_rows(desc, whole_in_window_rows[member].row_blocks));
  };
  for (int round = 0; round < rounds.count; ++round) {
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      const int first = round * rounds.together;
      const int end = first + rounds.places_of(step.sequences[i]);
      for (int token = first; token < end; ++token) add(i, round, token);
    }
  }
  step_number_ += std::max(0, rounds.count - 1);
}

// Allocates per round: a step of several tokens takes as long as many allocations.
void StepDescriber::describe_rounds(OpenStep& step, const DecodeRounds& rounds) const {
  using Kind = DescriptorBuffer::Kind;
  const RowAccess decoded = DecodeRounds::access(step.sequences);
  step.rounds.assign(static_cast<size_t>(rounds.count), step.tables);
  size_t first = 0;
  for (StepContext& round : step.rounds) {
    round.round = static_cast<int>(first) / rounds.places;
    round.decoded = decoded;
    round.together = rounds.together;
    round.on_device = step.slot->device(Kind::kRounds) + first;
    round.on_host = std::span(step.slot->host(Kind::kRounds))
                        .subspan(first, static_cast<size_t>(rounds.places));
    if (round.in_window_rows != nullptr) {
      round.in_window_rows = step.slot->device(Kind::kRoundsInWindowRows) + first;
    }
    round.step_number = StepNumber::of_device(DescriptorBuffer::step_number_of(round.on_device));
    if (round.round > 0) round.probe = nullptr;
    round.rows.clear();
    round.histories.clear();
    for (size_t i = first; i < first + round.on_host.size(); ++i) {
      round.rows.push_back(step.tables.rows[step.round_members[i]]);
      round.histories.push_back(step.tables.histories[step.round_members[i]]);
    }
    first += round.on_host.size();
  }
}

}  // namespace fasa
