#include "base/error.h"
#include "base/random.h"
#include "page/api_options.h"
#include "page/motion_api.h"
#include "step/plan.h"

namespace ridge {

Json speculation_trace(const ApiOptions& given) {
  ApiOptions options = given;
  options.try_emplace("speculate", "4");
  const Request request = request_of(options, 2);
  const Plan& plan = request.plan;
  if (plan.speculate < 1) throw OptionError("speculate", "speculate must be at least 1 here");
  const int rounds = whole_option(given, "rounds", 12, 1, 64);
  const int seed = whole_option(given, "seed", 1, 0, 1 << 30);
  Request alone = request;
  alone.plan.speculate = 0;
  alone.draft.reset();
  const Prediction plain = predict(alone), speculative = predict(request);
  SplitMix64 random{uint64_t(seed)};
  Json list = Json::array();
  int tokens = 0;
  for (int round = 0; round < rounds; ++round) {
    // Every round draws k numbers, so that another acceptance changes only who is accepted.
    int accepted = 0;
    bool missed = false;
    for (int i = 0; i < plan.speculate; ++i) {
      missed = unit_interval(random.next()) >= plan.acceptance || missed;
      if (!missed) ++accepted;
    }
    tokens += accepted + 1;  // the large model's own token replaces the first miss or comes on top
    list.push_back({{"accepted", accepted}, {"tokens", accepted + 1}});
  }
  const double round_s = speculative.decode.expected_s;
  return {{"model", request.model->name},
          {"draft", request.draft ? Json(request.draft->name) : Json()},
          {"machine", request.system.name()},
          {"batch", request.batch},
          {"speculate", plan.speculate},
          {"acceptance", plan.acceptance},
          {"draft_s", speculative.draft_s / plan.speculate},
          {"verify_s", round_s - speculative.draft_s},
          {"round_s", round_s},
          {"step_s", plain.decode.expected_s},
          {"tokens_per_round", speculative.tokens_per_step},
          {"gain", speculative.tokens_per_s / plain.tokens_per_s},
          {"rounds", list},
          {"tokens", tokens},
          {"seconds", rounds * round_s},
          {"plain_tokens", int(rounds * round_s / plain.decode.expected_s)}};
}

}  // namespace ridge
