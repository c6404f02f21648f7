// Names that trace files give to the same things.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ridge {

enum class TraceField : uint8_t {
  other,
  arrival_s,
  arrival_ms,
  timestamp,  // seconds or a date in CSV, milliseconds in JSON
  prompt,
  output,
  blocks,
  block_size,
};

// Letter case, spaces, '_' and '-' do not matter.
TraceField trace_field(std::string_view name);

// "2023-11-16 18:17:03.9799600", also with T, Z or an offset: seconds since 1970.
std::optional<double> parse_date(std::string_view text);

}  // namespace ridge
