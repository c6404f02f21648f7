#include "predict/users.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

constexpr double kMostUsers = 1 << 20;  // beyond any batch a device meets

Prediction at_batch(Request request, double batch) {
  request.batch = batch;
  return predict(request);
}

}  // namespace

UserLimit users_at(const Request& request, double target_s) {
  if (!(target_s > 0)) throw OptionError("target", "--target must be a time above zero");
  const auto meets = [&](double batch) { return at_batch(request, batch).tpot_s() <= target_s; };
  UserLimit limit;
  if (meets(1)) {
    double low = 1, high = 2;
    while (high < kMostUsers && meets(high)) {
      low = high;
      high *= 2;
    }
    while (high - low > 1) {
      const double middle = std::floor((low + high) / 2);
      (meets(middle) ? low : high) = middle;
    }
    limit.by_latency = low;
  }
  const Prediction beyond = at_batch(request, limit.by_latency + 1);
  if (beyond.memory.capacity) limit.by_memory = beyond.memory.max_batch;
  limit.users = std::min(limit.by_latency, limit.by_memory.value_or(limit.by_latency));
  if (limit.users == limit.by_latency) {
    // Past its capacity a step is marked so; the wall that lengthens it is then the next.
    limit.decides = beyond.memory.fits ? beyond.decode.wall : beyond.decode.next_wall;
  }
  return limit;
}

Json users_json(const Request& request, double target_s) {
  const UserLimit limit = users_at(request, target_s);
  Json json{{"target_s", target_s},
            {"by_memory", limit.by_memory ? Json(*limit.by_memory) : Json()},
            {"by_latency", limit.by_latency},
            {"users", limit.users},
            {"decides", wall_name(limit.decides)}};
  if (limit.users >= 1) {
    const Prediction p = at_batch(request, limit.users);
    json["tpot_s"] = p.tpot_s();
    json["tokens_per_s"] = p.tokens_per_s;
  }
  return json;
}

}  // namespace ridge
