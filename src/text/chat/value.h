// Values of a chat template, with Python's meaning of truth, equality, order and print.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat/text.h"

namespace ridge::jinja {

class Value;
class Dict;
struct List;
struct Namespace;
struct Loop;
struct Method;
struct Statement;

using TextPtr = std::shared_ptr<const Text>;

struct Undefined {
  TextPtr name;  // for errors; may be null
};
struct None {};
struct Function {  // one of the interpreter's own
  std::string_view name;
};
struct Macro {
  const Statement* definition;
};

class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined value) : data_(std::move(value)) {}
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  Value(TextPtr text) : data_(std::move(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const Method> method) : data_(std::move(method)) {}
  Value(Function function) : data_(function) {}
  Value(Macro macro) : data_(macro) {}
  template <typename T>
  Value(T*) = delete;  // would become a bool

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  const T* as() const {  // null where it is another kind
    return std::get_if<T>(&data_);
  }
  bool undefined() const { return is<Undefined>(); }
  const Text* text() const { return pointer<Text>(); }
  const List* list() const { return pointer<List>(); }
  const Dict* dict() const { return pointer<Dict>(); }
  // What containers may hold: neither namespaces (which could then hold themselves) nor callables.
  bool is_data() const { return data_.index() <= kLastData; }

 private:
  template <typename T>
  const T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<const T>>(&data_);
    return held ? held->get() : nullptr;
  }
  static constexpr size_t kLastData = 7;
  std::variant<Undefined, None, bool, int64_t, double, TextPtr, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
               std::shared_ptr<const Method>, Function, Macro>
      data_;
};

// Containers do not change once made. Their nesting and their size are bounded, so that whatever
// walks through one ends: shared parts can make a short template exponential.
inline constexpr int kMaxNesting = 100;  // also of brackets and statements of a template
inline constexpr size_t kMaxExtent = 2 * kMaxText;
inline constexpr size_t kValueBytes = 32;  // of memory, beside what a value refers to

struct Extent {
  int depth = 0;
  size_t bytes = kValueBytes;        // of memory, about, as if no part were shared
  void include(const Value& value);  // throws Error beyond the bounds, or where it is not data
};
Extent extent(const Value& value);

struct List {
  std::vector<Value> items;
  bool tuple = false;
  Extent extent;
};
std::shared_ptr<const List> make_list(std::vector<Value> items, bool tuple = false);

// Keys are strings, in the order in which they came.
class Dict {
 public:
  using Entry = std::pair<TextPtr, Value>;
  void set(TextPtr key, Value value);  // replaces the value of an equal key
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;  // once there are many
  Extent extent_;
};

struct Namespace {
  Dict values;
};

struct Loop {  // what `loop` is inside a for statement
  std::shared_ptr<const List> items;
  size_t index = 0;
  int depth = 1;
};

struct Method {
  Value receiver;
  std::string name;
};

Value string_value(std::string_view text, Origin origin = Origin::of_template);
Value from_json(const nlohmann::ordered_json& json, Origin origin);

bool truth(const Value& value);
bool equal(const Value& left, const Value& right);
// Negative, 0 or positive. Throws Error where Python cannot order the two.
int compare(const Value& left, const Value& right);
const char* type_name(const Value& value);  // Python's: "str", "dict"
bool is_number(const Value& value);         // bool too
double number(const Value& value);          // of is_number()

TextPtr to_text(const Value& value);  // str()
TextPtr repr(const Value& value);     // repr()
std::string float_repr(double value);

// json.dumps(value, ensure_ascii=False, indent=indent): `indent` is null or what each level adds.
struct JsonStyle {
  const Text* indent = nullptr;
  std::string item_separator, key_separator;
  bool sort_keys = false, ascii = false;
};
Text to_json(const Value& value, const JsonStyle& style);

// The items that a for statement sees. Throws Error for what cannot be iterated.
std::shared_ptr<const List> items_of(const Value& value);
// `object.name` and `object[key]`; what is not there is undefined.
Value attribute(const Value& object, const TextPtr& name);
Value item(const Value& object, const Value& key);
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace ridge::jinja
