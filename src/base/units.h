// Numbers as people read and write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// "3.35 TB/s" style: three significant digits and an SI prefix. Unknown prints as "?".
std::string pretty_bytes(double bytes);           // "140 GB" (decimal); capacities of caches: KiB
std::string pretty_binary(double bytes);          // "228 KiB", "50 MiB", "80 GiB"
std::string pretty_rate(double bytes_per_s);      // "3.35 TB/s"
std::string pretty_flops(double flops);           // "141 GFLOP"
std::string pretty_flop_rate(double flop_per_s);  // "989 TFLOP/s"
std::string pretty_time(double seconds);          // "4.02 ms", "13.6 us", "1 m 12 s"
std::string pretty_count(double count);           // "70.6 B", "8192", "13 k"
std::string pretty_number(double value);          // three significant digits, no prefix: "295"
std::string pretty_percent(double fraction);      // "43 %"

// "28ms", "0.9 s", "280us", "3" (seconds) -> seconds. Throws Error naming `what`.
double parse_seconds(std::string_view text, std::string_view what);
// The same, but a number without a unit is refused, 0 aside: latencies are given in seconds as
// often as in milliseconds.
double parse_latency(std::string_view text, std::string_view what);
// "280tok/s", "280" -> 280. "3.35TB/s", "80GB", "32k" with SI (k, M, G, T) or binary (Ki, Mi)
// prefixes. Where `unit` is empty, "85%" -> 0.85.
double parse_quantity(std::string_view text, std::string_view unit, std::string_view what);
// A list, whose last part may be a range "..END" that goes on as the listed values do:
//   one value          "1..4"         adds 1:              1 2 3 4
//   two values         "1,3..9"       adds their distance: 1 3 5 7 9
//   three or more      "1,2,4..256"   the last three decide: equal distances add, equal ratios
//                                     multiply:            1 2 4 8 ... 256
// END is included where a step lands on it and never passed. Values may carry prefixes ("1k,2k").
// At most 100 000 values. Throws Error naming `what`.
std::vector<double> parse_sweep(std::string_view text, std::string_view what);

}  // namespace ridge
