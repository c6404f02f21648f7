#include "text/chat/interpreter.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/chat/methods.h"

namespace ridge::jinja {
namespace {

constexpr int kMaxDepth = 500;                   // expressions and statements inside each other
constexpr size_t kMaxOutput = size_t{16} << 20;  // bytes
constexpr std::array<std::string_view, 5> kFunctions = {"range", "namespace", "raise_exception",
                                                        "strftime_now", "dict"};

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;

  Value* find(std::string_view name) {
    for (auto& [key, value] : variables) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    if (Value* found = find(name)) {
      *found = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }
};

enum class Flow { next, break_loop, continue_loop };

class Interpreter {
 public:
  Interpreter(std::time_t now, WorkLimit& work) : now_(now), budget_(work) {}

  Text run(const Block& program, const std::vector<std::pair<std::string, Value>>& variables) {
    Text out;
    out_ = &out;
    for (const auto& [name, value] : variables) globals_.set(name, value);
    try {
      run_block(program);
    } catch (const WorkLimitError&) {
      throw;
    } catch (const Error& error) {
      throw Error("line {}: {}", line_, error.what());
    }
    return out;
  }

 private:
  class Depth {
   public:
    explicit Depth(Interpreter& owner) : owner_(owner) {
      if (++owner_.depth_ > kMaxDepth) throw Error("nests or recurses too deep");
    }
    ~Depth() { --owner_.depth_; }

   private:
    Interpreter& owner_;
  };
  // A scope inside the current one (or inside `parent`) for as long as this lives.
  class Inner {
   public:
    explicit Inner(Interpreter& owner, Scope* parent = nullptr)
        : owner_(owner), outer_(owner.scope_) {
      scope.parent = parent ? parent : outer_;
      owner_.scope_ = &scope;
    }
    ~Inner() { owner_.scope_ = outer_; }
    Scope scope;

   private:
    Interpreter& owner_;
    Scope* outer_;
  };

  Flow run_block(const Block& block) {
    for (const Statement& statement : block) {
      const Flow flow = run_statement(statement);
      if (flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  Flow run_statement(const Statement& statement) {
    const Depth depth(*this);
    line_ = statement.line;
    budget_.charge(Budget::kNode);
    switch (statement.kind) {
      case StatementKind::text:
        write(*statement.constant.text());
        return Flow::next;
      case StatementKind::print:
        write(*to_text(evaluate(*statement.exprs[0])));
        return Flow::next;
      case StatementKind::branch:
        return run_branch(statement);
      case StatementKind::loop:
        run_loop(statement);
        return Flow::next;
      case StatementKind::set:
        run_set(statement);
        return Flow::next;
      case StatementKind::set_block:
        assign(statement.targets[0], capture(statement.bodies[0]));
        return Flow::next;
      case StatementKind::macro:
        scope_->set(statement.name, Macro{&statement});
        return Flow::next;
      case StatementKind::generation: {
        const Inner inner(*this);
        return run_block(statement.bodies[0]);
      }
      case StatementKind::break_loop:
        return Flow::break_loop;
      case StatementKind::continue_loop:
        return Flow::continue_loop;
    }
    return Flow::next;
  }

  void write(const Text& text) {
    budget_.charge_text(text.size());
    if (out_->size() + text.size() > kMaxOutput) {
      throw Error("writes more than {} MiB", kMaxOutput >> 20);
    }
    out_->append(text);
  }

  Flow run_branch(const Statement& statement) {
    for (size_t i = 0; i < statement.bodies.size(); ++i) {
      if (i == statement.exprs.size() || truth(evaluate(*statement.exprs[i]))) {
        return run_block(statement.bodies[i]);
      }
    }
    return Flow::next;
  }

  void run_loop(const Statement& statement) {
    std::shared_ptr<const List> items = items_of(evaluate(*statement.exprs[0]));
    budget_.charge(items->items.size() * Budget::kNode);
    if (statement.exprs[1]) {
      std::vector<Value> kept;
      Inner inner(*this);
      for (const Value& one : items->items) {
        assign_all(statement.targets, one);
        if (truth(evaluate(*statement.exprs[1]))) kept.push_back(one);
      }
      items = make_list(std::move(kept));
    }
    if (items->items.empty()) {
      if (statement.bodies.size() > 1) {
        const Inner inner(*this);
        run_block(statement.bodies[1]);
      }
      return;
    }
    Inner inner(*this);
    ++loop_depth_;
    for (size_t i = 0; i < items->items.size(); ++i) {
      inner.scope.variables.clear();
      inner.scope.set("loop", std::make_shared<const Loop>(Loop{items, i, loop_depth_}));
      assign_all(statement.targets, items->items[i]);
      if (run_block(statement.bodies[0]) == Flow::break_loop) break;
    }
    --loop_depth_;
  }

  void run_set(const Statement& statement) {
    Value value = evaluate(*statement.exprs[0]);
    if (statement.targets.size() == 1) {
      assign(statement.targets[0], std::move(value));
    } else {
      assign_all(statement.targets, value);
    }
  }

  void assign(const Target& target, Value value) {
    if (target.attribute.empty()) return scope_->set(target.name, std::move(value));
    const Value object = look_up(target.name, {});
    const auto* space = object.as<std::shared_ptr<Namespace>>();
    if (!space) throw Error("'{}' is not a namespace", target.name);
    (*space)->values.set(std::make_shared<const Text>(target.attribute, Origin::of_template),
                         std::move(value));
  }

  void assign_all(const std::vector<Target>& targets, const Value& value) {
    if (targets.size() == 1) return scope_->set(targets[0].name, value);
    const std::shared_ptr<const List> parts = items_of(value);
    if (parts->items.size() != targets.size()) {
      throw Error("{} values for {} names", parts->items.size(), targets.size());
    }
    for (size_t i = 0; i < targets.size(); ++i) assign(targets[i], parts->items[i]);
  }

  // What a block writes, as a string.
  Value capture(const Block& block) {
    const Inner inner(*this);
    return capture_here(block);
  }
  Value capture_here(const Block& block) {
    Text text;
    Text* const outer = out_;
    out_ = &text;
    run_block(block);  // an error ends the whole template: no need to restore `out_`
    out_ = outer;
    return text;
  }

  Value look_up(std::string_view name, const Value& text) {
    for (Scope* scope = scope_; scope; scope = scope->parent) {
      if (const Value* found = scope->find(name)) return *found;
    }
    for (std::string_view function : kFunctions) {
      if (name == function) return Function{function};
    }
    const TextPtr* known = text.as<TextPtr>();
    return Undefined{known ? *known : nullptr};
  }

  Value evaluate(const Expr& expr) {
    const Depth depth(*this);
    line_ = expr.line;
    budget_.charge(Budget::kNode);
    const auto part = [&](size_t i) { return evaluate(*expr.parts[i]); };
    switch (expr.kind) {
      case ExprKind::constant:
        return expr.constant;
      case ExprKind::name:
        return look_up(expr.name, expr.constant);
      case ExprKind::list:
      case ExprKind::tuple:
        return evaluate_list(expr);
      case ExprKind::dict:
        return evaluate_dict(expr);
      case ExprKind::attribute:
        return attribute(part(0), *expr.constant.as<TextPtr>());
      case ExprKind::item:
        return evaluate_item(expr);
      case ExprKind::slice:
        return evaluate_slice(expr);
      case ExprKind::call:
        return evaluate_call(expr);
      case ExprKind::filter: {
        const Value input = part(0);
        return expr.filter(budget_, input, arguments(expr));
      }
      case ExprKind::test: {
        const Value input = part(0);
        return expr.test(budget_, input, arguments(expr));
      }
      case ExprKind::negative:
        return binary(budget_, "-", int64_t{0}, part(0));
      case ExprKind::positive:
        return binary(budget_, "+", int64_t{0}, part(0));
      case ExprKind::logical_not:
        return !truth(part(0));
      case ExprKind::logical_and: {
        Value left = part(0);
        return truth(left) ? part(1) : left;
      }
      case ExprKind::logical_or: {
        Value left = part(0);
        return truth(left) ? left : part(1);
      }
      case ExprKind::binary: {
        const Value left = part(0);
        return binary(budget_, expr.name, left, part(1));
      }
      case ExprKind::concat:
        return evaluate_concat(expr);
      case ExprKind::compare:
        return evaluate_comparison(expr);
      case ExprKind::conditional:
        if (truth(part(0))) return part(1);
        return expr.parts[2] ? part(2) : Value();
    }
    return Value();
  }

  Value evaluate_list(const Expr& expr) {
    std::vector<Value> items;
    items.reserve(expr.parts.size());
    for (const ExprPtr& one : expr.parts) items.push_back(evaluate(*one));
    return make_list(std::move(items), expr.kind == ExprKind::tuple);
  }

  Value evaluate_dict(const Expr& expr) {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i < expr.parts.size(); i += 2) {
      const Value key = evaluate(*expr.parts[i]);
      const TextPtr* text = key.as<TextPtr>();
      if (!text) throw Error("keys of a dict must be strings, not {}", type_name(key));
      dict->set(*text, evaluate(*expr.parts[i + 1]));
    }
    return std::shared_ptr<const Dict>(std::move(dict));
  }

  Value evaluate_item(const Expr& expr) {
    const Value object = evaluate(*expr.parts[0]);
    if (const Text* text = object.text()) budget_.charge(text->size());
    return item(object, evaluate(*expr.parts[1]));
  }

  Value evaluate_slice(const Expr& expr) {
    const auto part = [&](size_t i) {
      return expr.parts[i] ? evaluate(*expr.parts[i]) : Value(None{});
    };
    const Value object = part(0), start = part(1), stop = part(2), step = part(3);
    budget_.charge(object.list() ? object.list()->items.size() * 8 : extent(object).bytes);
    return slice(object, start, stop, step);
  }

  Value evaluate_concat(const Expr& expr) {
    Text text;
    for (const ExprPtr& one : expr.parts) {
      const TextPtr more = to_text(evaluate(*one));
      budget_.charge_text(more->size());
      text.append(*more);
    }
    return text;
  }

  Value evaluate_comparison(const Expr& expr) {
    Value left = evaluate(*expr.parts[0]);
    for (size_t i = 0; i < expr.comparisons.size(); ++i) {
      Value right = evaluate(*expr.parts[i + 1]);
      if (!compares(expr.comparisons[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool compares(Comparison comparison, const Value& left, const Value& right) {
    if (comparison == Comparison::in) return contains(budget_, right, left);
    if (comparison == Comparison::not_in) return !contains(budget_, right, left);
    budget_.charge(std::min(extent(left).bytes, extent(right).bytes));
    if (comparison == Comparison::eq) return equal(left, right);
    if (comparison == Comparison::ne) return !equal(left, right);
    const int order = compare(left, right);
    switch (comparison) {
      case Comparison::lt:
        return order < 0;
      case Comparison::le:
        return order <= 0;
      case Comparison::gt:
        return order > 0;
      default:
        return order >= 0;
    }
  }

  Arguments arguments(const Expr& expr) {
    Arguments result;
    for (size_t i = 1; i < expr.parts.size(); ++i) {
      result.positional.push_back(evaluate(*expr.parts[i]));
    }
    for (const auto& [name, value] : expr.named) result.named.emplace_back(name, evaluate(*value));
    return result;
  }

  Value evaluate_call(const Expr& expr) {
    const Value callee = evaluate(*expr.parts[0]);
    const Arguments given = arguments(expr);
    line_ = expr.line;
    if (const auto* method = callee.as<std::shared_ptr<const Method>>()) {
      return call_method(budget_, **method, given);
    }
    if (const Macro* macro = callee.as<Macro>()) return call_macro(*macro->definition, given);
    if (const Function* function = callee.as<Function>()) return call(function->name, given);
    if (const auto* missing = callee.as<Undefined>()) {
      throw Error("'{}' is undefined", missing->name ? missing->name->bytes() : "value");
    }
    throw Error("a {} cannot be called", type_name(callee));
  }

  Value call_macro(const Statement& macro, const Arguments& given) {
    if (given.positional.size() > macro.targets.size()) {
      throw Error("macro {} takes {} arguments", macro.name, macro.targets.size());
    }
    for (const auto& [name, value] : given.named) {
      const auto is_it = [&, key = name](const Target& target) { return target.name == key; };
      if (std::none_of(macro.targets.begin(), macro.targets.end(), is_it)) {
        throw Error("macro {} has no parameter {}", macro.name, name);
      }
    }
    const Inner inner(*this, &globals_);
    for (size_t i = 0; i < macro.targets.size(); ++i) {
      const std::string& name = macro.targets[i].name;
      const Value* value = given.find(i, name);
      const bool defaulted = !value && macro.exprs[i];
      scope_->set(name, value ? *value : defaulted ? evaluate(*macro.exprs[i]) : Value());
    }
    return capture_here(macro.bodies[0]);
  }

  Value call(std::string_view function, const Arguments& given) {
    if (function == "raise_exception")
      throw Error("{}", to_text(given.need(0, "message"))->bytes());
    if (function == "strftime_now") return format_time(given.text(0, "format"), now_);
    if (function == "range") return make_range(budget_, given);
    if (!given.positional.empty()) throw Error("{}() takes named values only", function);
    Dict values;
    for (const auto& [name, value] : given.named) {
      values.set(std::make_shared<const Text>(name, Origin::of_template), value);
    }
    if (function == "dict") return std::make_shared<const Dict>(std::move(values));
    return std::make_shared<Namespace>(Namespace{std::move(values)});
  }

  const std::time_t now_;
  Budget budget_;
  Scope globals_;
  Scope* scope_ = &globals_;
  Text* out_ = nullptr;
  int line_ = 1, depth_ = 0, loop_depth_ = 0;
};

}  // namespace

Text run_template(const Block& program, std::vector<std::pair<std::string, Value>> variables,
                  std::time_t now, WorkLimit& work) {
  return Interpreter(now, work).run(program, variables);
}

}  // namespace ridge::jinja
