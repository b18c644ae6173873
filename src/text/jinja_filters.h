// The filter tables: one function per filter, grouped by file. Used by call_filter() only.
#pragma once

#include <string_view>

#include "text/jinja_interp.h"

namespace isthmus::jinja {

struct Filter {
  std::string_view name;
  Value (*run)(Interp& in, const Value& input, const Args& args);
};

/// Filters of jinja_filters_list.cc: those that take or give sequences. Null when there is none of that name.
const Filter* find_list_filter(std::string_view name);

/// Whether an argument is true; `otherwise` when it was left out.
inline bool flag(const Value* argument, bool otherwise = false) {
  return argument == nullptr ? otherwise : truthy(*argument);
}

/// Whether an argument was given and is not None.
inline bool given(const Value* argument) { return argument != nullptr && !argument->is(Kind::kNone); }

/// Text of any value, as Python's str(); Markup stays Markup.
Value soft_str(Interp& in, const Value& value);

/// The items' `attribute` ("a.b.0", or an index), as jinja2's make_attrgetter.
Value attribute_of(Interp& in, const Value& item, const Value& attribute);

}  // namespace isthmus::jinja
