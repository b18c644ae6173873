// Filters that take or give sequences.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "text/jinja_filters.h"
#include "text/jinja_parser.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

Value generator(std::vector<Value> items) { return Value::list(std::move(items), Kind::kGenerator); }

/// Text compares without case unless asked.
Value fold_case(Interp& in, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  in.budget().charge_bytes(value.str().size());
  return Value::string(lower(value.str()));
}

using Keyed = std::pair<Value, Value>;  // sort key, item

void sort_keyed(Interp& in, std::vector<Keyed>& items, bool reverse) {
  const auto before = [&in, reverse](const Keyed& a, const Keyed& b) {
    return reverse ? less(in.budget(), b.first, a.first) : less(in.budget(), a.first, b.first);
  };
  std::stable_sort(items.begin(), items.end(), before);
}

Value f_length(Interp&, const Value& input, const Args& args) {
  bind(args, "length", {});
  return Value::integer(length(input));
}

Value f_list(Interp& in, const Value& input, const Args& args) {
  bind(args, "list", {});
  return Value::list(iterate(in.budget(), input));
}

Value f_first(Interp& in, const Value& input, const Args& args) {
  bind(args, "first", {});
  if (input.is(Kind::kGenerator)) {
    ListData& data = input.generator_data();
    if (data.next < data.items.size()) return data.items[data.next++];
  } else {
    std::vector<Value> items = iterate(in.budget(), input);
    if (!items.empty()) return items[0];
  }
  return Value::undefined("no first item, sequence was empty");
}

Value f_last(Interp& in, const Value& input, const Args& args) {
  bind(args, "last", {});
  if (input.is_undefined()) fail_value(input.why());
  if (input.is(Kind::kGenerator)) fail_value("'generator' object is not reversible");
  const std::vector<Value> items = iterate(in.budget(), input);
  return items.empty() ? Value::undefined("no last item, sequence was empty") : items.back();
}

Value f_reverse(Interp& in, const Value& input, const Args& args) {
  bind(args, "reverse", {});
  if (input.is_undefined()) fail_value(input.why());
  std::vector<Value> items = iterate(in.budget(), input);
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) {
    return Value::list(std::move(items), input.is(Kind::kGenerator) ? Kind::kList : Kind::kGenerator);
  }
  std::string out;
  for (const Value& item : items) out += item.str();
  return Value::string(std::move(out));
}

Value f_join(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "join", {"d", "attribute"});
  const std::string separator = bound[0] != nullptr ? to_str(in.budget(), *bound[0]) : "";
  Sink sink(in.budget());
  bool first = true;
  for (const Value& item : iterate(in.budget(), input)) {
    if (!first) sink.put(separator);
    first = false;
    write_str(sink, given(bound[1]) ? attribute_of(in, item, *bound[1]) : item);
  }
  return Value::string(sink.take());
}

Value f_items(Interp& in, const Value& input, const Args& args) {
  bind(args, "items", {});
  if (input.is_undefined()) return generator({});
  if (!input.is(Kind::kDict)) fail_value("can only get item pairs from a mapping");
  return generator(call_method(in, input, "items", {}).list_data().items);
}

Value f_dictsort(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] != nullptr ? to_str(in.budget(), *bound[1]) : "key";
  if (by != "key" && by != "value") fail_value("you can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) fail_value(input.why());
  if (!input.is(Kind::kDict)) fail_value("dictsort needs a mapping");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict_data().entries) {
    in.budget().charge(2);
    keyed.emplace_back(fold_case(in, by == "key" ? key : value, flag(bound[0])),
                       Value::list({key, value}, Kind::kTuple));
  }
  sort_keyed(in, keyed, flag(bound[2]));
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& item : keyed) out.push_back(std::move(item.second));
  return Value::list(std::move(out));
}

/// The sort key of jinja2's sort: one attribute, or several separated by commas.
Value sort_key(Interp& in, const Value& item, const Value* attribute, bool case_sensitive) {
  if (!given(attribute)) return fold_case(in, item, case_sensitive);
  if (!attribute->is_string() || attribute->str().find(',') == std::string::npos) {
    return fold_case(in, attribute_of(in, item, *attribute), case_sensitive);
  }
  std::vector<Value> keys;
  for (std::string_view part : split(in.budget(), attribute->str(), ",", -1, false)) {
    keys.push_back(fold_case(in, attribute_of(in, item, Value::string(std::string(part))), case_sensitive));
  }
  return Value::list(std::move(keys));
}

Value f_sort(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(in.budget(), input)) {
    keyed.emplace_back(sort_key(in, item, bound[2], flag(bound[1])), item);
  }
  sort_keyed(in, keyed, flag(bound[0]));
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& item : keyed) out.push_back(std::move(item.second));
  return Value::list(std::move(out));
}

Value f_unique(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "unique", {"case_sensitive", "attribute"});
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : iterate(in.budget(), input)) {
    const Value key = given(bound[1]) ? attribute_of(in, item, *bound[1]) : item;
    if (seen.insert(hash_key(in.budget(), fold_case(in, key, flag(bound[0])))).second) out.push_back(item);
  }
  return generator(std::move(out));
}

Value extreme(Interp& in, const Value& input, const Args& args, bool largest) {
  const auto bound = bind(args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  std::optional<Keyed> best;
  for (const Value& item : iterate(in.budget(), input)) {
    const Value raw = given(bound[1]) ? attribute_of(in, item, *bound[1]) : item;
    Keyed candidate(fold_case(in, raw, flag(bound[0])), item);
    if (best) {
      const bool better = largest ? less(in.budget(), best->first, candidate.first)
                                  : less(in.budget(), candidate.first, best->first);
      if (!better) continue;
    }
    best = std::move(candidate);
  }
  return best ? best->second : Value::undefined("no aggregated item, sequence was empty");
}

Value f_min(Interp& in, const Value& input, const Args& args) { return extreme(in, input, args, false); }
Value f_max(Interp& in, const Value& input, const Args& args) { return extreme(in, input, args, true); }

Value f_sum(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "sum", {"attribute", "start"});
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) fail_value("sum() can't sum strings");
  for (const Value& item : iterate(in.budget(), input)) {
    total = binary(in, Op::kAdd, total, given(bound[0]) ? attribute_of(in, item, *bound[0]) : item);
  }
  return total;
}

Value f_batch(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t count = to_index(*bound[0], "linecount");
  std::vector<Value> out;
  std::vector<Value> row;
  for (const Value& item : iterate(in.budget(), input)) {
    if (static_cast<int64_t>(row.size()) == count) {
      out.push_back(Value::list(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (given(bound[1])) {
      while (static_cast<int64_t>(row.size()) < count) {
        in.budget().charge();
        row.push_back(*bound[1]);
      }
    }
    out.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(out));
}

Value f_slice(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = to_index(*bound[0], "slices");
  const std::vector<Value> items = iterate(in.budget(), input);
  if (slices == 0) fail_value("integer division or modulo by zero");
  if (slices < 0) return generator({});
  in.budget().charge(static_cast<uint64_t>(slices));
  const auto size = static_cast<int64_t>(items.size());
  const int64_t each = size / slices;
  const int64_t longer = size % slices;
  std::vector<Value> out;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (given(bound[1]) && i >= longer) part.push_back(*bound[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return generator(std::move(out));
}

Value with_default(const Value& value, const Value* otherwise) {
  return value.is_undefined() && given(otherwise) ? *otherwise : value;
}

Value f_groupby(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const auto raw_key = [&](const Value& item) {
    return with_default(attribute_of(in, item, *bound[0]), bound[1]);
  };
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(in.budget(), input)) {
    keyed.emplace_back(fold_case(in, raw_key(item), flag(bound[2])), item);
  }
  sort_keyed(in, keyed, false);
  std::vector<Value> out;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> group;
    size_t j = i;
    for (; j < keyed.size() && equal(in.budget(), keyed[i].first, keyed[j].first); ++j) {
      group.push_back(keyed[j].second);
    }
    if (j == i) group.push_back(keyed[j++].second);  // a key unequal to itself: NaN
    // The group is named by its first member's own key, not the folded one.
    Value tuple = Value::list({raw_key(group[0]), Value::list(std::move(group))}, Kind::kTuple);
    tuple.generator_data().is_group = true;
    out.push_back(std::move(tuple));
    i = j;
  }
  return Value::list(std::move(out));
}

/// The arguments after the first `n` positional ones: those of the inner filter or test.
Args rest_of(const Args& args, size_t n) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(n), args.positional.end());
  rest.named = args.named;
  return rest;
}

Value f_map(Interp& in, const Value& input, const Args& args) {
  if (!truthy(input)) return generator({});
  std::vector<Value> out;
  const std::vector<Value> items = iterate(in.budget(), input);
  const bool by_attribute = args.positional.empty() && !args.named.empty();
  if (by_attribute) {
    const auto bound = bind(args, "map", {"attribute", "default"}, 1);
    for (const Value& item : items) out.push_back(with_default(attribute_of(in, item, *bound[0]), bound[1]));
    return generator(std::move(out));
  }
  if (args.positional.empty()) fail_value("map requires a filter argument");
  const std::string name = to_str(in.budget(), args.positional[0]);
  const Args rest = rest_of(args, 1);
  for (const Value& item : items) out.push_back(call_filter(in, name, item, rest));
  return generator(std::move(out));
}

/// select, reject, selectattr and rejectattr: keeps the items whose test gives `keep`.
Value select(Interp& in, const Value& input, const Args& args, bool keep, bool by_attribute) {
  if (!truthy(input)) return generator({});
  const size_t offset = by_attribute ? 1 : 0;
  if (args.positional.size() < offset) fail_value("missing parameter for attribute name");
  const bool has_test = args.positional.size() > offset;
  const std::string name = has_test ? to_str(in.budget(), args.positional[offset]) : "";
  const Args rest = has_test ? rest_of(args, offset + 1) : Args{};
  std::vector<Value> out;
  for (const Value& item : iterate(in.budget(), input)) {
    const Value subject = by_attribute ? attribute_of(in, item, args.positional[0]) : item;
    const bool passes = has_test ? call_test(in, name, subject, rest) : truthy(subject);
    if (passes == keep) out.push_back(item);
  }
  return generator(std::move(out));
}

Value f_select(Interp& in, const Value& v, const Args& args) { return select(in, v, args, true, false); }
Value f_reject(Interp& in, const Value& v, const Args& args) { return select(in, v, args, false, false); }
Value f_selectattr(Interp& in, const Value& v, const Args& args) { return select(in, v, args, true, true); }
Value f_rejectattr(Interp& in, const Value& v, const Args& args) { return select(in, v, args, false, true); }

constexpr std::array kListFilters = {
    Filter{"batch", f_batch},     Filter{"count", f_length},    Filter{"dictsort", f_dictsort},
    Filter{"first", f_first},     Filter{"groupby", f_groupby}, Filter{"items", f_items},
    Filter{"join", f_join},       Filter{"last", f_last},       Filter{"length", f_length},
    Filter{"list", f_list},       Filter{"map", f_map},         Filter{"max", f_max},
    Filter{"min", f_min},         Filter{"reject", f_reject},   Filter{"rejectattr", f_rejectattr},
    Filter{"reverse", f_reverse}, Filter{"select", f_select},   Filter{"selectattr", f_selectattr},
    Filter{"slice", f_slice},     Filter{"sort", f_sort},       Filter{"sum", f_sum},
    Filter{"unique", f_unique},
};

}  // namespace

const Filter* find_list_filter(std::string_view name) {
  for (const Filter& filter : kListFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

Value attribute_of(Interp& in, const Value& item, const Value& attribute) {
  in.budget().charge();
  if (!attribute.is_string()) return get_item(in.budget(), item, attribute);
  Value value = item;
  for (std::string_view part : split(in.budget(), attribute.str(), ".", -1, false)) {
    const bool index =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::optional<int64_t> number = index ? parse_int(part, 10) : std::nullopt;
    value = get_item(in.budget(), value, number ? Value::integer(*number) : Value::string(std::string(part)));
  }
  return value;
}

}  // namespace isthmus::jinja
