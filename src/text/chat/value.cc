#include "text/chat/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ridge::jinja {
namespace {

constexpr size_t kIndexedFrom = 16;  // entries; fewer are found faster by looking at each

bool equal_lists(const List& left, const List& right) {
  return left.tuple == right.tuple && std::equal(left.items.begin(), left.items.end(),
                                                 right.items.begin(), right.items.end(), equal);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(key->bytes());
    if (!other || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

Extent extent(const Value& value) {
  if (const Text* text = value.text()) return {0, kValueBytes + 2 * text->size()};
  if (const List* list = value.list()) return list->extent;
  if (const Dict* dict = value.dict()) return dict->extent();
  return {};
}

void Extent::include(const Value& value) {
  if (!value.is_data()) throw Error("a {} cannot be part of another value", type_name(value));
  const Extent other = jinja::extent(value);
  depth = std::max(depth, other.depth + 1);
  bytes += other.bytes;
  if (depth > kMaxNesting) throw Error("values nest more than {} deep", kMaxNesting);
  if (bytes > kMaxExtent) throw Error("a value would grow beyond {} MiB", kMaxExtent >> 20);
}

std::shared_ptr<const List> make_list(std::vector<Value> items, bool tuple) {
  check_items(items.size());
  auto list = std::make_shared<List>();
  list->items = std::move(items);
  list->tuple = tuple;
  for (const Value& one : list->items) list->extent.include(one);
  return list;
}

void Dict::set(TextPtr key, Value value) {
  extent_.include(value);
  extent_.bytes += 2 * key->size();
  if (const Value* found = find(key->bytes())) {
    const auto at = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& entry) { return &entry.second == found; });
    at->second = std::move(value);
    return;
  }
  check_items(entries_.size() + 1);
  entries_.emplace_back(std::move(key), std::move(value));
  const auto add = [&](size_t i) { index_.emplace(entries_[i].first->bytes(), i); };
  if (entries_.size() == kIndexedFrom) {
    for (size_t i = 0; i < kIndexedFrom; ++i) add(i);
  } else if (entries_.size() > kIndexedFrom) {
    add(entries_.size() - 1);
  }
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() >= kIndexedFrom) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const Entry& entry : entries_) {
    if (entry.first->bytes() == key) return &entry.second;
  }
  return nullptr;
}

Value string_value(std::string_view text, Origin origin) { return Value(Text(text, origin)); }

bool truth(const Value& value) {
  if (value.undefined() || value.is<None>()) return false;
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const int64_t* integer = value.as<int64_t>()) return *integer != 0;
  if (const double* real = value.as<double>()) return *real != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return dict->size() > 0;
  return true;
}

bool is_number(const Value& value) {
  return value.is<bool>() || value.is<int64_t>() || value.is<double>();
}

double number(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const int64_t* integer = value.as<int64_t>()) return static_cast<double>(*integer);
  return *value.as<double>();
}

bool equal(const Value& left, const Value& right) {
  if (is_number(left) && is_number(right)) return compare(left, right) == 0;
  if (left.text() && right.text()) return left.text()->bytes() == right.text()->bytes();
  if (left.list() && right.list()) {
    return left.list() == right.list() || equal_lists(*left.list(), *right.list());
  }
  if (left.dict() && right.dict()) {
    return left.dict() == right.dict() || equal_dicts(*left.dict(), *right.dict());
  }
  if (left.undefined() || left.is<None>()) {
    return left.undefined() ? right.undefined() : right.is<None>();
  }
  return false;
}

int compare(const Value& left, const Value& right) {
  const auto sign = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : 0; };
  if (is_number(left) && is_number(right)) {
    if (left.is<double>() || right.is<double>()) {
      const double a = number(left), b = number(right);
      // No order with NaN: every comparison of order with it is wrong in some way.
      if (std::isnan(a) || std::isnan(b)) return 1;
      return sign(a, b);
    }
    const auto integer = [](const Value& value) {
      return value.is<bool>() ? int64_t{*value.as<bool>()} : *value.as<int64_t>();
    };
    return sign(integer(left), integer(right));
  }
  if (left.text() && right.text()) return sign(left.text()->bytes(), right.text()->bytes());
  if (left.list() && right.list() && left.list()->tuple == right.list()->tuple) {
    const auto &a = left.list()->items, &b = right.list()->items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!equal(a[i], b[i])) return compare(a[i], b[i]);
    }
    return sign(a.size(), b.size());
  }
  for (const Value* side : {&left, &right}) {
    if (const auto* missing = side->as<Undefined>()) {
      throw Error("'{}' is undefined", missing->name ? missing->name->bytes() : "value");
    }
  }
  throw Error("{} and {} have no order", type_name(left), type_name(right));
}

const char* type_name(const Value& value) {
  if (value.undefined()) return "undefined value";
  if (value.is<None>()) return "None";
  if (value.is<bool>()) return "bool";
  if (value.is<int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.text()) return "str";
  if (value.list()) return value.list()->tuple ? "tuple" : "list";
  if (value.dict()) return "dict";
  if (value.is<std::shared_ptr<Namespace>>()) return "namespace";
  if (value.is<std::shared_ptr<const Loop>>()) return "loop";
  return value.is<Macro>() ? "macro" : "function";
}

}  // namespace ridge::jinja
