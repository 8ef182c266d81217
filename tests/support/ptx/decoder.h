// Decodes the text of one kernel: declares its registers and binds each instruction to the function
// that executes it. Anything unknown is an Error with the line.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/ptx/entry.h"
#include "tests/support/ptx/types.h"

namespace fasa::ptx {

std::string_view trimmed(std::string_view text);
// Parts between separators outside of brackets.
std::vector<std::string_view> split(std::string_view text, char by);

// Addresses of a module's constants, by name.
using Globals = std::map<std::string, std::vector<uint8_t>, std::less<>>;

class Decoder {
 public:
  Decoder(const Globals& globals, Entry& entry) : globals_(globals), entry_(entry) {}

  // Names of the only parameter and of dynamic shared memory, which begin at 0.
  void declare_param(std::string name) { params_.emplace(std::move(name), 0); }
  void declare_shared(std::string name) { shared_.emplace(std::move(name), 0); }
  // `line`: of the text's beginning.
  void decode(std::string_view body, int line);

  // For binders: operands of the instruction, as slots.
  void add_operand(Instruction& in, std::string_view text, int width);
  void add_elements(Instruction& in, std::string_view text, int width);  // {a, b}, or a
  void add_address(Instruction& in, std::string_view text);              // [a+b]
  void add_target(std::string_view label) {
    branches_.emplace_back(entry_.code.size(), std::string(label));
  }
  [[noreturn]] void fail(const std::string& what, std::string_view text) const;

 private:
  struct Register {
    int slot;
    int width;
    int count;  // of a family
  };
  struct Value {
    int slot;
    int width;
  };
  int add_slot(int width);
  int constant(int width, uint64_t value);
  std::optional<Register> find_register(const std::string& name) const;
  std::optional<Value> literal(const std::string& text, int width);
  std::optional<Value> symbol(const std::string& name, int width);
  void declare_registers(std::string_view text);
  void declare_local(std::string_view text);
  void statement(std::string_view text);
  size_t skip_blanks(std::string_view body, size_t at);

  const Globals& globals_;
  Entry& entry_;
  std::vector<std::unordered_map<std::string, Register>> scopes_{1};
  std::unordered_map<std::string, int64_t> params_, shared_, local_;
  std::unordered_map<std::string, int> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;
  std::map<std::pair<int, uint64_t>, int> constants_;
  std::unordered_map<std::string, int> specials_;
  int line_ = 0;
};

// One instruction while it is bound.
struct Statement {
  Decoder& decoder;
  Instruction in;
  std::string_view opcode;              // "add.rn.f32"
  std::vector<std::string_view> parts;  // "add", "rn", "f32"
  std::vector<std::string_view> arguments;
  std::optional<Type> type;  // the last part
  std::string_view stem;     // the opcode without its type

  bool is(std::string_view name) const { return parts[0] == name; }
  int width() const { return bytes_of(type.value()); }
  void add_all(int width_of_each) {
    for (const std::string_view text : arguments) decoder.add_operand(in, text, width_of_each);
  }
  // Throws Error if the modifiers are not all among these.
  void allow(std::initializer_list<std::string_view> modifiers) const;
  void expect_arguments(size_t count) const;
};

// Binds the families of instructions. False: another family's.
bool bind_arithmetic(Statement& statement);
bool bind_moves(Statement& statement);
bool bind_memory(Statement& statement);
bool bind_warp(Statement& statement);  // control flow, barriers, collectives

}  // namespace fasa::ptx
