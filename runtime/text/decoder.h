// From pieces back to text, one piece after another: the decoders that the supported families use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

// One step of a decoder at work: pieces go in, pieces come out, as soon as they are certain.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // A part of a piece; `ends` where it is the last one. Appends to `out` the parts that it makes
  // certain.
  struct Part {
    std::string text;
    bool ends = true;
  };
  virtual void push(Part part, std::vector<Part>& out) = 0;
  // No piece follows.
  virtual void finish(std::vector<Part>& out) { (void)out; }
};

// A step as the file describes it. Read by any number of threads.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<DecoderStep> start() const = 0;
  // What a piece within a text becomes, its neighbours apart.
  virtual std::string bytes_of(std::string piece) const { return piece; }
};

// ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and sequences of them, one after
// another.
class DecoderChain {
 public:
  // `part`: the "decoder" of a tokenizer.json, null for none: pieces are joined by blanks then.
  // Throws InputError for any other.
  DecoderChain(const nlohmann::json& part, const std::string& place);

  std::vector<std::unique_ptr<DecoderStep>> start() const;
  // The bytes that a piece adds within a text.
  std::string bytes_of(std::string_view piece) const;

 private:
  std::vector<std::unique_ptr<const Decoder>> steps_;
};

}  // namespace fasa::text
