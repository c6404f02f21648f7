// A diagnosis as JSON: docs/json.md describes the fields.
#pragma once

#include "base/json.h"
#include "diagnose/diagnose.h"

namespace ridge {

Json to_json(const Diagnosis& diagnosis);

}  // namespace ridge
