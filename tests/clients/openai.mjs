// The npm package `openai` against `ridge serve`: what it reads, what it throws, what it retries.
//   node openai.mjs RIDGE_BINARY
// Exit 77 (skipped) where the package is missing or does not run in this Node.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";

let OpenAI;
try {
  OpenAI = (await import("openai")).default;
} catch (error) {
  console.log(`skipped: ${error.message} (npm ci in tests/clients)`);
  process.exit(77);
}

const servers = [];

async function start(...options) {
  const child = spawn(process.argv[2], ["serve", "ridge-1m", "--port", "0", ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  servers.push(child);
  const url = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      const found = text.match(/http:\S+\//);
      if (found) resolve(found[0]);
    });
    child.on("exit", () => reject(new Error("ridge serve ended")));
  });
  for (let i = 0; i < 600 && !(await fetch(`${url}health`)).ok; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return url;
}

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

async function running(url) {
  const text = await (await fetch(`${url}metrics`, { headers: { "X-Api-Key": "secret" } })).text();
  return Number(text.match(/^vllm:num_requests_running\S* (\S+)$/m)[1]);
}

async function aborts(client, url) {
  const long = { ...chat, max_tokens: 900, ignore_eos: true, stream: true };
  const stream = await client.chat.completions.create(long);
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    break;  // leaving the loop aborts
  }
  const controller = new AbortController();
  const pending = client.chat.completions.create(
    { ...long, stream: false }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  for (let i = 0; i < 100 && (await running(url)) > 0; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await running(url), 0);
}

async function errors(client, url) {
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

// The server says 429 with Retry-After: the client tries three times, at least that far apart.
async function retries() {
  const url = await start("--max-sequences", "1", "--max-waiting", "1");
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
}

let failed = false;
try {
  const url = await start("--api-key", "secret");
  const client = new OpenAI({ baseURL: `${url}v1`, apiKey: "secret", maxRetries: 0 });
  for (const test of [streams, aborts, errors, structures, retries]) {
    await test(client, url);
    console.log(`${test.name}: well`);
  }
} catch (error) {
  console.error(error);
  failed = true;
} finally {
  for (const server of servers) server.kill("SIGTERM");
}
process.exitCode = failed ? 1 : 0;
