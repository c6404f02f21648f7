// Any bytes as a chat template, and as what a model writes: an Error or a text, in bounded time.
// The text's special tokens are the template's own, and no part of a call gets lost.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "replay.h"
#include "text/chat/chat_template.h"
#include "text/chat/interpreter.h"
#include "text/chat/tool_calls.h"

namespace {

using ridge::Json;
namespace jinja = ridge::jinja;

void require(bool holds) {
  if (!holds) std::abort();
}

// The character that only the request has: wherever it comes out, it must be marked.
constexpr char kMarked = '\x02';

void run(std::string_view source) {
  const Json messages = Json::parse(R"([
      {"role": "system", "content": "a \u0002 b"}, {"role": "user", "content": "\u0002"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f\u0002",
       "arguments": {"k\u0002": [1, 2.5, true, null, "\u0002 é"]}}}]}])");
  if (source.find('\x02') != source.npos || source.find('\\') != source.npos) return;
  ridge::WorkLimit work("the chat template", ridge::template_steps(messages.dump().size()));
  const jinja::Text text =
      run_template(jinja::parse(source),
                   {{"messages", jinja::from_json(messages, jinja::Origin::of_request)},
                    {"tools", jinja::None{}},
                    {"bos_token", jinja::string_value("<s>")},
                    {"add_generation_prompt", true}},
                   0, work);
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.bytes()[at] == kMarked) require(text.origin(at) == jinja::Origin::of_request);
  }
}

std::string without_blanks(std::string_view text) {
  std::string rest;
  for (char c : text) {
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') rest += c;
  }
  return rest;
}

// Cut anywhere, the same content and calls; without a call, all of the text.
void read_calls(std::string_view text, ridge::ToolCallStyle style) {
  const auto collect = [&](size_t step) {
    ridge::ToolCallParser parser(style);
    std::string content, calls;
    const auto add = [&](const ridge::ToolCallOutput& out) {
      content += out.content;
      for (const auto& piece : out.calls) {
        if (!piece.name.empty()) calls += "|" + std::to_string(piece.index) + piece.name;
        calls += piece.arguments;
      }
    };
    for (size_t at = 0; at < text.size(); at += step) add(parser.push(text.substr(at, step)));
    add(parser.finish());
    if (parser.calls() == 0) require(content == text);
    require(without_blanks(content).size() <= without_blanks(text).size());
    return content + '\0' + calls;
  };
  const std::string whole = collect(text.size() + 1);
  require(collect(1) == whole && collect(3) == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto style : {ridge::ToolCallStyle::tagged, ridge::ToolCallStyle::bare}) {
    read_calls(bytes, style);
  }
  try {
    run(bytes);
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "{% for m in messages %}{{ '<|' + m.role + '|>\n' ~ m['content']|trim }}{% endfor %}",
      "{%- set ns = namespace(i=0) -%}{% for m in messages[::-1] if m.content is string -%}\n"
      "{% set ns.i = ns.i + loop.index0 %}{{ m.content.split(' ')[-1]|upper }}{% else %}x\n"
      "{%- endfor +%}{{ ns.i }}",
      "{% macro show(c, n=2) %}{% for k, v in c.function.arguments|items %}{{ k }}={{ v|tojson("
      "indent=n) }}{{ ', ' if not loop.last }}{% endfor %}{% endmacro %}{{ show(messages[2]."
      "tool_calls[0]) }}",
      "{% set x %}{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join("
      "'-') }}{% endset %}{{ x * 3 }}{{ (x|length + 1) // 2 }}{# c #}{% generation %}{{ bos_token "
      "}}{% endgeneration %}",
      "{% if tools is none and add_generation_prompt %}{{ raise_exception('no') if false else "
      "strftime_now('%Y') }}{% elif [1, (2, 3), {'a': 1}] %}{% endif %}{{ messages|string|replace("
      "'a', 'b')|indent(2) }}{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i "
      "}}{% break %}{% endfor %}",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\", {}], \"b\": "
      "null}}\n</tool_call> then",
      "text <tool_call>{\"arguments\": \"{}\", \"name\": \"g\"}</tool_call><tool_call>{\"name\": "
      "1}",
      "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": -1.5e3}}; "
      "{\"name\": \"g\", \"parameters\": {}}"};
}
