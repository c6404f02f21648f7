// Files that the page sends to be explained: POST /api/explain/files. A person drops metrics pages,
// traces, profiles, results or logs on the page and gets what `ridge explain FILE... --json`
// prints.
//
// The body is one line of JSON and the files' bytes, one after the other:
//   {"options": {"machine": "h200"}, "files": [{"name": "a.prom", "bytes": 5, "modified_s": 0}]}\n
// Its type is one that no web page of another origin may send without a preflight. The server takes
// one such body at a time (HttpBodyRule::alone).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace ridge {

constexpr std::string_view kExplainFilesPath = "/api/explain/files";
constexpr std::string_view kExplainFilesType = "application/x-ridge-files";
constexpr size_t kExplainFilesBytes = 256u << 20;  // of a whole body
// Its files may unpack to so much: traces and logs pack to a tenth or a twentieth of their size.
constexpr uint64_t explain_unpacked_bytes(size_t body) { return (16u << 20) + uint64_t{24} * body; }

// The files are read from `body`; nothing is written to disk. Answers and messages have the names
// as sent. Options are those of /api/explain; model and machine are taken from the files unless
// they are given. Throws Error.
Json explain_files(std::string_view body);

}  // namespace ridge
