// Any bytes as a chat template over a fixed context: parsing and rendering end within the limits, with text
// or a typed error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/chat_template.h"

namespace {

const nlohmann::ordered_json& context() {
  static const auto json = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Grüße 🙂"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
      {"role": "tool", "content": "{\"ok\": true}"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 7, "l": [3, 1, 2], "s": "text"})");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Smaller than the defaults, so that one input costs little time.
  const isthmus::TemplateLimits limits{.steps = 20'000, .depth = 64, .output_bytes = 1U << 16U};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = isthmus::ChatTemplate::parse(source, limits);
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  const auto text = parsed->render(context(), 1'764'504'000);
  if (text.ok() && text->size() > limits.output_bytes) std::abort();
  return 0;
}
