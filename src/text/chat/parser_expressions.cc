#include <charconv>

#include "base/error.h"
#include "text/chat/parser.h"

namespace ridge::jinja {
namespace {

struct NamedComparison {
  std::string_view symbol;
  Comparison comparison;
};
constexpr NamedComparison kComparisons[] = {{"==", Comparison::eq}, {"!=", Comparison::ne},
                                            {"<", Comparison::lt},  {"<=", Comparison::le},
                                            {">", Comparison::gt},  {">=", Comparison::ge}};

}  // namespace

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void Parser::add_part(Expr& expr, ExprPtr part) const {
  if (part) expr.depth = std::max(expr.depth, part->depth + 1);
  if (expr.depth > kMaxTree) fail("an expression nests too deep");
  expr.parts.push_back(std::move(part));
}

ExprPtr Parser::make_binary(ExprKind kind, std::string name, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = make(kind, left->line);
  expr->name = std::move(name);
  add_part(*expr, std::move(left));
  add_part(*expr, std::move(right));
  return expr;
}

ExprPtr Parser::parse_tuple(bool conditional) {
  const int line = current().line;
  ExprPtr first = parse_expression(conditional);
  if (!is(LexKind::symbol, ",")) return first;
  ExprPtr tuple = make(ExprKind::tuple, line);
  add_part(*tuple, std::move(first));
  while (take(LexKind::symbol, ",")) {
    const LexKind kind = current().kind;
    if (kind == LexKind::block_end || kind == LexKind::print_end || is(LexKind::symbol, ")")) break;
    add_part(*tuple, parse_expression(conditional));
  }
  return tuple;
}

ExprPtr Parser::parse_expression(bool conditional) {
  const Nesting nesting(*this);
  ExprPtr value = parse_or();
  while (conditional && take(LexKind::name, "if")) {
    ExprPtr expr = make(ExprKind::conditional, value->line);
    add_part(*expr, parse_or());
    add_part(*expr, std::move(value));
    add_part(*expr, take(LexKind::name, "else") ? parse_expression() : nullptr);
    value = std::move(expr);
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (take(LexKind::name, "or")) {
    left = make_binary(ExprKind::logical_or, "or", std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (take(LexKind::name, "and")) {
    left = make_binary(ExprKind::logical_and, "and", std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is(LexKind::name, "not")) return parse_compare();
  const Nesting nesting(*this);
  ExprPtr expr = make(ExprKind::logical_not, next().line);
  add_part(*expr, parse_not());
  return expr;
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr expr = make(ExprKind::compare, first->line);
  while (true) {
    const NamedComparison* found = nullptr;
    for (const NamedComparison& one : kComparisons) {
      if (take(LexKind::symbol, one.symbol)) {
        found = &one;
        break;
      }
    }
    if (found) {
      expr->comparisons.push_back(found->comparison);
    } else if (take(LexKind::name, "in")) {
      expr->comparisons.push_back(Comparison::in);
    } else if (is(LexKind::name, "not") && tokens_[at_ + 1].kind == LexKind::name &&
               tokens_[at_ + 1].value == "in") {
      next();
      next();
      expr->comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    if (first) add_part(*expr, std::move(first));
    add_part(*expr, parse_sum());
  }
  return first ? std::move(first) : std::move(expr);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is(LexKind::symbol, "+") || is(LexKind::symbol, "-")) {
    const std::string symbol = next().value;
    left = make_binary(ExprKind::binary, symbol, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is(LexKind::symbol, "~")) return first;
  ExprPtr expr = make(ExprKind::concat, first->line);
  add_part(*expr, std::move(first));
  while (take(LexKind::symbol, "~")) add_part(*expr, parse_product());
  return expr;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is(LexKind::symbol, "*") || is(LexKind::symbol, "/") || is(LexKind::symbol, "//") ||
         is(LexKind::symbol, "%")) {
    const std::string symbol = next().value;
    left = make_binary(ExprKind::binary, symbol, std::move(left), parse_power());
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (take(LexKind::symbol, "**")) {
    left = make_binary(ExprKind::binary, "**", std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (is(LexKind::symbol, "-") || is(LexKind::symbol, "+")) {
    const Nesting nesting(*this);
    const LexToken& sign = next();
    expr = make(sign.value == "-" ? ExprKind::negative : ExprKind::positive, sign.line);
    add_part(*expr, parse_unary(false));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  const LexToken& token = current();
  if (token.kind == LexKind::symbol) return parse_bracketed();
  ExprPtr expr = make(ExprKind::constant, token.line);
  if (token.kind == LexKind::name) {
    const std::string& name = next().value;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      expr->constant = name[0] == 't' || name[0] == 'T';
    } else if (name == "none" || name == "None") {
      expr->constant = None{};
    } else {
      expr->kind = ExprKind::name;
      expr->name = name;
      expr->constant = string_value(name);
    }
  } else if (token.kind == LexKind::string) {
    std::string text;
    while (current().kind == LexKind::string) text += next().value;
    expr->constant = string_value(text);
  } else if (token.kind == LexKind::integer) {
    int64_t value = 0;
    const char* end = token.value.data() + token.value.size();
    if (std::from_chars(token.value.data(), end, value).ec != std::errc()) {
      fail("a number is too large");
    }
    expr->constant = value;
    next();
  } else if (token.kind == LexKind::real) {
    double value = 0;
    std::from_chars(token.value.data(), token.value.data() + token.value.size(), value);
    expr->constant = value;
    next();
  } else {
    fail("an expression is missing");
  }
  return expr;
}

ExprPtr Parser::parse_bracketed() {
  const Nesting nesting(*this);
  const int line = current().line;
  if (take(LexKind::symbol, "(")) {
    if (take(LexKind::symbol, ")")) return make(ExprKind::tuple, line);
    ExprPtr inside = parse_tuple();
    expect(LexKind::symbol, ")");
    return inside;
  }
  if (take(LexKind::symbol, "[")) {
    ExprPtr list = make(ExprKind::list, line);
    while (!take(LexKind::symbol, "]")) {
      if (!list->parts.empty()) {
        expect(LexKind::symbol, ",");
        if (take(LexKind::symbol, "]")) break;
      }
      add_part(*list, parse_expression());
    }
    return list;
  }
  if (take(LexKind::symbol, "{")) {
    ExprPtr dict = make(ExprKind::dict, line);
    while (!take(LexKind::symbol, "}")) {
      if (!dict->parts.empty()) {
        expect(LexKind::symbol, ",");
        if (take(LexKind::symbol, "}")) break;
      }
      add_part(*dict, parse_expression());
      expect(LexKind::symbol, ":");
      add_part(*dict, parse_expression());
    }
    return dict;
  }
  fail(fmt::format("unexpected '{}'", current().value));
}

ExprPtr Parser::parse_postfix(ExprPtr object) {
  while (current().kind == LexKind::symbol) {
    const int line = current().line;
    if (take(LexKind::symbol, ".")) {
      if (current().kind == LexKind::integer) {
        ExprPtr key = parse_primary();
        object = make_binary(ExprKind::item, "", std::move(object), std::move(key));
        continue;
      }
      ExprPtr expr = make(ExprKind::attribute, line);
      add_part(*expr, std::move(object));
      expr->constant = string_value(expect_name());
      object = std::move(expr);
    } else if (take(LexKind::symbol, "[")) {
      object = parse_subscript(std::move(object));
    } else if (is(LexKind::symbol, "(")) {
      ExprPtr expr = make(ExprKind::call, line);
      add_part(*expr, std::move(object));
      parse_arguments(*expr);
      object = std::move(expr);
    } else {
      break;
    }
  }
  return object;
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const int line = current().line;
  ExprPtr first = is(LexKind::symbol, ":") ? nullptr : parse_expression();
  if (take(LexKind::symbol, "]")) {
    return make_binary(ExprKind::item, "", std::move(object), std::move(first));
  }
  ExprPtr expr = make(ExprKind::slice, line);
  add_part(*expr, std::move(object));
  add_part(*expr, std::move(first));
  for (int part = 0; part < 2; ++part) {
    const bool given =
        take(LexKind::symbol, ":") && !is(LexKind::symbol, ":") && !is(LexKind::symbol, "]");
    add_part(*expr, given ? parse_expression() : nullptr);
  }
  expect(LexKind::symbol, "]");
  return expr;
}

ExprPtr Parser::parse_filters(ExprPtr input) {
  while (true) {
    if (take(LexKind::symbol, "|")) {
      input = parse_filter(std::move(input));
    } else if (take(LexKind::name, "is")) {
      input = parse_test(std::move(input));
    } else if (is(LexKind::symbol, "(") && (input->kind == ExprKind::filter)) {
      ExprPtr call = make(ExprKind::call, input->line);
      add_part(*call, std::move(input));
      parse_arguments(*call);
      input = std::move(call);
    } else {
      return input;
    }
  }
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  ExprPtr expr = make(ExprKind::filter, current().line);
  expr->name = expect_name();
  expr->filter = find_filter(expr->name);
  if (!expr->filter) fail(fmt::format("the filter '{}' is not known", expr->name));
  add_part(*expr, std::move(input));
  if (is(LexKind::symbol, "(")) parse_arguments(*expr);
  return expr;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = current().line;
  const bool negated = take(LexKind::name, "not");
  ExprPtr expr = make(ExprKind::test, line);
  // Operators may be tests too: `x is in y` has a name, `select('==', 1)` has not.
  expr->name = expect_name();
  expr->test = find_test(expr->name);
  if (!expr->test) fail(fmt::format("the test '{}' is not known", expr->name));
  add_part(*expr, std::move(input));
  const LexKind kind = current().kind;
  if (is(LexKind::symbol, "(")) {
    parse_arguments(*expr);
  } else if (kind == LexKind::string || kind == LexKind::integer || kind == LexKind::real ||
             is(LexKind::symbol, "[") || is(LexKind::symbol, "{") ||
             (kind == LexKind::name && !is(LexKind::name, "else") && !is(LexKind::name, "or") &&
              !is(LexKind::name, "and") && !is(LexKind::name, "if") && !is(LexKind::name, "is"))) {
    add_part(*expr, parse_postfix(parse_primary()));
  }
  if (!negated) return expr;
  ExprPtr inverted = make(ExprKind::logical_not, line);
  add_part(*inverted, std::move(expr));
  return inverted;
}

void Parser::parse_arguments(Expr& call) {
  const Nesting nesting(*this);
  expect(LexKind::symbol, "(");
  bool first = true;
  while (!take(LexKind::symbol, ")")) {
    if (!first) {
      expect(LexKind::symbol, ",");
      if (take(LexKind::symbol, ")")) return;
    }
    first = false;
    if (current().kind == LexKind::name && tokens_[at_ + 1].kind == LexKind::symbol &&
        tokens_[at_ + 1].value == "=") {
      std::string name = next().value;
      next();
      ExprPtr value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    if (!call.named.empty()) fail("a positional argument follows a named one");
    add_part(call, parse_expression());
  }
}

}  // namespace ridge::jinja
