#include "text/prompt_schema.h"

#include <algorithm>
#include <pugixml.hpp>
#include <set>

namespace isthmus {
namespace {

constexpr std::string_view kXmlSpace = " \t\r\n";
constexpr unsigned kXmlParts =
    pugi::parse_cdata | pugi::parse_escapes | pugi::parse_eol | pugi::parse_ws_pcdata;

/// An XML document with what its errors need.
class SchemaXml {
 public:
  static Result<SchemaXml> load(std::string_view xml) {
    if (xml.size() > kMaxSchemaBytes) {
      return resource_exhausted("more than " + std::to_string(kMaxSchemaBytes) + " bytes of XML");
    }
    SchemaXml out(xml);
    const size_t zero = xml.find('\0');
    if (zero != std::string_view::npos) return corrupt("line " + out.line(zero) + ": a byte of value 0");
    const auto result = out.document_->load_buffer(xml.data(), xml.size(), kXmlParts, pugi::encoding_utf8);
    if (!result) {
      return corrupt("line " + out.line(static_cast<size_t>(std::max<ptrdiff_t>(result.offset, 0))) + ": " +
                     result.description());
    }
    return out;
  }

  /// The one element on top.
  Result<pugi::xml_node> top(const char* name) const {
    pugi::xml_node found;
    for (const pugi::xml_node node : document_->children()) {
      if (found || node.type() != pugi::node_element || node.name() != std::string_view(name)) {
        return invalid(node, std::string("one <") + name + "> element is expected, and nothing beside it");
      }
      found = node;
    }
    if (!found) return corrupt(std::string("there is no <") + name + "> element");
    return found;
  }

  Status invalid(pugi::xml_node node, const std::string& what) const {
    return invalid_argument("line " + line(static_cast<size_t>(std::max<ptrdiff_t>(node.offset_debug(), 0))) +
                            ": " + what);
  }

 private:
  explicit SchemaXml(std::string_view xml) : xml_(xml), document_(std::make_unique<pugi::xml_document>()) {}
  std::string line(size_t offset) const {
    const auto end = xml_.begin() + static_cast<ptrdiff_t>(std::min(offset, xml_.size()));
    return std::to_string(1 + std::count(xml_.begin(), end, '\n'));
  }

  std::string_view xml_;
  std::unique_ptr<pugi::xml_document> document_;
};

bool is_schema_text(pugi::xml_node node) {
  return node.type() == pugi::node_pcdata || node.type() == pugi::node_cdata;
}

/// White space with a line break lays an XML file out, and is no text.
bool is_layout(std::string_view text) {
  return text.find_first_not_of(kXmlSpace) == std::string_view::npos &&
         text.find('\n') != std::string_view::npos;
}

std::string_view trim_xml_space(std::string_view text) {
  const size_t first = text.find_first_not_of(kXmlSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kXmlSpace) - first + 1);
}

/// Names become element names of prompts.
bool is_module_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxSchemaName || name == "prompt") return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

bool is_inner_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\\') != std::string::npos) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

class SchemaParser {
 public:
  SchemaParser(const SchemaXml& xml, const ReadSchemaFile& read) : xml_(xml), read_(read) {}

  Result<PromptSchema> schema() {
    ISTHMUS_ASSIGN_OR_RETURN(const pugi::xml_node top, xml_.top("schema"));
    PromptSchema out;
    ISTHMUS_RETURN_IF_ERROR(check_attributes(top, {"name", "role"}));
    out.name = top.attribute("name").value();
    if (!is_module_name(out.name)) return bad_name(top, out.name);
    const std::string_view role = top.attribute("role").value();
    if (role == "system") {
      out.role = SchemaRole::kSystem;
    } else if (role == "user") {
      out.role = SchemaRole::kUser;
    } else if (top.attribute("role")) {
      return xml_.invalid(top, "role is \"system\" or \"user\", or left out");
    }
    out.root.kind = SchemaNode::Kind::kModule;
    ISTHMUS_RETURN_IF_ERROR(children(top, 0, out.root));
    return out;
  }

 private:
  Status bad_name(pugi::xml_node node, const std::string& name) const {
    return xml_.invalid(
        node, "'" + name + "' is no name: letters, digits, '-', '_' and '.', a letter first, at most " +
                  std::to_string(kMaxSchemaName) + ", not \"prompt\"");
  }

  Status check_attributes(pugi::xml_node node, std::initializer_list<std::string_view> known) const {
    std::set<std::string_view> seen;
    for (const pugi::xml_attribute attribute : node.attributes()) {
      if (std::find(known.begin(), known.end(), attribute.name()) == known.end()) {
        return xml_.invalid(node,
                            std::string("<") + node.name() + "> has no attribute '" + attribute.name() + "'");
      }
      if (!seen.insert(attribute.name()).second) {
        return xml_.invalid(node, std::string("attribute '") + attribute.name() + "' stands there twice");
      }
    }
    return ok_status();
  }

  Status count(pugi::xml_node node, size_t depth) {
    if (depth > kMaxSchemaDepth) {
      return resource_exhausted(
          xml_.invalid(node, "nested deeper than " + std::to_string(kMaxSchemaDepth)).message());
    }
    if (++nodes_ > kMaxSchemaNodes) {
      return resource_exhausted("a schema of more than " + std::to_string(kMaxSchemaNodes) + " parts");
    }
    return ok_status();
  }

  /// Text behind text becomes one.
  Status add_text(pugi::xml_node node, std::string_view text, SchemaNode& out) {
    if (is_layout(text) || text.empty()) return ok_status();
    bytes_ += text.size();
    if (bytes_ > kMaxSchemaBytes) {
      return resource_exhausted("a schema with more than " + std::to_string(kMaxSchemaBytes) +
                                " bytes of text");
    }
    if (out.children.empty() || out.children.back().kind != SchemaNode::Kind::kText) {
      ISTHMUS_RETURN_IF_ERROR(count(node, 0));
      out.children.push_back({SchemaNode::Kind::kText, "", "", 0, {}});
    }
    out.children.back().text += text;
    return ok_status();
  }

  /// What stands inside <schema> or <module>.
  Status children(pugi::xml_node node, size_t depth, SchemaNode& out) {
    std::set<std::string> names;
    for (const pugi::xml_node child : node.children()) {
      if (is_schema_text(child)) {
        ISTHMUS_RETURN_IF_ERROR(add_text(child, child.value(), out));
        continue;
      }
      const std::string_view kind = child.name();
      SchemaNode made;
      if (kind == "module") {
        ISTHMUS_RETURN_IF_ERROR(module(child, depth + 1, names, made));
      } else if (kind == "union") {
        ISTHMUS_RETURN_IF_ERROR(members(child, depth + 1, names, made));
      } else if (kind == "parameter" && depth > 0) {
        ISTHMUS_RETURN_IF_ERROR(parameter(child, depth + 1, names, made));
      } else if (kind == "parameter") {
        return xml_.invalid(child, "a parameter belongs into a module");
      } else {
        return xml_.invalid(child, "<" + std::string(kind) + "> is no part of a schema");
      }
      out.children.push_back(std::move(made));
    }
    return ok_status();
  }

  Status take_name(pugi::xml_node node, std::set<std::string>& names, SchemaNode& out) const {
    out.name = node.attribute("name").value();
    if (!is_module_name(out.name)) return bad_name(node, out.name);
    if (!names.insert(out.name).second) {
      return xml_.invalid(node, "'" + out.name + "' is a name that something beside it has already");
    }
    return ok_status();
  }

  Status module(pugi::xml_node node, size_t depth, std::set<std::string>& names, SchemaNode& out) {
    ISTHMUS_RETURN_IF_ERROR(count(node, depth));
    ISTHMUS_RETURN_IF_ERROR(check_attributes(node, {"name", "src"}));
    out.kind = SchemaNode::Kind::kModule;
    ISTHMUS_RETURN_IF_ERROR(take_name(node, names, out));
    if (!node.attribute("src")) return children(node, depth, out);
    const std::string path = node.attribute("src").value();
    if (node.first_child()) return xml_.invalid(node, "a module has a src or text of its own, not both");
    if (!is_inner_path(path)) {
      return xml_.invalid(node, "src=\"" + path + "\" is no path inside the schema's folder");
    }
    auto text = read_(path);
    if (!text.ok()) return text.status().with_context(path);
    return add_text(node, *text, out);
  }

  Status members(pugi::xml_node node, size_t depth, std::set<std::string>& names, SchemaNode& out) {
    ISTHMUS_RETURN_IF_ERROR(count(node, depth));
    ISTHMUS_RETURN_IF_ERROR(check_attributes(node, {}));
    out.kind = SchemaNode::Kind::kUnion;
    for (const pugi::xml_node child : node.children()) {
      if (is_schema_text(child) && is_layout(child.value())) continue;
      if (is_schema_text(child) || child.name() != std::string_view("module")) {
        return xml_.invalid(child, "a union holds modules alone");
      }
      SchemaNode member;
      ISTHMUS_RETURN_IF_ERROR(module(child, depth + 1, names, member));
      out.children.push_back(std::move(member));
    }
    if (out.children.empty()) return xml_.invalid(node, "a union without modules");
    return ok_status();
  }

  Status parameter(pugi::xml_node node, size_t depth, std::set<std::string>& names, SchemaNode& out) {
    ISTHMUS_RETURN_IF_ERROR(count(node, depth));
    ISTHMUS_RETURN_IF_ERROR(check_attributes(node, {"name", "length"}));
    out.kind = SchemaNode::Kind::kParameter;
    ISTHMUS_RETURN_IF_ERROR(take_name(node, names, out));
    const std::string text = node.attribute("length").value();
    const bool digits =
        !text.empty() && text.size() <= 6 && text.find_first_not_of("0123456789") == std::string::npos;
    out.length = digits ? std::stoul(text) : 0;
    if (out.length == 0 || out.length > kMaxParameterTokens) {
      return xml_.invalid(node, "the length of a parameter is 1 to " + std::to_string(kMaxParameterTokens) +
                                    " tokens, not '" + text + "'");
    }
    if (node.first_child()) return xml_.invalid(node, "a parameter holds nothing");
    return ok_status();
  }

  const SchemaXml& xml_;
  const ReadSchemaFile& read_;
  size_t nodes_ = 0;
  size_t bytes_ = 0;
};

class SchemaPromptParser {
 public:
  explicit SchemaPromptParser(const SchemaXml& xml) : xml_(xml) {}

  Result<SchemaPrompt> prompt() {
    ISTHMUS_ASSIGN_OR_RETURN(const pugi::xml_node top, xml_.top("prompt"));
    SchemaPrompt out;
    for (const pugi::xml_attribute attribute : top.attributes()) {
      if (attribute.name() != std::string_view("schema")) {
        return xml_.invalid(top, std::string("<prompt> has no attribute '") + attribute.name() + "'");
      }
      out.schema = attribute.value();
    }
    std::string text;
    for (const pugi::xml_node child : top.children()) {
      if (is_schema_text(child)) {
        text += child.value();
      } else if (trim_xml_space(text).empty()) {
        text.clear();
        ISTHMUS_RETURN_IF_ERROR(use(child, 1, out.uses));
      } else {
        return xml_.invalid(child,
                            std::string("<") + child.name() + "> stands behind text: modules come first");
      }
    }
    out.text = trim_xml_space(text);
    return out;
  }

 private:
  Status use(pugi::xml_node node, size_t depth, std::vector<ModuleUse>& out) {
    if (depth > kMaxSchemaDepth || ++uses_ > kMaxSchemaNodes) {
      return resource_exhausted("a prompt of more than " + std::to_string(kMaxSchemaNodes) +
                                " modules or nested deeper than " + std::to_string(kMaxSchemaDepth));
    }
    ModuleUse made;
    made.name = node.name();
    for (const pugi::xml_attribute attribute : node.attributes()) {
      made.arguments.emplace_back(attribute.name(), attribute.value());
    }
    for (const pugi::xml_node child : node.children()) {
      if (is_schema_text(child) && trim_xml_space(child.value()).empty()) continue;
      if (is_schema_text(child))
        return xml_.invalid(child, "text inside <" + made.name + ">: it belongs behind all modules");
      ISTHMUS_RETURN_IF_ERROR(use(child, depth + 1, made.inner));
    }
    out.push_back(std::move(made));
    return ok_status();
  }

  const SchemaXml& xml_;
  size_t uses_ = 0;
};

}  // namespace

Result<PromptSchema> PromptSchema::parse(std::string_view xml, const ReadSchemaFile& read) {
  const auto document = SchemaXml::load(xml);
  if (!document.ok()) return document.status().with_context("schema");
  auto out = SchemaParser(*document, read).schema();
  if (!out.ok()) return out.status().with_context("schema");
  return out;
}

Result<SchemaPrompt> SchemaPrompt::parse(std::string_view xml) {
  if (!trim_xml_space(xml).starts_with("<prompt"))
    return SchemaPrompt{{}, {}, std::string(trim_xml_space(xml))};
  const auto document = SchemaXml::load(xml);
  if (!document.ok()) return document.status().with_context("prompt");
  auto out = SchemaPromptParser(*document).prompt();
  if (!out.ok()) return out.status().with_context("prompt");
  return out;
}

}  // namespace isthmus
