// Recursive descent over the tokens of a chat template.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/lexer.h"

namespace ridge::jinja {

class Parser {
 public:
  explicit Parser(std::vector<LexToken> tokens) : tokens_(std::move(tokens)) {}
  Block parse_all();

 private:
  // Bounds the depth of the parser's recursion. That of the tree is bounded apart: a chain of
  // operators grows deep to the left without it.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxNesting) parser_.fail("nests too deep");
    }
    ~Nesting() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  const LexToken& current() const { return tokens_[at_]; }
  const LexToken& next();  // the current token, which is then taken
  bool is(LexKind kind, std::string_view value) const {
    return current().kind == kind && current().value == value;
  }
  bool take(LexKind kind, std::string_view value);
  void expect(LexKind kind, std::string_view value);
  void expect_block_end();
  std::string expect_name();
  [[noreturn]] void fail(const std::string& message) const;

  Block parse_block(std::initializer_list<std::string_view> ends);
  Statement parse_statement();
  void parse_if(Statement& statement);
  void parse_for(Statement& statement);
  void parse_set(Statement& statement);
  void parse_macro(Statement& statement);
  std::vector<Target> parse_targets(bool with_attribute);

  // Lowest precedence first. `conditional`: `a if b` may follow.
  ExprPtr parse_tuple(bool conditional = true);
  ExprPtr parse_expression(bool conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_bracketed();
  ExprPtr parse_postfix(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_filters(ExprPtr input);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  void parse_arguments(Expr& call);

  static constexpr int kMaxTree = 250;
  ExprPtr make(ExprKind kind, int line) const;
  void add_part(Expr& expr, ExprPtr part) const;  // null: none
  ExprPtr make_binary(ExprKind kind, std::string name, ExprPtr left, ExprPtr right) const;

  std::vector<LexToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  bool in_macro_ = false;
};

}  // namespace ridge::jinja
