// Memory that was freed, back to the system.
#pragma once

namespace ridge {

// The allocator keeps what threads have freed, most of it in pieces that no thread asks for again.
// Takes about a millisecond for each MiB of small pieces, during which each of the allocator's
// arenas is locked once: for use after work that freed many MiB.
void return_free_memory();

// For a process that serves: blocks of 4 MiB and more go back as soon as they are freed, and each
// arena keeps at most as much at its end. By default both bounds grow with what was freed before,
// to 32 and 64 MiB. Call it before threads start.
void limit_kept_memory();

}  // namespace ridge
