#include "model/config_extras.h"

namespace ridge {

void add_text_extras(Model&, const ConfigContext&) {}
void add_towers(Model&, const Fields&) {}

}  // namespace ridge
