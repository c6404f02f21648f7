// Items, attributes and slices of values.
#include <algorithm>

#include "base/error.h"
#include "text/chat/methods.h"
#include "text/chat/value.h"

namespace ridge::jinja {
namespace {

Value undefined_named(TextPtr name) { return Undefined{std::move(name)}; }

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index), count = static_cast<int64_t>(items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return int64_t{loop.depth};
  if (name == "depth0") return int64_t{loop.depth - 1};
  if (name == "previtem") return index > 0 ? items[loop.index - 1] : Value();
  if (name == "nextitem") return index + 1 < count ? items[loop.index + 1] : Value();
  throw Error("loop.{} is not known", name);
}

[[noreturn]] void refuse_undefined(const Value& object) {
  const TextPtr& name = object.as<Undefined>()->name;
  throw Error("'{}' is undefined", name ? name->bytes() : "value");
}

// Which of `count` places a slice takes, in order.
std::vector<size_t> sliced(int64_t count, const Value& start, const Value& stop,
                           const Value& step_value) {
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is<None>()) return otherwise;
    const int64_t* integer = value.as<int64_t>();
    if (!integer) throw Error("slices are of whole numbers, not of {}", type_name(value));
    return *integer;
  };
  const int64_t step = bound(step_value, 1);
  if (step == 0) throw Error("a slice's step cannot be 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  const auto place = [&](const Value& value, int64_t otherwise) {
    if (value.is<None>()) return otherwise;
    int64_t at = bound(value, 0);
    if (at < 0) at = at < -count ? low : at + count;
    return std::clamp(at, low, high);
  };
  std::vector<size_t> places;
  const int64_t first = place(start, step > 0 ? low : high),
                end = place(stop, step > 0 ? high : low);
  // A step longer than the text takes one place, whatever its size.
  const int64_t stride = std::clamp<int64_t>(step, -count - 1, count + 1);
  for (int64_t at = first; step > 0 ? at < end : at > end; at += stride) {
    places.push_back(static_cast<size_t>(at));
  }
  return places;
}

}  // namespace

std::shared_ptr<const List> items_of(const Value& value) {
  if (const auto* list = value.as<std::shared_ptr<const List>>()) return *list;
  std::vector<Value> items;
  if (const Text* text = value.text()) {
    const std::vector<size_t> starts = character_starts(*text);
    check_items(starts.size() - 1);
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      items.push_back(text->slice(starts[i], starts[i + 1]));
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
  } else if (!value.undefined()) {
    throw Error("a {} cannot be iterated", type_name(value));
  }
  return make_list(std::move(items));
}

Value attribute(const Value& object, const TextPtr& name) {
  if (object.undefined()) refuse_undefined(object);
  if (has_method(object, name->bytes())) {
    return std::make_shared<const Method>(Method{object, name->bytes()});
  }
  const Value* found = nullptr;
  if (const Dict* dict = object.dict()) found = dict->find(name->bytes());
  if (const auto* space = object.as<std::shared_ptr<Namespace>>()) {
    found = (*space)->values.find(name->bytes());
  }
  if (const auto* loop = object.as<std::shared_ptr<const Loop>>()) {
    return loop_attribute(**loop, name->bytes());
  }
  return found ? *found : undefined_named(name);
}

Value item(const Value& object, const Value& key) {
  if (object.undefined()) refuse_undefined(object);
  const TextPtr* name = key.as<TextPtr>();
  if (const Dict* dict = object.dict(); dict && name) {
    const Value* found = dict->find((*name)->bytes());
    return found ? *found : attribute(object, *name);
  }
  if (name) return attribute(object, *name);
  const int64_t* index = key.as<int64_t>();
  if (!index) return undefined_named(to_text(key));
  const auto at = [&](size_t count) {
    const auto size = static_cast<int64_t>(count);
    const int64_t place = *index < 0 ? *index + size : *index;
    return place < 0 || place >= size ? count : static_cast<size_t>(place);
  };
  if (const List* list = object.list()) {
    const size_t place = at(list->items.size());
    if (place < list->items.size()) return list->items[place];
  }
  if (const Text* text = object.text()) {
    const std::vector<size_t> starts = character_starts(*text);
    const size_t place = at(starts.size() - 1);
    if (place + 1 < starts.size()) return text->slice(starts[place], starts[place + 1]);
  }
  return undefined_named(to_text(key));
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.undefined()) refuse_undefined(object);
  if (const List* list = object.list()) {
    std::vector<Value> items;
    for (size_t at : sliced(static_cast<int64_t>(list->items.size()), start, stop, step)) {
      items.push_back(list->items[at]);
    }
    return make_list(std::move(items), list->tuple);
  }
  if (const Text* text = object.text()) {
    const std::vector<size_t> starts = character_starts(*text);
    Text part;
    for (size_t at : sliced(static_cast<int64_t>(starts.size()) - 1, start, stop, step)) {
      part.append(*text, starts[at], starts[at + 1]);
    }
    return part;
  }
  throw Error("a {} has no slices", type_name(object));
}

}  // namespace ridge::jinja
