#include "engine/schema_layout.h"

#include <algorithm>

#include "base/suggest.h"

namespace isthmus {
namespace {

constexpr std::string_view kViewNames[] = {"isolated", "anchored", "whole"};

const ModuleUse* find_use(const std::vector<ModuleUse>& uses, const std::string& name) {
  const auto found =
      std::find_if(uses.begin(), uses.end(), [&](const ModuleUse& use) { return use.name == name; });
  return found == uses.end() ? nullptr : &*found;
}

}  // namespace

std::string_view module_view_name(ModuleView view) { return kViewNames[static_cast<size_t>(view)]; }

Result<ModuleView> parse_module_view(std::string_view name) {
  for (size_t i = 0; i < std::size(kViewNames); ++i) {
    if (kViewNames[i] == name) return static_cast<ModuleView>(i);
  }
  return invalid_argument("'" + std::string(name) +
                          "' is no way to read modules: isolated, anchored or whole");
}

std::string_view module_places_name(ModulePlaces places) {
  return places == ModulePlaces::kSchema ? "schema" : "packed";
}

Result<ModulePlaces> parse_module_places(std::string_view name) {
  for (const ModulePlaces places : {ModulePlaces::kSchema, ModulePlaces::kPacked}) {
    if (module_places_name(places) == name) return places;
  }
  return invalid_argument("'" + std::string(name) + "' is no way to place modules: schema or packed");
}

class SchemaLayout::Builder {
 public:
  Builder(SchemaLayout& out, const Encode& encode) : out_(out), encode_(encode) {}

  /// Adds the children of a module from `position` on; returns where they end.
  size_t add_children(const SchemaNode& node, size_t module, size_t position) {
    for (const SchemaNode& child : node.children) {
      switch (child.kind) {
        case SchemaNode::Kind::kText:
          position = add_run(encode_(child.text), module, position);
          break;
        case SchemaNode::Kind::kParameter:
          add_item(module, ItemKind::kParameter, out_.parameters_.size());
          out_.parameters_.push_back({child.name, position, child.length});
          position += child.length;
          break;
        case SchemaNode::Kind::kModule:
          add_item(module, ItemKind::kModule, out_.modules_.size());
          position = add_module(child, module, false, position);
          break;
        case SchemaNode::Kind::kUnion:
          position = add_union(child, module, position);
          break;
      }
    }
    return position;
  }

  /// Text right behind text of the same module joins its run.
  size_t add_run(std::vector<TokenId> tokens, size_t module, size_t position) {
    if (tokens.empty()) return position;
    const size_t end = position + tokens.size();
    auto& items = out_.modules_[module].items;
    if (!items.empty() && items.back().kind == ItemKind::kRun) {
      Run& run = out_.runs_[items.back().index];
      run.tokens.insert(run.tokens.end(), tokens.begin(), tokens.end());
    } else {
      add_item(module, ItemKind::kRun, out_.runs_.size());
      out_.runs_.push_back({std::move(tokens), position, module});
    }
    return end;
  }

 private:
  void add_item(size_t module, ItemKind kind, size_t index) {
    out_.modules_[module].items.push_back({kind, index});
  }

  size_t add_module(const SchemaNode& node, size_t parent, bool in_union, size_t position) {
    const size_t index = out_.modules_.size();
    out_.modules_.push_back({node.name, parent, in_union, {}});
    return add_children(node, index, position);
  }

  size_t add_union(const SchemaNode& node, size_t parent, size_t position) {
    add_item(parent, ItemKind::kUnion, out_.unions_.size());
    const size_t index = out_.unions_.size();
    out_.unions_.emplace_back();
    size_t end = position;
    for (const SchemaNode& member : node.children) {
      out_.unions_[index].push_back(out_.modules_.size());
      end = std::max(end, add_module(member, parent, true, position));
    }
    return end;
  }

  SchemaLayout& out_;
  const Encode& encode_;
};

Result<SchemaLayout> SchemaLayout::create(const PromptSchema& schema, std::vector<TokenId> lead,
                                          const Encode& encode, size_t most_positions) {
  SchemaLayout out;
  out.name_ = schema.name;
  out.modules_.emplace_back();
  Builder builder(out, encode);
  const size_t begin = builder.add_run(std::move(lead), 0, 0);
  out.length_ = builder.add_children(schema.root, 0, begin);
  if (out.length_ > most_positions) {
    return resource_exhausted("the schema '" + schema.name + "' takes " + std::to_string(out.length_) +
                              " positions, the model was trained for " + std::to_string(most_positions));
  }
  return out;
}

size_t SchemaLayout::run_tokens() const {
  size_t n = 0;
  for (const Run& run : runs_) n += run.tokens.size();
  return n;
}

/// Whether `module` is `outer` or stands in it.
bool SchemaLayout::inside(size_t module, size_t outer) const {
  while (module != outer && module != kNone) module = modules_[module].parent;
  return module == outer;
}

std::vector<size_t> SchemaLayout::seen(size_t run, ModuleView view) const {
  std::vector<size_t> out;
  const size_t module = runs_[run].module;
  for (size_t other = 0; other < run; ++other) {
    const size_t its = runs_[other].module;
    bool sees = its == module;
    if (view == ModuleView::kAnchored) sees = inside(module, its);
    if (view == ModuleView::kWhole) {
      sees = true;
      for (size_t m = its; m != kNone; m = modules_[m].parent)
        sees = sees && (!modules_[m].in_union || inside(module, m));
    }
    if (sees) out.push_back(other);
  }
  return out;
}

struct SchemaLayout::Choice {
  const Encode& encode;
  std::vector<Part> parts;
};

Result<std::vector<SchemaLayout::Part>> SchemaLayout::choose(const SchemaPrompt& prompt,
                                                             const Encode& encode) const {
  if (!prompt.schema.empty() && prompt.schema != name_) {
    return invalid_argument("the prompt is for the schema '" + prompt.schema + "', not for '" + name_ + "'");
  }
  Choice choice{encode, {}};
  ISTHMUS_RETURN_IF_ERROR(take_module(0, prompt.uses, {}, choice));
  return std::move(choice.parts);
}

/// Modules directly inside one, members of unions included.
std::vector<size_t> SchemaLayout::inner_modules(size_t module) const {
  std::vector<size_t> out;
  for (const Item& item : modules_[module].items) {
    if (item.kind == ItemKind::kModule) out.push_back(item.index);
    if (item.kind == ItemKind::kUnion)
      out.insert(out.end(), unions_[item.index].begin(), unions_[item.index].end());
  }
  return out;
}

Status SchemaLayout::check_uses(size_t module, const std::vector<ModuleUse>& uses) const {
  std::vector<std::string> known;
  for (const size_t inner : inner_modules(module)) known.push_back(modules_[inner].name);
  const std::string where =
      module == 0 ? "the schema '" + name_ + "'" : "the module '" + modules_[module].name + "'";
  for (const ModuleUse& use : uses) {
    if (std::find(known.begin(), known.end(), use.name) == known.end()) {
      return invalid_argument(where + " has no module '" + use.name + "'" + did_you_mean(use.name, known));
    }
    if (find_use(uses, use.name) != &use)
      return invalid_argument("the module '" + use.name + "' is taken twice");
  }
  for (const Item& item : modules_[module].items) {
    if (item.kind != ItemKind::kUnion) continue;
    const ModuleUse* taken = nullptr;
    for (const size_t member : unions_[item.index]) {
      const ModuleUse* use = find_use(uses, modules_[member].name);
      if (use == nullptr) continue;
      if (taken != nullptr) {
        return invalid_argument("of the modules '" + taken->name + "' and '" + use->name +
                                "' only one can be taken: they are a union");
      }
      taken = use;
    }
  }
  return ok_status();
}

Status SchemaLayout::check_arguments(
    const Module& module, const std::vector<std::pair<std::string, std::string>>& arguments) const {
  std::vector<std::string> known;
  for (const Item& item : module.items) {
    if (item.kind == ItemKind::kParameter) known.push_back(parameters_[item.index].name);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].first;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid_argument("the module '" + module.name + "' has no parameter '" + name + "'" +
                              did_you_mean(name, known));
    }
    for (size_t j = 0; j < i; ++j) {
      if (arguments[j].first == name) return invalid_argument("the parameter '" + name + "' is given twice");
    }
  }
  return ok_status();
}

Status SchemaLayout::take_module(size_t module, const std::vector<ModuleUse>& uses,
                                 const std::vector<std::pair<std::string, std::string>>& arguments,
                                 Choice& choice) const {
  ISTHMUS_RETURN_IF_ERROR(check_uses(module, uses));
  ISTHMUS_RETURN_IF_ERROR(check_arguments(modules_[module], arguments));
  for (const Item& item : modules_[module].items) {
    switch (item.kind) {
      case ItemKind::kRun:
        choice.parts.push_back({item.index, {}, runs_[item.index].position});
        break;
      case ItemKind::kParameter:
        ISTHMUS_RETURN_IF_ERROR(take_parameter(parameters_[item.index], arguments, choice));
        break;
      case ItemKind::kModule:
        ISTHMUS_RETURN_IF_ERROR(take_inner(item.index, find_use(uses, modules_[item.index].name), choice));
        break;
      case ItemKind::kUnion:
        for (const size_t member : unions_[item.index]) {
          ISTHMUS_RETURN_IF_ERROR(take_inner(member, find_use(uses, modules_[member].name), choice));
        }
        break;
    }
  }
  return ok_status();
}

Status SchemaLayout::take_inner(size_t module, const ModuleUse* use, Choice& choice) const {
  return use == nullptr ? ok_status() : take_module(module, use->inner, use->arguments, choice);
}

Status SchemaLayout::take_parameter(const Parameter& parameter,
                                    const std::vector<std::pair<std::string, std::string>>& arguments,
                                    Choice& choice) const {
  const auto given = std::find_if(arguments.begin(), arguments.end(),
                                  [&](const auto& a) { return a.first == parameter.name; });
  if (given == arguments.end()) return ok_status();
  std::vector<TokenId> tokens = choice.encode(given->second);
  if (tokens.size() > parameter.length) {
    return resource_exhausted("the parameter '" + parameter.name + "' has room for " +
                              std::to_string(parameter.length) + " tokens, what is given has " +
                              std::to_string(tokens.size()));
  }
  if (!tokens.empty()) choice.parts.push_back({kNone, std::move(tokens), parameter.position});
  return ok_status();
}

}  // namespace isthmus
