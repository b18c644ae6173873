// Chat templates of our own for models that bring none: short, and equal in output to the well-known formats.
#pragma once

#include <span>
#include <string_view>

namespace isthmus {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};

/// All of them, in the order that help texts list them.
std::span<const BuiltinTemplate> builtin_templates();

}  // namespace isthmus
