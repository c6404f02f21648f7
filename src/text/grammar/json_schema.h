// JSON schemas as automata.
//
// Supported: type (one or a list), enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength; minimum, maximum, exclusiveMinimum and
// exclusiveMaximum of integers; anyOf, oneOf (read as anyOf), allOf of one schema, nullable, and
// $ref to "#" or "#/..." in the same schema, recursion included. Annotations (title, description,
// default, format, ...) and keywords that JSON Schema does not define are ignored.
//
// The documents are a subset of those that satisfy the schema:
// - Properties come in the order of `properties`, then keys that are only `required`, then others.
//   Optional ones may be left out. A key that is not a property is written without \u escapes.
// - Keys, enum and const have one spelling: escapes only where JSON needs them.
// - Between tokens of JSON: nothing, one space, or a newline and up to kMaxIndent spaces; after a
//   colon nothing or one space; none before colons and commas.
// - Integers fit int64; numbers have up to 18 digits before and after the point and two digits of
//   exponent.
// - Keywords of one type without `type` imply that type.
#pragma once

#include "base/json.h"
#include "base/work_limit.h"
#include "text/grammar/automaton.h"

namespace ridge::grammar {

inline constexpr size_t kMaxSchemaBytes = 64 << 10;
inline constexpr int kMaxSchemaNodes = 1000;  // schemas and values of enum and const
inline constexpr int kMaxSchemaDepth = 64;
inline constexpr int kMaxIndent = 64;
// A schema may say little and ask for much: the same long constant for each of a thousand keys.
// Compiling spends a step for about each four bytes of the automaton (builder.h), for sixteen bytes
// of paths into the schema and for a quarter of a keyword that is looked at: a thousand numbers
// under names of ten letters spend about 2 million. grammar.h says how many there are.

// Throws OptionError("response_format", ...) for what is malformed, not supported, too large, or
// has no finite document, and WorkLimitError.
Automaton compile_schema(const Json& schema, WorkLimit& work);

}  // namespace ridge::grammar
