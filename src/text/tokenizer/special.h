// Tokens with a meaning that files often leave unsaid.
#pragma once

#include "text/tokenizer/pipeline.h"

namespace ridge {

// Adds to `ends` what ends a generation: eos, and control tokens whose text is known to end a turn.
void add_known_ends(Pipeline& tokenizer);
void add_end(Tokenizer& tokenizer, Token token);  // once

}  // namespace ridge
