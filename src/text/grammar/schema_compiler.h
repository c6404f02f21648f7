// The compiler behind compile_schema(): json_schema.cc has what combines schemas, json_types.cc the
// keywords of each type.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/grammar/builder.h"

namespace ridge::grammar {

template <typename... Args>
[[noreturn]] void refuse_schema(const std::string& where, fmt::format_string<Args...> format,
                                Args&&... args) {
  throw OptionError("response_format",
                    fmt::format("JSON schema at {}: {}", where,
                                fmt::format(format, std::forward<Args>(args)...)));
}

// The keyword's value, or null where it is absent.
inline const Json* find_keyword(const Json& schema, std::string_view keyword) {
  const auto found = schema.find(std::string(keyword));
  return found == schema.end() ? nullptr : &*found;
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, WorkLimit& work) : root_(root), work_(work), builder_(work) {}

  Automaton compile();

 private:
  struct Pending {
    const Json* schema;
    std::string where;
    StateId rule;
  };
  using Types = std::vector<std::string_view>;

  void count_node(const std::string& where);
  StateId value(const Json& schema, const std::string& where, StateId next);
  StateId whole(std::string_view keyword, const Json& schema, const std::string& where,
                StateId next);
  StateId reference(const std::string& pointer, const std::string& where, StateId next);
  StateId any_of(const Json& list, const std::string& where, StateId next);
  StateId one_of_values(const Json& values, const Types& types, const std::string& where,
                        StateId next);
  Types types_of(const Json& schema, const std::string& where);
  StateId typed(std::string_view type, const Json& schema, const std::string& where, StateId next);
  StateId object(const Json& schema, const std::string& where, StateId next);
  StateId array(const Json& schema, const std::string& where, StateId next);
  StateId string(const Json& schema, const std::string& where, StateId next);
  StateId number(const Json& schema, const std::string& where, StateId next);
  StateId integer(const Json& schema, const std::string& where, StateId next);

  // A part of the builder's that compiles `schema` when its end is known.
  Builder::Part part(const Json& schema, std::string where);

  const Json& root_;
  WorkLimit& work_;
  Builder builder_;
  std::map<std::string, StateId> rules_;  // by pointer
  std::deque<Pending> pending_;           // rules without states: compiled one after the other
  int nodes_ = 0;
};

}  // namespace ridge::grammar
