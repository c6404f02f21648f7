#include "engine/ranks/follower.h"

#include <vector>

#include "engine/ranks/rank_calls.h"
#include "engine/ranks/rank_exchanges.h"
#include "engine/ranks/time_link.h"
#include "engine/runner/profile.h"

namespace ridge {
namespace {

void run_step(Runner& local, Packet& call) {
  const auto count = call.get<size_t>();
  std::vector<std::vector<Token>> tokens(count);
  std::vector<std::vector<int>> pages(count);
  std::vector<Slice> batch(count);
  for (size_t s = 0; s < count; ++s) {
    call.get_list(tokens[s]);
    batch[s].past = call.get<int>();
    call.get_list(pages[s]);
    batch[s].logits = call.get<int>();
    batch[s].tokens = tokens[s];
    batch[s].pages = pages[s];
  }
  local.run(batch);
}

void sample_rows(Runner& local, RankLinks& links, Packet& call) {
  std::vector<TopLogitsRequest> requests(call.get<size_t>());
  for (TopLogitsRequest& request : requests) request = get_request(call);
  if (!links.is_last_stage()) return;
  Packet answer;
  for (const TopLogits& row : local.top_logits(requests)) put(answer, row);
  send_packet(*links.world, 0, answer);
}

// Ranks of a stage do the same at the same time: the first of each stage stands for it.
void send_operators(RankLinks& links, const Profile& profile) {
  if (links.is_first_stage() || links.rank() != links.first_of_stage()) return;
  Packet operators;
  put(operators, profile);
  send_packet(*links.world, 0, operators);
}

}  // namespace

void follow(Runner& local, RankLinks& links) {
  Communicator& world = *links.world;
  sum_when_loaded(world, local.repacked_bytes());
  Packet call;
  Profile profile;
  for (;;) {
    receive_call(world, call);
    switch (call.get<Call>()) {
      case Call::run:
        run_step(local, call);
        break;
      case Call::sample:
        sample_rows(local, links, call);
        break;
      case Call::logits:
        if (links.is_last_stage()) world.send(0, std::as_bytes(local.logits()));
        break;
      case Call::copy_pages: {
        std::vector<PageCopy> copies;
        call.get_list(copies);
        local.copy_pages(copies);
        break;
      }
      case Call::fill_cache:
        local.fill_cache(call.get<uint64_t>());
        break;
      case Call::read_rate:
        read_rate_of_all(links, local);
        break;
      case Call::time_link:
        time_link(links);
        break;
      case Call::profile:
        local.set_profile(call.get<bool>() ? &profile : nullptr);
        send_operators(links, profile);
        profile.clear();
        break;
      case Call::end:
        links.ending = true;
        return;
    }
  }
}

}  // namespace ridge
