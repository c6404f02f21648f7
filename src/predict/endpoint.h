// An endpoint whose clients each send a prompt, read the answer, and send the next: mean times from
// a closed form over predicted steps. serving/simulation.h runs the same steps through a scheduler.
#pragma once

#include "roofline/stack.h"

namespace ridge {

struct Request;

struct Load {
  double clients = 1;    // requests in the system at once
  double rate = 0;       // requests/s that arrive at random; 0: clients send again when answered
  double prompt = 1024;  // tokens
  double output = 1024;  // tokens
  // Requests that each client sends. All clients start together, so that the first requests wait
  // for each other's prompts. 0: so many that the start does not count.
  double rounds = 0;
  double spread = 0;  // lengths are uniform within so much of the mean, up and down
  // What a server's settings add to the first token, in steps: it looks for new requests every
  // `poll` steps, and holds prompts back `wait` steps so that they run together.
  double poll = 0, wait = 0;
};

// What the device does, host work left out.
struct EndpointParts {
  double running = 0;  // sequences that decode at once: the clients, or what the memory holds
  double batch = 0;    // of these, on one replica
  double decode_s = 0, decode_experts_s = 0;  // a step without prompt tokens
  double prompt_s = 0, prompt_experts_s = 0;  // what one prompt adds to the steps that carry it
  double together = 1;                        // prompts that fit one step
  double chunks = 1;                          // or steps that one prompt takes
  double layers = 0;
  double doublings = 0;        // of the tensor ranks
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

EndpointParts endpoint_parts(const Request& request, const Load& load);

// With the host's work. Every sequence waits for the prompts of the others on its replica:
// (batch - 1) / output of a prompt per step.
EndpointEstimate estimate_endpoint(const EndpointParts& parts, const HostCosts& host,
                                   const Load& load);
EndpointEstimate estimate_endpoint(const Request& request, const Load& load);

// Requests in the system where `rate` arrive each second (Little's law). Throws OptionError where
// the endpoint serves fewer.
double clients_at_rate(const Request& request, const Load& load, double rate);

}  // namespace ridge
