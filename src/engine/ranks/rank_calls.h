// What the leader of several ranks broadcasts, and what followers send back: calls of a Runner as
// packets. leader_runner.cc writes the calls and reads the answers, follower.cc the reverse.
#pragma once

#include <cstdint>

#include "engine/runner/profile.h"
#include "engine/sampling/top_logits.h"
#include "ranks/communicator.h"
#include "ranks/packet.h"

namespace ridge {

// What a call's packet begins with. The arguments follow in the order of the comment.
enum class Call : uint8_t {
  run,     // slices: tokens, past, pages, logits of each
  sample,  // requests
  logits,
  copy_pages,  // the copies
  fill_cache,  // the seed
  read_rate,
  time_link,
  profile,  // whether one begins
  end
};

// From rank 0 to all others. The receiver waits without a deadline: the next call comes when a user
// wants something.
void broadcast_call(Communicator& world, Packet& call);
void receive_call(Communicator& world, Packet& call);

// From rank to rank, of a length that only the sender knows.
void send_packet(Communicator& world, int to, Packet& packet);
void receive_packet(Communicator& world, int from, Packet& packet);

void put(Packet& to, const TopLogitsRequest& request);
TopLogitsRequest get_request(Packet& from);
void put(Packet& to, const TopLogits& row);
TopLogits get_top_logits(Packet& from);
// The operators of one stage.
void put(Packet& to, const Profile& profile);
// Adds them to the leader's, but for `receive`: it is the wait for the stage before, whose
// operators count.
void add_operators(Packet& from, Profile& to);

}  // namespace ridge
