// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/chat/functions.h"
#include "text/chat/value.h"

namespace ridge::jinja {

enum class ExprKind {
  constant,
  name,
  list,       // parts: items
  tuple,      // parts: items
  dict,       // parts: key, value, key, value ...
  attribute,  // parts: object; constant: the attribute's name
  item,       // parts: object, key
  slice,      // parts: object, start, stop, step; a null part is None
  call,       // parts: callee, positional arguments; named
  filter,     // parts: input, positional arguments; named
  test,       // parts: input, positional arguments; named
  negative,   // parts: operand, as for the next two
  positive,
  logical_not,
  logical_and,  // parts: left, right, as for the next
  logical_or,
  binary,       // parts: left, right; name: the operator
  concat,       // parts: all operands of ~
  compare,      // parts: n + 1 operands; comparisons: n operators
  conditional,  // parts: condition, value, otherwise (may be null: undefined)
};

enum class Comparison { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;  // of the tree below; bounded by the parser
  Value constant;
  std::string name;
  std::vector<ExprPtr> parts;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<Comparison> comparisons;
  Filter filter = nullptr;
  Test test = nullptr;
};

enum class StatementKind {
  text,        // constant
  print,       // exprs: value
  branch,      // exprs[i] is the condition of bodies[i]; a last body without one is the else
  loop,        // targets; exprs: iterable, condition (may be null); bodies: each, else
  set,         // targets; exprs: value
  set_block,   // targets (one); bodies: what is captured
  macro,       // name; targets: parameters; exprs: their defaults (may be null); bodies: one
  generation,  // bodies: what an assistant wrote, for training; written as it is
  break_loop,
  continue_loop,
};

struct Target {
  std::string name;
  std::string attribute;  // of a namespace; empty: a variable
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  StatementKind kind;
  int line;
  Value constant;
  std::string name;
  std::vector<Target> targets;
  std::vector<ExprPtr> exprs;
  std::vector<Block> bodies;
};

// Throws Error with the line for what is not Jinja, or Jinja that chat templates do not use.
Block parse(std::string_view source);

}  // namespace ridge::jinja
