// The parsed form of a template: trees of expressions and statements, made by the parser, read by the
// evaluator.
//
// Immutable once parsed and shared by concurrent renders. Chains that a template can make long without
// nesting (a + b + …, x.a.b[…]|f|g, a if b else c if d …, elif) are flat vectors, so nesting depth is what
// the parser's limit says and walking or freeing a tree needs little stack.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace isthmus::jinja {

using NameId = uint32_t;  // index into Program::names

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

/// One step after a primary: .name, [index], [a:b:c], (args), |filter(args), is [not] test(args).
struct Postfix {
  enum class Kind : uint8_t { kAttribute, kItem, kSlice, kCall, kFilter, kTest };
  Kind kind = Kind::kAttribute;
  bool negated = false;  // kTest: "is not"
  Offset at = 0;
  std::string name;            // attribute, filter or test
  std::vector<ExprPtr> parts;  // kItem: index; kSlice: start, stop, step (null where absent)
  CallArgs args;
};

struct Expr {
  enum class Kind : uint8_t {
    kConst,
    kName,
    kList,     // children
    kTuple,    // children
    kDict,     // children: key, value, key, value, …
    kBinary,   // children[0] ops[0] children[1] ops[1] …, left to right, one precedence level
    kCompare,  // the same with Python's chaining
    kAnd,      // children
    kOr,       // children
    kNot,      // `count` times
    kSign,     // children[0] with signs (of ops: kSub, kAdd), the outermost first
    kConcat,   // children joined as text
    kCond,     // value, condition, value, condition, …, [value]
    kPostfix,  // children[0] and steps
  };
  Kind kind = Kind::kConst;
  Offset at = 0;
  NameId name = 0;
  uint32_t count = 0;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<Postfix> steps;
};

/// What `set`, `for` and `with` assign to: a name, namespace.attribute, or a tuple of targets.
struct Target {
  enum class Kind : uint8_t { kName, kNamespace, kTuple };
  Kind kind = Kind::kName;
  Offset at = 0;
  NameId name = 0;
  std::string attribute;
  std::vector<Target> parts;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

/// A macro or the body of a call block.
struct MacroDef {
  std::string name;
  std::vector<NameId> args;
  std::vector<ExprPtr> defaults;  // of the last defaults.size() arguments
  Block body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,
    kPrint,     // expr
    kIf,        // branches
    kFor,       // target, expr, filter, body, otherwise, recursive
    kSet,       // target, expr
    kSetBlock,  // target, chain (filters), body
    kMacro,     // name, macro
    kCall,      // expr (a call), macro (the body)
    kFilter,    // chain, body
    kWith,      // targets, values, body
    kScope,     // body in a scope of its own (generation, block)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  bool recursive = false;
  bool uses_loop = false;  // kFor: the name `loop` occurs in the body
  Offset at = 0;
  NameId name = 0;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr filter;
  std::vector<Postfix> chain;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<Branch> branches;
  std::unique_ptr<MacroDef> macro;
  Block body;
  Block otherwise;
};

struct Program {
  std::string source;  // normalised
  std::vector<std::string> names;
  Block body;
};

/// Parses a template. Throws TemplateError; `depth` limits the nesting of blocks and of expressions.
Program parse_program(std::string_view source, uint32_t depth);

}  // namespace isthmus::jinja
