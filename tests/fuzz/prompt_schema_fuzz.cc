// Prompt schemas and prompts: any text is refused with a reason or has a layout, in which positions are those
// of its parts, and which any prompt either fits or does not.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/schema_layout.h"

namespace {

using isthmus::SchemaLayout;

std::vector<isthmus::TokenId> letters(std::string_view text) { return {text.begin(), text.end()}; }

/// Parts ascend without overlap, and end within the schema.
void check_parts(const SchemaLayout& layout, const std::vector<SchemaLayout::Part>& parts) {
  size_t next = 0;
  for (const auto& part : parts) {
    const size_t n =
        part.run == SchemaLayout::kNone ? part.argument.size() : layout.runs()[part.run].tokens.size();
    if (part.position < next || n == 0) std::abort();
    next = part.position + n;
  }
  if (next > layout.length()) std::abort();
}

}  // namespace

/// The schema, then a byte of value 1, then the prompt.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(all.find('\1'), all.size());
  const auto schema = isthmus::PromptSchema::parse(
      all.substr(0, cut), [](const std::string& path) -> isthmus::Result<std::string> { return path; });
  const auto prompt = isthmus::SchemaPrompt::parse(all.substr(std::min(cut + 1, all.size())));
  if (!schema.ok()) return 0;
  const auto layout = SchemaLayout::create(*schema, {}, letters, 4096);
  if (!layout.ok()) return 0;
  for (size_t run = 0; run < layout->runs().size(); ++run) {
    for (const auto view :
         {isthmus::ModuleView::kIsolated, isthmus::ModuleView::kAnchored, isthmus::ModuleView::kWhole}) {
      size_t next = 0;  // what a run sees must be a text before it
      for (const size_t other : layout->seen(run, view)) {
        if (layout->runs()[other].position < next) std::abort();
        next = layout->runs()[other].position + layout->runs()[other].tokens.size();
      }
      if (next > layout->runs()[run].position) std::abort();
    }
  }
  if (!prompt.ok()) return 0;
  const auto parts = layout->choose(*prompt, letters);
  if (parts.ok()) check_parts(*layout, *parts);
  return 0;
}
