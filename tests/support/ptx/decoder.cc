#include "tests/support/ptx/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "tests/support/ptx/warp.h"

namespace fasa::ptx {
namespace {

constexpr std::array<std::string_view, 5> kSpecials{"%tid", "%ntid", "%ctaid", "%nctaid",
                                                    "%laneid"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

int64_t number_after(std::string_view text, std::string_view word, int64_t otherwise) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return otherwise;
  return std::strtoll(std::string(text.substr(at + word.size())).c_str(), nullptr, 10);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at == text.size() || (text[at] == by && depth == 0)) {
      parts.push_back(trimmed(text.substr(begin, at - begin)));
      begin = at + 1;
    } else if (text[at] == '{' || text[at] == '[') {
      ++depth;
    } else if (text[at] == '}' || text[at] == ']') {
      --depth;
    }
  }
  return parts;
}

void Statement::allow(std::initializer_list<std::string_view> modifiers) const {
  for (size_t i = 1; i < parts.size(); ++i) {
    if (std::ranges::find(modifiers, parts[i]) == modifiers.end()) {
      decoder.fail(fmt::format("unknown modifier .{}", parts[i]), opcode);
    }
  }
}

void Statement::expect_arguments(size_t count) const {
  if (arguments.size() != count) decoder.fail(fmt::format("not {} operands", count), opcode);
}

void Decoder::fail(const std::string& what, std::string_view text) const {
  throw Error(fmt::format("{}: line {}: {}: {}", entry_.name, line_, what, text));
}

int Decoder::add_slot(int width) {
  const int slot = entry_.file_words;
  entry_.file_words += words_of(width);
  return slot;
}

int Decoder::constant(int width, uint64_t value) {
  if (width == 0) {
    value = value != 0;
  } else if (width < 8) {
    value &= (uint64_t{1} << 8 * width) - 1;
  }
  int& slot = constants_[{width, value}];
  if (slot == 0) {
    slot = add_slot(width);
    entry_.constants.push_back({slot, width, value});
  }
  return slot;
}

// By its own name, or as a member of a family: %r7 of %r<10>.
std::optional<Decoder::Register> Decoder::find_register(const std::string& name) const {
  size_t digits = name.size();
  while (digits > 1 && is_digit(name[digits - 1])) --digits;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end() && found->second.count == 1) {
      return found->second;
    }
    const auto family = scope->find(name.substr(0, digits));
    if (digits == name.size() || family == scope->end()) continue;
    const Register& all = family->second;
    const int number = std::atoi(name.c_str() + digits);
    if (all.count == 1 || number >= all.count) continue;
    return Register{all.slot + number * words_of(all.width), all.width, 1};
  }
  return std::nullopt;
}

std::optional<Decoder::Value> Decoder::literal(const std::string& text, int width) {
  const char* const begin = text.c_str();
  if (text.starts_with("0f") || text.starts_with("0F")) {
    return Value{constant(4, std::strtoul(begin + 2, nullptr, 16)), 4};
  }
  if (text.starts_with("0d") || text.starts_with("0D")) {
    return Value{constant(8, std::strtoull(begin + 2, nullptr, 16)), 8};
  }
  if (text[0] == '-') {
    return Value{constant(width, static_cast<uint64_t>(std::strtoll(begin, nullptr, 0))), width};
  }
  if (is_digit(text[0])) return Value{constant(width, std::strtoull(begin, nullptr, 0)), width};
  return std::nullopt;
}

std::optional<Decoder::Value> Decoder::symbol(const std::string& name, int width) {
  if (const auto param = params_.find(name); param != params_.end()) {
    const int slot = add_slot(8);
    entry_.constants.push_back({slot, 8, static_cast<uint64_t>(param->second)});
    entry_.param_addresses.push_back(slot);
    return Value{slot, 8};
  }
  if (const auto shared = shared_.find(name); shared != shared_.end()) {
    return Value{constant(width, SharedMemory::kBase + static_cast<uint64_t>(shared->second)),
                 width};
  }
  if (const auto local = local_.find(name); local != local_.end()) {
    return Value{constant(width, static_cast<uint64_t>(local->second)), width};
  }
  if (const auto global = globals_.find(name); global != globals_.end()) {
    return Value{constant(8, reinterpret_cast<uint64_t>(global->second.data())), 8};
  }
  const std::string stem = name.substr(0, name.find('.'));
  if (std::ranges::find(kSpecials, stem) == kSpecials.end()) return std::nullopt;
  int& special = specials_[name];
  if (special == 0) {
    special = add_slot(4);
    entry_.specials.push_back({special, name});
  }
  return Value{special, 4};
}

void Decoder::add_operand(Instruction& in, std::string_view text, int width) {
  if (in.operands == Instruction::kMaxOperands) fail("too many operands", text);
  const std::string name(text);
  std::optional<Value> value;
  if (name == "_") {
    value = Value{0, width};
  } else if (const auto found = find_register(name)) {
    value = Value{found->slot, found->width};
  } else if (!name.empty()) {
    value = literal(name, width);
    if (!value) value = symbol(name, width);
  }
  if (!value) fail("unknown operand", text);
  in.width[in.operands] = static_cast<uint8_t>(value->width);
  in.slot[in.operands++] = value->slot;
}

void Decoder::add_elements(Instruction& in, std::string_view text, int width) {
  if (!text.starts_with('{')) return add_operand(in, text, width);
  for (const std::string_view element : split(text.substr(1, text.size() - 2), ',')) {
    add_operand(in, element, width);
  }
}

void Decoder::add_address(Instruction& in, std::string_view text) {
  if (!text.starts_with('[')) fail("no address", text);
  text = trimmed(text.substr(1, text.size() - 2));
  const size_t plus = text.find('+');
  in.immediate = plus == std::string_view::npos
                     ? 0
                     : std::strtoll(std::string(text.substr(plus + 1)).c_str(), nullptr, 0);
  const bool window = in.space == Space::kShared || in.space == Space::kLocal;
  add_operand(in, trimmed(text.substr(0, plus)), window ? 4 : 8);
}

// ".reg .b32 %r<10>"
void Decoder::declare_registers(std::string_view text) {
  const std::string_view rest = trimmed(text.substr(4));
  const size_t space = rest.find_first_of(" \t");
  const auto type = type_of(rest.substr(1, space - 1));
  if (!type) fail("unknown type", text);
  const int width = bytes_of(*type);
  for (const std::string_view name : split(rest.substr(space), ',')) {
    const size_t open = name.find('<');
    const int declared = static_cast<int>(number_after(name, "<", 0));
    const int count = open == std::string_view::npos ? 1 : std::max(declared, 2);
    scopes_.back()[std::string(name.substr(0, open))] = {entry_.file_words, width, count};
    entry_.file_words += count * words_of(width);
  }
}

// ".local .align 16 .b8 __local_depot0[32]"
void Decoder::declare_local(std::string_view text) {
  const int64_t align = number_after(text, ".align", 16);
  const size_t open = text.find('[');
  const size_t name = text.find_last_of(" \t", open) + 1;
  entry_.local_bytes = (entry_.local_bytes + align - 1) / align * align;
  local_[std::string(text.substr(name, open - name))] = entry_.local_bytes;
  entry_.local_bytes += number_after(text, "[", 0);
}

void Decoder::statement(std::string_view text) {
  if (text.starts_with(".reg")) return declare_registers(text);
  if (text.starts_with(".local")) return declare_local(text);
  if (text.starts_with(".pragma") || text.starts_with(".loc")) return;
  if (text.starts_with('.')) fail("unknown directive", text);
  Statement bound{.decoder = *this,
                  .in = {},
                  .opcode = {},
                  .parts = {},
                  .arguments = {},
                  .type = {},
                  .stem = {}};
  Instruction& in = bound.in;
  in.line = line_;
  std::string_view rest = text;
  if (rest.starts_with('@')) {
    const size_t end = rest.find_first_of(" \t");
    in.guard_negated = rest[1] == '!';
    add_operand(in, rest.substr(in.guard_negated ? 2 : 1, end - (in.guard_negated ? 2 : 1)), 0);
    in.guard = in.slot[0];
    in.operands = 0;
    rest = trimmed(rest.substr(end));
  }
  const size_t end = rest.find_first_of(" \t");
  bound.opcode = rest.substr(0, end);
  bound.parts = split(bound.opcode, '.');
  if (end != std::string_view::npos) bound.arguments = split(trimmed(rest.substr(end)), ',');
  bound.type = type_of(bound.parts.back());
  bound.stem = bound.opcode.substr(
      0, bound.opcode.size() - (bound.type ? bound.parts.back().size() + 1 : 0));
  if (!bind_arithmetic(bound) && !bind_moves(bound) && !bind_memory(bound) && !bind_warp(bound)) {
    fail("unknown instruction", text);
  }
  if (in.run == nullptr && (in.kind == Kind::kPlain || in.kind == Kind::kCollective)) {
    fail("unknown type", text);
  }
  entry_.code.push_back(in);
  entry_.text.emplace_back(text);
}

size_t Decoder::skip_blanks(std::string_view body, size_t at) {
  while (at < body.size()) {
    if (body.substr(at, 2) == "//") {
      at = std::min(body.find('\n', at), body.size());
    } else if (!is_blank(body[at])) {
      break;
    } else {
      line_ += body[at++] == '\n';
    }
  }
  return at;
}

void Decoder::decode(std::string_view body, int line) {
  line_ = line;
  for (size_t at = skip_blanks(body, 0); at < body.size(); at = skip_blanks(body, at)) {
    if (body[at] == '{') {
      scopes_.emplace_back();
      ++at;
    } else if (body[at] == '}') {
      if (scopes_.size() > 1) scopes_.pop_back();
      ++at;
    } else if (body[at] == ';') {
      ++at;
    } else if (const size_t end = body.find_first_of(";:\n", at);
               end != std::string_view::npos && body[end] == ':' && body.substr(end, 2) != "::") {
      labels_[std::string(trimmed(body.substr(at, end - at)))] =
          static_cast<int>(entry_.code.size());
      at = end + 1;
    } else {
      const size_t semicolon = std::min(body.find(';', at), body.size());
      statement(trimmed(body.substr(at, semicolon - at)));
      line_ += static_cast<int>(std::ranges::count(body.substr(at, semicolon - at), '\n'));
      at = semicolon + 1;
    }
  }
  for (const auto& [index, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) fail("unknown label", label);
    entry_.code[index].target = found->second;
  }
  Instruction last;  // falls off the end
  last.kind = Kind::kExit;
  last.line = line_;
  entry_.code.push_back(last);
  entry_.text.emplace_back("}");
  entry_.executed.assign(entry_.code.size(), '0');
  share_slots(entry_);
}

}  // namespace fasa::ptx
