// Statements of a chat template; expressions are in parser_expressions.cc.
#include "text/chat/parser.h"

#include "base/error.h"

namespace ridge::jinja {

const LexToken& Parser::next() {
  const LexToken& token = tokens_[at_];
  if (token.kind != LexKind::end) ++at_;
  return token;
}

bool Parser::take(LexKind kind, std::string_view value) {
  if (!is(kind, value)) return false;
  next();
  return true;
}

void Parser::expect(LexKind kind, std::string_view value) {
  if (!take(kind, value)) fail(fmt::format("'{}' is missing", value));
}

void Parser::expect_block_end() {
  if (current().kind != LexKind::block_end) {
    fail(fmt::format("unexpected '{}' in a tag", current().value));
  }
  next();
}

std::string Parser::expect_name() {
  if (current().kind != LexKind::name) fail("a name is missing");
  return next().value;
}

void Parser::fail(const std::string& message) const {
  throw Error("line {}: {}", current().line, message);
}

Block Parser::parse_all() {
  Block block = parse_block({});
  if (current().kind != LexKind::end) fail(fmt::format("unexpected '{}'", tokens_[at_ + 1].value));
  return block;
}

// Statements up to a block tag that begins with one of `ends`, which is left to be read (its
// block_begin is taken), or to the end of the template.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Block block;
  while (current().kind != LexKind::end) {
    const LexToken& token = current();
    if (token.kind == LexKind::text) {
      Statement statement{
          StatementKind::text, token.line, string_value(token.value), {}, {}, {}, {}};
      block.push_back(std::move(statement));
      next();
    } else if (token.kind == LexKind::print_begin) {
      next();
      Statement statement{StatementKind::print, token.line, {}, {}, {}, {}, {}};
      statement.exprs.push_back(parse_tuple());
      if (current().kind != LexKind::print_end) {
        fail(fmt::format("unexpected '{}' in an expression", current().value));
      }
      next();
      block.push_back(std::move(statement));
    } else {
      const std::string& word = tokens_[at_ + 1].value;
      for (std::string_view end : ends) {
        if (word == end) {
          next();
          return block;
        }
      }
      if (ends.size() == 0 && (word.starts_with("end") || word == "else" || word == "elif")) {
        fail(fmt::format("'{}' ends nothing", word));
      }
      next();
      block.push_back(parse_statement());
    }
  }
  if (ends.size() > 0) fail(fmt::format("'{}' is missing", *(ends.end() - 1)));
  return block;
}

Statement Parser::parse_statement() {
  Statement statement{StatementKind::text, current().line, {}, {}, {}, {}, {}};
  const std::string word = expect_name();
  if (word == "if") {
    parse_if(statement);
  } else if (word == "for") {
    parse_for(statement);
  } else if (word == "set") {
    parse_set(statement);
  } else if (word == "macro") {
    parse_macro(statement);
  } else if (word == "generation") {
    statement.kind = StatementKind::generation;
    expect_block_end();
    statement.bodies.push_back(parse_block({"endgeneration"}));
    next();
    expect_block_end();
  } else if (word == "break" || word == "continue") {
    if (loops_ == 0) fail(fmt::format("'{}' outside a loop", word));
    statement.kind = word == "break" ? StatementKind::break_loop : StatementKind::continue_loop;
    expect_block_end();
  } else {
    fail(fmt::format("the tag '{}' is not known", word));
  }
  return statement;
}

void Parser::parse_if(Statement& statement) {
  statement.kind = StatementKind::branch;
  statement.exprs.push_back(parse_tuple(false));
  expect_block_end();
  while (true) {
    statement.bodies.push_back(parse_block({"elif", "else", "endif"}));
    const std::string word = expect_name();
    if (word == "elif") {
      statement.exprs.push_back(parse_tuple(false));
      expect_block_end();
      continue;
    }
    expect_block_end();
    if (word == "endif") return;
    statement.bodies.push_back(parse_block({"endif"}));
    next();
    return expect_block_end();
  }
}

void Parser::parse_for(Statement& statement) {
  statement.kind = StatementKind::loop;
  statement.targets = parse_targets(false);
  expect(LexKind::name, "in");
  statement.exprs.push_back(parse_tuple(false));
  statement.exprs.push_back(take(LexKind::name, "if") ? parse_expression() : nullptr);
  expect_block_end();
  ++loops_;
  statement.bodies.push_back(parse_block({"else", "endfor"}));
  --loops_;
  if (expect_name() == "else") {
    expect_block_end();
    statement.bodies.push_back(parse_block({"endfor"}));
    next();
  }
  expect_block_end();
}

std::vector<Target> Parser::parse_targets(bool with_attribute) {
  std::vector<Target> targets;
  const bool bracketed = take(LexKind::symbol, "(");
  do {
    targets.push_back({expect_name(), ""});
    if (with_attribute && targets.size() == 1 && take(LexKind::symbol, ".")) {
      targets[0].attribute = expect_name();
      return targets;
    }
  } while (take(LexKind::symbol, ","));
  if (bracketed) expect(LexKind::symbol, ")");
  return targets;
}

void Parser::parse_set(Statement& statement) {
  statement.kind = StatementKind::set;
  statement.targets = parse_targets(true);
  if (take(LexKind::symbol, "=")) {
    statement.exprs.push_back(parse_tuple());
    return expect_block_end();
  }
  statement.kind = StatementKind::set_block;
  if (statement.targets.size() != 1) fail("a block sets one variable");
  expect_block_end();
  statement.bodies.push_back(parse_block({"endset"}));
  next();
  expect_block_end();
}

void Parser::parse_macro(Statement& statement) {
  // Its body sees the template's variables, not those of a loop around it.
  if (loops_ > 0 || in_macro_) fail("a macro inside a loop or macro is not supported");
  statement.kind = StatementKind::macro;
  statement.name = expect_name();
  expect(LexKind::symbol, "(");
  while (!take(LexKind::symbol, ")")) {
    if (!statement.targets.empty()) expect(LexKind::symbol, ",");
    statement.targets.push_back({expect_name(), ""});
    statement.exprs.push_back(take(LexKind::symbol, "=") ? parse_expression() : nullptr);
  }
  expect_block_end();
  in_macro_ = true;
  statement.bodies.push_back(parse_block({"endmacro"}));
  in_macro_ = false;
  next();
  expect_block_end();
}

Block parse(std::string_view source) { return Parser(lex(source)).parse_all(); }

}  // namespace ridge::jinja
