// What the engine's inbox counts: nobody gets in between the moment when the engine takes what has
// arrived and the moment when it says what waits.
#include "serving/engine_inbox.h"

#include <gtest/gtest.h>

#include "serving/engine_support.h"

namespace ridge {
namespace {

TEST(EngineInbox, CountsWhatTheEngineHasTakenAsWaiting) {
  const Weights weights = load_weights(kModel);
  const auto arrival = [&] {
    ServingRequest request;
    request.prompt = {1, 2, 3};
    return std::make_unique<ActiveRequest>(weights, std::move(request));
  };
  EngineInbox inbox(2);
  EXPECT_TRUE(inbox.submit(arrival()));
  EXPECT_TRUE(inbox.submit(arrival()));
  EXPECT_FALSE(inbox.submit(arrival()));
  EngineInbox::Events events;
  ASSERT_TRUE(inbox.take(events));
  EXPECT_EQ(events.arrived.size(), 2u);
  EXPECT_FALSE(inbox.submit(arrival()));
  inbox.set_load(1, true);  // one of them runs
  EXPECT_TRUE(inbox.submit(arrival()));
  EXPECT_FALSE(inbox.submit(arrival()));
  ASSERT_TRUE(inbox.take(events));
  EXPECT_FALSE(inbox.submit(arrival()));
  inbox.set_load(0, true);
  EXPECT_TRUE(inbox.submit(arrival()));
  EXPECT_TRUE(inbox.submit(arrival()));
  EXPECT_FALSE(inbox.submit(arrival()));
}

}  // namespace
}  // namespace ridge
