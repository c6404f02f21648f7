// How the columns of each table become a kernel call.
#pragma once

#include <functional>
#include <string>

#include "validate/csv.h"
#include "validate/silicon.h"

namespace ridge {

// Thrown for one row that cannot be read; the rest of the file is still used.
struct BadRow {
  std::string why;
};

// Fills the call, dtype, kernel and site of a row from the reader's current line.
using RowReader = std::function<void(const CsvReader&, Measurement&)>;
// Throws Error when the file lacks a column of its table. Keeps references to its arguments.
RowReader row_reader(const CsvReader& csv, const SiliconFile& file, const GpuTraits& gpu);

// A field that must hold a number above 0; throws BadRow.
double positive_field(const CsvReader& csv, int column);

}  // namespace ridge
