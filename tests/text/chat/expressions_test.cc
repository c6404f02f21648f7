// Expressions and statements against Jinja itself: tests/data/chat/expressions.json, made by
// tools/goldens/make_chat_goldens.py.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support.h"
#include "text/chat/chat_template.h"
#include "text/chat/interpreter.h"

namespace ridge {
namespace {

TEST(ChatExpressions, AreWhatJinjaSays) {
  const Json file = Json::parse(chat_file("expressions.json"));
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [name, value] : file["variables"].items()) {
    variables.emplace_back(name, jinja::from_json(value, jinja::Origin::of_request));
  }
  ASSERT_GT(file["cases"].size(), 3000u);
  for (const Json& one : file["cases"]) {
    const auto source = one[0].get<std::string>();
    Json got;
    std::string error;
    try {
      WorkLimit work("the chat template", template_steps(0));
      got = run_template(jinja::parse(source), variables, kChatTime, work).bytes();
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(got, one[1]) << source << "   " << error;
  }
}

}  // namespace
}  // namespace ridge
