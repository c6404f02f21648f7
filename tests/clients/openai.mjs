// The npm package `openai` against `ridge serve`: what it reads, what it throws, what it retries.
//   node openai.mjs RIDGE_BINARY
// Exit 77 (skipped) where the package is missing or does not run in this Node.
import assert from "node:assert/strict";
import { measuredHome, serve } from "../../web/test/serve.mjs";
import { until } from "../../web/test/until.mjs";

let OpenAI;
try {
  OpenAI = (await import("openai")).default;
} catch (error) {
  console.log(`skipped: ${error.message} (npm ci in tests/clients)`);
  process.exit(77);
}

const start = (words, options) => serve(process.argv[2], ["ridge-1m", ...words], { ...options, loaded: true, paced: true });

const story = { model: "ridge-1m", prompt: "Once upon a time", max_tokens: 24, temperature: 0 };
const chat = {
  model: "ridge-1m",
  messages: [{ role: "user", content: "Tell me a story." }],
  max_tokens: 24,
  temperature: 0,
};

async function streams(client) {
  const whole = await client.chat.completions.create(chat);
  let text = "";
  let usage = null;
  let reason = null;
  const options = { ...chat, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(options)) {
    text += chunk.choices[0]?.delta.content ?? "";
    reason ??= chunk.choices[0]?.finish_reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);

  let completed = "";
  for await (const chunk of await client.completions.create({ ...story, stream: true })) {
    completed += chunk.choices[0].text;
  }
  assert.equal(completed, (await client.completions.create(story)).choices[0].text);

  const final = await client.chat.completions.stream(chat).finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
}

async function requests(url) {
  const text = await (await fetch(`${url}metrics`, { headers: { "X-Api-Key": "secret" } })).text();
  const [running, waiting] = ["running", "waiting"].map((state) => Number(text.match(new RegExp(`^vllm:num_requests_${state}\\S* (\\S+)$`, "m"))[1]));
  return running + waiting;
}

// The engine stands still, so that no answer ends before it is aborted.
async function aborts(client, server) {
  const long = { ...chat, max_tokens: 900, ignore_eos: true, stream: true };
  const one = () => until("one request at the engine", async () => (await requests(server.base)) === 1);
  const none = () => until("no request at the engine", async () => (await requests(server.base)) === 0);
  await server.hold();
  await server.step(8); // the first of these begin the stream
  const stream = await client.chat.completions.create(long);
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    await one();
    break;  // leaving the loop aborts
  }
  await none();
  await server.hold();
  await server.step(8);
  const controller = new AbortController();
  const pending = client.chat.completions.create(
    { ...long, stream: false }, { signal: controller.signal });
  const rejected = assert.rejects(pending, OpenAI.APIUserAbortError);
  await one();
  controller.abort();
  await rejected;
  await none();
  await server.go();
}

async function errors(client, { base: url }) {
  await assert.rejects(client.chat.completions.create({ ...chat, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...chat, stream: true, max_tokens: 1e6 }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
  await assert.rejects(client.chat.completions.create({ ...chat, model: "gpt-4" }),
    OpenAI.NotFoundError);
  const stranger = new OpenAI({ baseURL: `${url}v1`, apiKey: "wrong" });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  const models = await client.models.list();
  assert.deepEqual(models.data.map((model) => model.id), ["ridge-1m"]);
}

async function structures(client) {
  const schema = {
    type: "object",
    properties: { kind: { enum: ["cat", "dog"] }, age: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["kind", "age"],
    additionalProperties: false,
  };
  const asked = { ...chat, max_tokens: 100 };
  const formatted = await client.chat.completions.create(
    { ...asked, response_format: { type: "json_schema", json_schema: { name: "pet", schema } } });
  const pet = JSON.parse(formatted.choices[0].message.content);
  assert.ok(["cat", "dog"].includes(pet.kind) && Number.isInteger(pet.age));

  const tools = [{ type: "function", function: { name: "adopt", parameters: schema } }];
  for (const tool_choice of ["required", { type: "function", function: { name: "adopt" } }]) {
    const forced = { ...asked, tools, tool_choice };
    const choice = (await client.chat.completions.create(forced)).choices[0];
    assert.equal(choice.finish_reason, "tool_calls");
    const call = choice.message.tool_calls[0].function;
    assert.equal(call.name, "adopt");
    assert.ok(["cat", "dog"].includes(JSON.parse(call.arguments).kind));
    const final = await client.chat.completions.stream(forced).finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.arguments);
  }
}

// The server says 429 with Retry-After: the client tries three times, at least that far apart. The
// engine stands still: one of the flood may wait, and none gets a place.
async function retries() {
  const { base: url, hold, stop } = await start(["--max-sequences", "1", "--max-waiting", "1"], { env: measuredHome() });
  await hold();
  const times = [];
  const client = new OpenAI({
    baseURL: `${url}v1`,
    apiKey: "none",
    maxRetries: 2,
    fetch: (...args) => {
      times.push(Date.now());
      return fetch(...args);
    },
  });
  const flood = { ...story, n: 32, max_tokens: 900, ignore_eos: true };
  await assert.rejects(client.completions.create(flood), OpenAI.RateLimitError);
  assert.equal(times.length, 3);
  assert.ok(times[1] - times[0] >= 900 && times[2] - times[1] >= 900);
  await stop();
}

const server = await start(["--api-key", "secret"]);
const client = new OpenAI({ baseURL: `${server.base}v1`, apiKey: "secret", maxRetries: 0 });
for (const test of [streams, aborts, errors, structures, retries]) {
  const begin = Date.now();
  await test(client, server);
  console.log(`${test.name}: well (${Date.now() - begin} ms)`);
}
await server.stop();
