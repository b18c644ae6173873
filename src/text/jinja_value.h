// Values of the template language: plain data with Python's meaning, never a host object.
//
// A Value is small, cheap to copy and shares its contents. Strings, lists, tuples and dicts never change
// after they are made (the sandbox refuses every mutating method), so they can hold no cycle; each container
// knows its nesting depth, which is limited. Namespaces, loops and macros do change: the interpreter owns
// them for the length of one render and Values point to them. Errors are TemplateErrors. A Value is not
// shared between threads while a render runs, except for the constants of a parsed template, which only get
// read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_error.h"

namespace isthmus::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kKeys,  // dict.keys(), values() and items(): sized, not indexable
  kValues,
  kItems,
  kGenerator,  // what lazy filters return: read once
  kRange,
  kNamespace,
  kLoop,
  kHelper,  // cycler(), joiner()
  kCallable,
};

class Value;
struct Namespace;
struct LoopState;
struct Macro;
struct Callable;
struct Helper;
struct Scope;
struct DictData;

struct StringData {
  std::string bytes;
  size_t chars;
  bool markup;  // made by the escape or safe filter: adding to it escapes the other side
};

struct ListData;

struct RangeData {
  int64_t start;
  int64_t step;
  int64_t size;
  int64_t stop;  // as given: only printing shows it
};

class Value {
 public:
  Value() = default;  // undefined without a name

  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(std::string bytes, bool markup = false);
  /// kList, kTuple, kKeys, kValues, kItems or kGenerator.
  static Value list(std::vector<Value> items, Kind kind = Kind::kList);
  static Value list_of(std::shared_ptr<ListData> data, Kind kind);
  static Value dict(std::shared_ptr<DictData> data);
  static Value range(RangeData range);
  /// `why` is what any use of it beyond printing reports; `refused`: the sandbox forbids the attribute.
  static Value undefined(std::string why);
  static Value of(Namespace* ns);
  static Value of(LoopState* loop);
  static Value of(std::shared_ptr<Callable> callable);
  static Value of(std::shared_ptr<Helper> helper);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  /// A list, tuple, dict view or generator: has list_data().
  bool is_listlike() const {
    return kind_ >= Kind::kList && kind_ <= Kind::kGenerator && kind_ != Kind::kDict;
  }
  bool is_markup() const { return is_string() && string_data().markup; }

  bool as_bool() const { return num_.i != 0; }
  int64_t as_int() const { return num_.i; }  // of a bool or an int
  double as_double() const { return kind_ == Kind::kFloat ? num_.d : static_cast<double>(num_.i); }
  const StringData& string_data() const { return *static_cast<const StringData*>(ptr_.get()); }
  const std::string& str() const { return string_data().bytes; }
  const ListData& list_data() const { return *static_cast<const ListData*>(ptr_.get()); }
  ListData& generator_data() const { return *static_cast<ListData*>(ptr_.get()); }
  std::shared_ptr<ListData> share_list() const { return std::static_pointer_cast<ListData>(ptr_); }
  const DictData& dict_data() const { return *static_cast<const DictData*>(ptr_.get()); }
  std::shared_ptr<DictData> share_dict() const { return std::static_pointer_cast<DictData>(ptr_); }
  const RangeData& range_data() const { return *static_cast<const RangeData*>(ptr_.get()); }
  Namespace* ns() const { return static_cast<Namespace*>(num_.p); }
  LoopState* loop() const { return static_cast<LoopState*>(num_.p); }
  const Callable& callable() const { return *static_cast<const Callable*>(ptr_.get()); }
  Helper& helper() const { return *static_cast<Helper*>(ptr_.get()); }
  /// Why this undefined value is undefined.
  const std::string& why() const;

  /// Address of shared contents, for identity comparison; null for numbers and the like.
  const void* identity() const { return ptr_ ? ptr_.get() : (kind_ >= Kind::kNamespace ? num_.p : nullptr); }
  uint32_t depth() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    int64_t i;
    double d;
    void* p;
  } num_{0};
  std::shared_ptr<void> ptr_;
};

struct ListData {
  std::vector<Value> items;
  uint32_t depth = 1;
  size_t next = 0;        // generators: first item not read yet
  bool is_group = false;  // a tuple of groupby: also has .grouper and .list
};

/// Insertion-ordered map with Python's key equality (1 == 1.0 == True).
struct DictData {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // used above kSmall entries
  uint32_t depth = 1;

  static constexpr size_t kSmall = 8;
  const Value* find(Budget& budget, const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Inserts or overwrites. Fails on an unhashable key or too deep a value.
  void set(Budget& budget, Value key, Value value);
};

/// What a function value calls: one of the global functions, a method bound to a value, or a macro.
struct Callable {
  enum class Type { kGlobal, kMethod, kMacro };
  Type type = Type::kGlobal;
  std::string name;
  Value self;
  Macro* macro = nullptr;
};

/// `namespace(...)`: the one thing a template can change from an inner scope.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

/// cycler(...) and joiner(...).
struct Helper {
  bool is_joiner = false;
  std::vector<Value> items;
  size_t next = 0;
};

/// State of one running (or finished) loop, as the template sees it under the name `loop`.
struct LoopState {
  std::vector<Value> items;
  size_t index0 = 0;
  uint32_t depth0 = 0;
  bool changed_seen = false;
  std::vector<Value> changed;
  const void* recursive_stmt = nullptr;  // its statement and scope, when the loop may call itself
  std::shared_ptr<Scope> scope;
};

/// "str", "int", "dict", …: the name Python gives the type.
std::string_view type_name(const Value& value);
bool truthy(const Value& value);
/// Python's str() and repr().
void write_str(Sink& sink, const Value& value);
void write_repr(Sink& sink, const Value& value, uint32_t depth = 0);
std::string to_str(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);
std::string float_repr(double d);
/// repr() of a string: quotes and escapes as Python chooses them.
void write_string_repr(Sink& sink, std::string_view text);

bool equal(Budget& budget, const Value& a, const Value& b);
/// Python's `a is b`, as far as plain data has identity.
bool same(const Value& a, const Value& b);
/// `a < b`; fails when the types have no order.
bool less(Budget& budget, const Value& a, const Value& b, std::string_view op = "<");
/// `needle in haystack`.
bool contains(Budget& budget, const Value& haystack, const Value& needle);
/// len(); fails for what has none.
int64_t length(const Value& value);
/// The items of anything iterable (a string gives its characters, a dict its keys; a generator is used up).
std::vector<Value> iterate(Budget& budget, const Value& value);
bool is_iterable(const Value& value);
/// A key that equal values share; fails for unhashable values.
std::string hash_key(Budget& budget, const Value& value);

/// `value.name` and `value[key]` with jinja2's rules; a missing one is undefined, not an error.
Value get_attribute(Budget& budget, const Value& value, const std::string& name);
Value get_item(Budget& budget, const Value& value, const Value& key);
/// `value[start:stop:step]`; a part that is absent is None.
Value get_slice(Budget& budget, const Value& value, const Value& start, const Value& stop, const Value& step);
/// Whether `value` has the method `name`; `mutates`: the sandbox refuses it.
bool has_method(const Value& value, std::string_view name, bool* mutates);

}  // namespace isthmus::jinja
