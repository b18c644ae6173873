#include "text/chat_template.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "text/builtin_templates.h"
#include "text/jinja_ast.h"
#include "text/jinja_interp.h"
#include "text/jinja_lexer.h"
#include "text/jinja_unicode.h"

namespace isthmus {
namespace {

// Far above any real template (tens of KiB); keeps the token list of a hostile one small.
constexpr size_t kMaxSourceBytes = 1U << 20U;

/// " (line 3, column 14)", counted from 1, columns in characters.
std::string place_of(std::string_view source, jinja::Offset at) {
  if (at == jinja::kNowhere) return {};
  const std::string_view before = source.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  const size_t column = jinja::count_chars(before.substr(start)) + 1;
  return " (line " + std::to_string(line) + ", column " + std::to_string(column) + ")";
}

/// A message may quote the template or the data: never invalid UTF-8, never endless.
std::string printable(std::string_view message) {
  constexpr size_t kMaxMessage = 2000;
  std::string out;
  for (size_t i = 0; i < message.size();) {
    if (out.size() >= kMaxMessage) return out + "…";
    const char32_t c = jinja::next_char(message, i);
    jinja::append_char(out, c >= 0xDC00 && c < 0xE000 ? 0xFFFD : c);
  }
  return out;
}

Status to_status(const jinja::TemplateError& error, std::string_view source) {
  return Status(error.code, "chat template: " + printable(error.message) + place_of(source, error.at));
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  TemplateLimits limits;
  jinja::Program program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, TemplateLimits limits) {
  if (source.size() > kMaxSourceBytes) {
    return resource_exhausted("chat template: the source is longer than 1 MiB");
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->source = std::string(source);
    impl->limits = limits;
    impl->program = jinja::parse_program(source, limits.depth);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::TemplateError& error) {
    return to_status(error, jinja::normalise_source(source));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("chat template: out of memory while parsing");
  }
}

Result<ChatTemplate> ChatTemplate::builtin(std::string_view name) {
  std::string known;
  for (const BuiltinTemplate& entry : builtin_templates()) {
    if (entry.name == name) return parse(entry.source);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return not_found("no built-in chat template named '" + std::string(name) + "'; there are " + known);
}

std::vector<std::string_view> ChatTemplate::builtin_names() {
  std::vector<std::string_view> names;
  for (const BuiltinTemplate& entry : builtin_templates()) names.push_back(entry.name);
  return names;
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context, int64_t now) const {
  if (!context.is_object()) return invalid_argument("chat template: the context must be an object");
  try {
    jinja::Interp interp(impl_->program, impl_->limits, context, now);
    return interp.run();
  } catch (const jinja::TemplateError& error) {
    return to_status(error, impl_->program.source);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("chat template: out of memory while rendering");
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument("chat template: the context is not usable: " + std::string(error.what()));
  }
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace isthmus
