// An endpoint in steady state: clients that each send a prompt, read the answer, and send the next.
#pragma once

namespace ridge {

struct Request;
struct Stack;

struct Load {
  double clients = 1;    // requests in the system at once
  double prompt = 1024;  // tokens
  double output = 1024;  // tokens
};

// What the device does, host work left out.
struct EndpointParts {
  double running = 0;   // sequences that decode at once: the clients, or what the memory holds
  double others = 0;    // of these, those one sequence shares its replica with
  double decode_s = 0;  // a step without prompt tokens
  double prompt_s = 0;  // what one prompt adds to the steps that carry it
  double chunks = 0;    // how many steps that are
  double layers = 0;
  double draft_s = 0;          // drafting within a step, host work included
  double tokens_per_step = 1;  // per sequence, above 1 with speculation
};

struct EndpointEstimate {
  double running = 0;
  double tpot_s = 0;  // mean time between a user's tokens
  double ttft_s = 0;  // mean time to first token
  double tokens_per_s = 0;
};

// Prompt tokens a step takes at most.
double endpoint_chunk(const Request& request, double prompt);
// Sequences that run at once: the clients, or what the memory holds. 0: not even one fits.
double endpoint_batch(const Request& request, const Load& load);

// A step that carries prompt tokens beside the decoding sequences reads the weights once for both,
// so a prompt costs only what it adds.
EndpointParts endpoint_parts(const Request& request, const Load& load);

// With the stack's host work. Every sequence waits for the prompts of the others: others / output
// of a prompt per step.
EndpointEstimate estimate_endpoint(const EndpointParts& parts, const Stack& stack,
                                   const Load& load);

}  // namespace ridge
