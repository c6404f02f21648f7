// What a chat template may cost, at the bounds and beyond.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support.h"
#include "text/chat/chat_template.h"
#include "text/chat/interpreter.h"

namespace ridge {
namespace {

using jinja::Value;

uint64_t steps_of(const std::string& source, const Value& x, uint64_t most = template_steps(0)) {
  WorkLimit work("the chat template", most);
  run_template(jinja::parse(source), {{"x", x}}, kChatTime, work);
  return work.spent();
}

std::string refusal_of(const std::string& source, const Value& x) {
  try {
    steps_of(source, x);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatWork, TheLastStepIsAllowedAndTheNextIsNot) {
  const std::string source = "{% for c in x %}{{ (c ~ x)|replace('a', 'b')|upper }}{% endfor %}";
  const Value text = jinja::string_value("banana");
  const uint64_t steps = steps_of(source, text);
  EXPECT_EQ(steps_of(source, text, steps), steps);
  EXPECT_THROW(steps_of(source, text, steps - 1), WorkLimitError);
}

TEST(ChatWork, EveryLoopAndEveryTextSpends) {
  const Value text = jinja::string_value(std::string(1 << 20, 'a'));
  for (const char* turn :
       {"{{ x|upper|length }}", "{{ x.split('b')|length }}", "{{ (x ~ 'b')|length }}",
        "{{ x|replace('a', 'b')|length }}", "{{ x in x }}", "{{ x.strip(x) }}",
        "{{ x|tojson|length }}", "{{ [x]|join|length }}", "{{ x[::-1]|length }}", "{{ x == x }}",
        "{{ x.find('b') }}", "{% set y %}{{ x }}{% endset %}", "{{ (x + x)|length }}",
        "{{ x|indent|length }}", "{{ 'a' * 1000000 }}", "{{ range(99999)|sort|length }}"}) {
    const std::string loop =
        "{% for i in range(9999) %}{% set y %}" + std::string(turn) + "{% endset %}{% endfor %}";
    EXPECT_THROW(steps_of(loop, text), WorkLimitError) << turn;
  }
}

TEST(ChatWork, AListHasABoundedNumberOfValues) {
  const auto commas = [](size_t count) { return jinja::string_value(std::string(count, ',')); };
  const std::string split = "{{ x.split(',')|length }}";
  EXPECT_EQ(refusal_of(split, commas(jinja::kMaxItems - 1)), "");
  EXPECT_NE(refusal_of(split, commas(jinja::kMaxItems)).find("a list of more than"),
            std::string::npos);
  for (const char* source : {"{{ x|list|length }}", "{{ x.rsplit(',')|length }}",
                             "{{ ([1] * 300000)|length }}", "{{ (range(99999)|list * 3)|length }}",
                             "{% set y = range(99999)|list %}{% set z = y + y + y %}"}) {
    EXPECT_NE(refusal_of(source, commas(jinja::kMaxItems + 1)).find("a list of more than"),
              std::string::npos)
        << source;
  }
}

TEST(ChatWork, LongChatsAreNotRefused) {
  const auto tokenizer = chat_tokenizer(chat_file("qwen3.jinja"));
  ChatRequest request;
  request.messages = Json::array();
  for (int i = 0; i < 20'000; ++i) {
    request.messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "x"}});
  }
  EXPECT_GT(ChatTemplate(*tokenizer).text(request).size(), 400'000u);
  request.messages = {{{"role", "user"}, {"content", std::string(8 << 20, ' ') + "x"}}};
  EXPECT_GT(ChatTemplate(*tokenizer).text(request).size(), size_t{8} << 20);
}

TEST(ChatWork, AClientWhoLeavesEndsTheWork) {
  const auto tokenizer = chat_tokenizer(
      "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}");
  ChatRequest request;
  request.messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  int asked = 0;
  try {
    ChatTemplate(*tokenizer).tokens(request, [&] { return ++asked > 3; });
    ADD_FAILURE() << "nothing was refused";
  } catch (const WorkLimitError& error) {
    EXPECT_EQ(error.reason(), WorkLimitError::Reason::cancelled);
  }
}

}  // namespace
}  // namespace ridge
