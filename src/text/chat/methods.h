// Methods of strings, dicts and lists: those of Python that do not change what they are called on.
#pragma once

#include <string_view>

#include "text/chat/functions.h"

namespace ridge::jinja {

bool has_method(const Value& object, std::string_view name);
Value call_method(Budget& budget, const Method& method, const Arguments& arguments);

}  // namespace ridge::jinja
