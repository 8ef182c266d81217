// Decoders of the supported families: pieces back to text, one at a time.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

// A decoder step in progress. Outputs pieces as soon as they are final.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // A part of a piece; `ends` marks the last part. push() appends to `out` the parts that became
  // final.
  struct Part {
    std::string text;
    bool ends = true;
  };
  virtual void push(Part part, std::vector<Part>& out) = 0;
  // Call after the last piece.
  virtual void finish(std::vector<Part>& out) { (void)out; }
};

// A step's description from the file. Thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<DecoderStep> start() const = 0;
  // The bytes that a piece becomes within a text, ignoring its neighbours.
  virtual std::string bytes_of(std::string piece) const { return piece; }
};

// ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and sequences of them, applied in order.
class DecoderChain {
 public:
  // `part`: the "decoder" of a tokenizer.json; null: pieces are joined by blanks. Throws InputError
  // for any other decoder.
  DecoderChain(const nlohmann::json& part, const std::string& place);

  std::vector<std::unique_ptr<DecoderStep>> start() const;
  // The bytes that a piece adds within a text.
  std::string bytes_of(std::string_view piece) const;

 private:
  std::vector<std::unique_ptr<const Decoder>> steps_;
};

}  // namespace fasa::text
