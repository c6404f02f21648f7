// The rules in which serving engines differ. One scheduler (scheduling_rules.h) runs them all.
#pragma once

#include <string>
#include <string_view>

namespace ridge {

struct ServingPolicy {
  int max_tokens = 8192;     // of one step: the token budget
  int max_sequences = 1024;  // running at once
  int page_tokens = 16;
  int pages = 0;  // of the KV cache; 0: as many as the memory holds, which the caller computes

  bool mixed = true;    // prompts share steps with decodes; otherwise prompts run first, alone
  bool chunked = true;  // a prompt may be cut where the budget ends; otherwise it waits for a step

  // What must be free before a request is admitted, beside the pages of its prompt.
  enum class Reservation {
    kPrompt,    // `headroom` pages for each running sequence
    kOutput,    // all pages that it and the running sequences will ever need: nobody is preempted
    kEstimate,  // the outputs left, times a ratio that falls with each decode step (SGLang)
  };
  Reservation reservation = Reservation::kPrompt;
  int headroom = 0;
  // Who loses its pages where a decode finds none: the last of the order, or who has drawn the
  // fewest tokens (SGLang's retraction).
  enum class Victim { kLast, kFewestOutputs };
  Victim victim = Victim::kLast;

  bool prefix_cache = true;
  bool copies_partial_pages = false;  // a cached page counts up to the first token that differs
  bool awaits_prefix = false;  // a request waits while another computes a prefix that it shares

  int poll = 1;         // new requests are received every so many decode steps
  int wait = 0;         // prompts wait up to so many steps for others to run with,
  int wait_tokens = 0;  // or until so many tokens wait; 0: for the whole time
};

// The defaults of "vllm", "sglang", "trtllm" or "ridge" on a device with so much memory; vLLM's for
// any other name.
ServingPolicy policy_of(std::string_view stack, double device_bytes = 80e9);

// "max_num_seqs=64,prefix_cache=off": engines' own option names, onto `policy`. Throws Error for an
// unknown name, a value that is out of range, or limits that contradict each other.
void apply_settings(ServingPolicy& policy, std::string_view settings);

}  // namespace ridge
