// A chat template in the part of Jinja that published models use, with Hugging Face's settings:
// trim_blocks, lstrip_blocks, break and continue, the tag `generation`, tojson without HTML
// escapes, raise_exception and strftime_now. Nothing in it changes values.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/text/template/context.h"
#include "runtime/text/template/functions/marked_text.h"
#include "runtime/text/template/limits.h"

namespace fasa::jinja {

// An error in a template, or raised by it: "NAME:LINE:COLUMN: MESSAGE". Lines and columns count
// from 1; columns are bytes.
class TemplateError : public InputError {
 public:
  TemplateError(const std::string& place, const std::string& message)
      : InputError(place + ": " + message), message_(message) {}
  // The message without its position: the argument of raise_exception.
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

// Immutable and thread-safe.
class Template {
 public:
  // `name`: the file, for errors. Throws TemplateError.
  static Template parse(std::string_view source, const std::string& name,
                        const Limits& limits = {});
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // The prompt, with user text marked. Throws TemplateError.
  MarkedText render(const Context& context) const;

 private:
  struct Parts;
  explicit Template(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace fasa::jinja
