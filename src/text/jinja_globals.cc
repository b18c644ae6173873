// The global functions: those of jinja2 and the two that transformers adds.
#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <limits>

#include "text/jinja_interp.h"

namespace isthmus::jinja {
namespace {

constexpr std::array kGlobals = {"range",  "dict",   "namespace",       "cycler",
                                 "joiner", "lipsum", "raise_exception", "strftime_now"};
constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox

Value make_range(const Args& args) {
  if (!args.named.empty()) fail_value("range() takes no keyword arguments");
  const size_t n = args.positional.size();
  if (n < 1 || n > 3) fail_value("range expected 1 to 3 arguments");
  int64_t v[3] = {0, 0, 1};
  if (n == 1) {
    v[1] = to_index(args.positional[0], "range()");
  } else {
    for (size_t i = 0; i < n; ++i) v[i] = to_index(args.positional[i], "range()");
  }
  const int64_t step = v[2];
  if (step == 0) fail_value("range() arg 3 must not be zero");
  const bool empty = step > 0 ? v[0] >= v[1] : v[0] <= v[1];
  if (empty) return Value::range({v[0], step == std::numeric_limits<int64_t>::min() ? -1 : step, 0, v[1]});
  const uint64_t span = step > 0 ? static_cast<uint64_t>(v[1]) - static_cast<uint64_t>(v[0])
                                 : static_cast<uint64_t>(v[0]) - static_cast<uint64_t>(v[1]);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : ~static_cast<uint64_t>(step) + 1;
  const uint64_t size = (span - 1) / stride + 1;
  if (size > static_cast<uint64_t>(kMaxRange)) {
    fail(Code::kResourceExhausted,
         "range too big: the sandbox allows " + std::to_string(kMaxRange) + " items");
  }
  return Value::range({v[0], step, static_cast<int64_t>(size), v[1]});
}

/// dict(mapping or pairs, **named): also what namespace() accepts.
std::shared_ptr<DictData> make_dict(Interp& in, const Args& args, std::string_view what) {
  auto dict = std::make_shared<DictData>();
  Budget& budget = in.budget();
  if (args.positional.size() > 1) fail_value(std::string(what) + " expected at most 1 argument");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict_data().entries) dict->set(budget, key, value);
    } else {
      for (const Value& item : iterate(budget, from)) {
        const std::vector<Value> pair = iterate(budget, item);
        if (pair.size() != 2) fail_value("dictionary update sequence elements must have length 2");
        dict->set(budget, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) dict->set(budget, Value::string(name), value);
  return dict;
}

Value make_namespace(Interp& in, const Args& args) {
  const auto dict = make_dict(in, args, "namespace");
  Namespace* ns = in.new_namespace();
  for (const auto& [key, value] : dict->entries) {
    if (!key.is_string()) fail_value("attribute names of a namespace must be strings");
    ns->attributes.emplace_back(key.str(), value);
  }
  return Value::of(ns);
}

Value make_helper(const Args& args, bool joiner) {
  auto helper = std::make_shared<Helper>();
  helper->is_joiner = joiner;
  if (joiner) {
    const auto bound = bind(args, "joiner", {"sep"});
    helper->items.push_back(bound[0] != nullptr ? *bound[0] : Value::string(", "));
  } else {
    if (!args.named.empty()) fail_value("cycler() takes no keyword arguments");
    helper->items = args.positional;
    if (helper->items.empty()) fail_value("at least one item has to be provided");
  }
  return Value::of(std::move(helper));
}

Value strftime_now(Interp& in, const Args& args) {
  const auto bound = bind(args, "strftime_now", {"format"}, 1);
  if (!bound[0]->is_string()) fail_value("strftime() argument 1 must be str");
  // A letter in front keeps an empty result apart from one that does not fit.
  const std::string format = cat("x", bound[0]->str());
  if (format.find('\0') != std::string::npos) fail_value("embedded null character in a time format");
  const auto now = static_cast<std::time_t>(in.now());
  std::tm parts{};
  if (gmtime_r(&now, &parts) == nullptr) fail_value("the time is out of range");
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
  if (size == 0) fail(Code::kResourceExhausted, "the formatted time is longer than 4 KiB");
  return Value::string(std::string(buffer + 1, size - 1));
}

}  // namespace

bool is_global(std::string_view name) {
  return std::find(kGlobals.begin(), kGlobals.end(), name) != kGlobals.end();
}

Value call_global(Interp& in, const std::string& name, const Args& args) {
  in.budget().charge(2);
  if (name == "range") return make_range(args);
  if (name == "dict") return Value::dict(make_dict(in, args, "dict"));
  if (name == "namespace") return make_namespace(in, args);
  if (name == "cycler") return make_helper(args, false);
  if (name == "joiner") return make_helper(args, true);
  if (name == "strftime_now") return strftime_now(in, args);
  if (name == "raise_exception") {
    const auto bound = bind(args, "raise_exception", {"message"}, 1);
    fail_value(to_str(in.budget(), *bound[0]));
  }
  fail(Code::kUnsupported, "the function '" + name + "' is not available in chat templates");
}

}  // namespace isthmus::jinja
