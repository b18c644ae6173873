// Chat templates: the Jinja dialect that Hugging Face templates use, interpreted by us, sandboxed and
// limited.
//
// A template is untrusted code. It sees only the values passed to render(), has no attribute access to host
// objects, no files, no imports, and runs under limits of steps, nesting depth and output size; exceeding one
// is an error, never a truncation. A ChatTemplate is immutable and may be used from any thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace isthmus {

struct TemplateLimits {
  uint64_t steps = 1'000'000;          // evaluated nodes and loop turns
  uint32_t depth = 64;                 // nesting of blocks, expressions and macro calls
  uint64_t output_bytes = 4ULL << 20;  // rendered text, and any single string value
};

class ChatTemplate {
 public:
  /// Parses `source`. kCorrupt names line and column.
  static Result<ChatTemplate> parse(std::string_view source, TemplateLimits limits = {});
  /// A built-in by name: "chatml", "llama3", "gemma", "phi3". kNotFound lists them.
  static Result<ChatTemplate> builtin(std::string_view name);
  static std::vector<std::string_view> builtin_names();

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders with `context` (an object: messages, tools, add_generation_prompt, bos_token, eos_token, …) and
  /// the functions that Hugging Face adds (raise_exception, strftime_now, tojson as transformers configures
  /// it). `now` is the time that strftime_now sees, seconds since the epoch (UTC). kInvalidArgument carries
  /// the text of raise_exception; kResourceExhausted names the limit.
  Result<std::string> render(const nlohmann::ordered_json& context, int64_t now = 0) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace isthmus
