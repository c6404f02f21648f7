// Thrown where the same may be asked again soon: 503.
#pragma once

#include "base/error.h"

namespace ridge {

class BusyError : public Error {
 public:
  using Error::Error;
};

}  // namespace ridge
