// Scales, formats and requests, and that views.json asks for what exists. Bundled first: node has no types.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "ridge-unit-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const bundle = async (name) => {
  const outfile = join(folder, `${name}.mjs`);
  await build({ entryPoints: [join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, `../src/${name}.ts`)], bundle: true, format: "esm", outfile });
  return outfile;
};
const load = async (name) => import(await bundle(name));
const scale = await load("scale");
const format = await load("format");

test("a log scale spaces decades evenly and inverts", () => {
  const x = scale.logScale(0.1, 1000, 0, 400);
  assert.equal(Math.round(x(0.1)), 0);
  assert.equal(Math.round(x(1)), 100);
  assert.equal(Math.round(x(1000)), 400);
  for (const v of [0.2, 3, 777]) assert.ok(Math.abs(x.invert(x(v)) / v - 1) < 1e-12);
});
test("log ticks are decades, refined with room and thinned without", () => {
  assert.deepEqual(scale.logTicks(1, 1000, 4), [1, 10, 100, 1000]);
  assert.deepEqual(scale.logTicks(1, 100, 9), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(scale.logTicks(1, 1e6, 4), [1, 100, 10000, 1000000]);
});
test("linear ticks are round and inside", () => {
  assert.deepEqual(scale.linearTicks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(scale.linearTicks(0, 0.0131, 4), [0, 0.005, 0.01]);
  assert.deepEqual(scale.linearTicks(3, 3, 4), [3]);
});
test("domains hold every value and are never empty", () => {
  const [low, high] = scale.logDomain([3, 0, 500, NaN]);
  assert.ok(low < 3 && high > 500);
  const [a, b] = scale.logDomain([7]);
  assert.ok(a < 7 && b > 7 && b / a > 1.5);
});
test("a slider reaches both ends and its values come back", () => {
  assert.equal(scale.fromSlider(0, 1, 4096, 240), 1);
  assert.equal(scale.fromSlider(240, 1, 4096, 240), 4096);
  for (const v of [1, 2, 8, 64, 1024]) assert.equal(scale.fromSlider(scale.toSlider(v, 1, 4096, 240), 1, 4096, 240), v);
});
test("numbers read as the command line writes them", () => {
  assert.equal(format.seconds(0.004023), "4.02 ms");
  assert.equal(format.seconds(13.6e-6), "13.6 µs");
  assert.equal(format.seconds(72), "72.0 s");
  assert.equal(format.seconds(132), "2 m 12 s");
  assert.equal(format.bytes(1.41e11), "141 GB");
  assert.equal(format.rate(3.35e12), "3.35 TB/s");
  assert.equal(format.flopRate(989e12), "989 TFLOP/s");
  assert.equal(format.binary(233472), "228 KiB");
  assert.equal(format.percent(0.432), "43 %");
  assert.equal(format.percent(0.005), "0.5 %");
  assert.equal(format.percent(0.0002), "<0.1 %");
  assert.equal(format.percent(0), "0 %");
  assert.equal(format.count(1024), "1024");
  assert.equal(format.count(70.6e9), "70.6 B");
  assert.equal(format.times(2.5), "×2.50");
});
test("the unknown is said to be", () => {
  for (const f of ["seconds", "bytes", "rate", "flopRate", "percent", "count"]) {
    assert.equal(format[f](null), "?");
    assert.equal(format[f](undefined), "?");
    assert.equal(format[f](NaN), "?");
  }
});
test("rounding never writes four digits", () => {
  for (const v of [9.996e-4, 9.9951, 99.96, 999.6, 0.99951e6]) assert.ok(format.digits(v / 10 ** Math.floor(Math.log10(v))).length <= 4);
  assert.equal(format.seconds(0.99996e-3), "1.00 ms");
});
test("CSV quotes what needs it and leaves out objects", () => {
  assert.equal(format.csv([{ a: 1, b: 'x,"y"', c: { d: 1 } }]), 'a,b\n1,"x,""y"""\n');
});
// Rows of src/diagnose/quantity.cc: name, unit and the option of ridge explain, if it has one.
const quantities = [...readFileSync(new URL("../../src/diagnose/quantity.cc", import.meta.url), "utf8")
  .matchAll(/\{Q::\w+, "(\w+)", U::(\w+), (?:nullptr|"([\w-]+)")/g)].map(([, name, unit, option]) => ({ name, unit, option }));
test("every observed quantity is written with its unit", () => {
  assert.ok(quantities.length > 50);
  const written = {
    number: /^0\.25$/, share: /^25 %$/, seconds: /^250 ms$/, rate: /^0\.25( tok)?\/s$/, watts: / W$/, hertz: / MHz$/, bytes: /^0\.25 B$/,
    bytes_per_s: / B\/s$/, flops_per_s: / FLOP\/s$/, celsius: / °C$/,
  };
  for (const { name, unit } of quantities) assert.match(format.quantity(name, 0.25), written[unit], name);
  assert.equal(format.quantity("tokens_per_s", 1118.02), "1118 tok/s");
  assert.equal(format.quantity("sm_clock", 1.41e9), "1410 MHz");
  assert.equal(format.quantity("memory_total", 1.5e10), "15.0 GB");
});
test("the form sends every number that a person can state", () => {
  const { also, rename } = JSON.parse(readFileSync(new URL("../src/views.json", import.meta.url), "utf8")).explain;
  // These are rarer, and left to the command line; wall-time is of a file.
  const left = ["wall-time", "concurrency", "arrivals", "served", "e2e", "prefill-time", "prompt-throughput", "max-sm-clock"];
  const stated = quantities.map(({ option }) => option).filter((option) => option && !left.includes(option));
  assert.deepEqual(also.map((name) => rename[name] ?? name).sort(), stated.sort());
});

// The wrapper of fetch in a copy of its own, before a server that answers when the test says so.
let copies = 0;
async function wrapped() {
  const module = await import(`${await bundle("request")}?${copies++}`);
  const sent = [];
  globalThis.fetch = (url, options) => new Promise((resolve, reject) => {
    if (options.signal?.aborted) return reject(options.signal.reason);
    sent.push({ url, options, answer: (status, body = {}) => resolve(new Response(status === 204 ? null : JSON.stringify(body), { status })) });
  });
  const turns = () => new Promise((resolve) => setImmediate(resolve)); // what the answers set off is done
  return { ...module, sent, turns };
}
test("an answer other than 401 is the caller's, and no key is asked for", async () => {
  const { request, keyWanted, sent } = await wrapped();
  for (const status of [200, 400, 403, 500]) {
    const asked = request("/api/predict");
    sent.pop().answer(status);
    assert.equal((await asked).status, status);
    assert.equal(keyWanted.value, false);
  }
});
test("requests wait for one key, and are made again as they were", async () => {
  const { request, post, giveKey, keyWanted, sent, turns } = await wrapped();
  const body = new Blob(["files"]);
  const asked = [request("/api/predict"), request("/api/explain/files", { method: "POST", body }), post("/v1/completions", { prompt: "a" })];
  const first = sent.splice(0);
  first[0].answer(401);
  first[1].answer(401);
  await turns();
  assert.equal(keyWanted.value, true);
  assert.equal(sent.length, 0); // nothing is asked for again before the key

  const wrong = giveKey("guess");
  assert.deepEqual([sent[0].url, JSON.parse(sent[0].options.body)], ["/api/login", { key: "guess" }]);
  sent.pop().answer(401);
  assert.match(await wrong, /does not know this key/);
  assert.equal(keyWanted.value, true);

  const right = giveKey("secret");
  sent.pop().answer(204);
  assert.equal(await right, "");
  assert.equal(keyWanted.value, false);
  first[2].answer(401); // made before the login, answered after it: no second dialog
  await turns();
  assert.equal(keyWanted.value, false);
  assert.deepEqual(sent.map(({ url }) => url), ["/api/predict", "/api/explain/files", "/v1/completions"]);
  assert.equal(sent[1].options.body, body);
  assert.equal(sent[2].options.body, '{"prompt":"a"}');
  for (const each of sent) each.answer(200);
  assert.deepEqual((await Promise.all(asked)).map(({ status }) => status), [200, 200, 200]);
});
test("a key that is no longer taken is asked for again", async () => {
  const { request, giveKey, keyWanted, sent, turns } = await wrapped();
  void request("/api/predict");
  for (let round = 0; round < 2; ++round) {
    sent.pop().answer(401);
    await turns();
    assert.equal(keyWanted.value, true);
    const given = giveKey("secret");
    sent.pop().answer(204);
    await given;
    await turns();
    assert.equal(keyWanted.value, false);
    assert.equal(sent.length, 1);
  }
});
test("a request that is given up does not wait for the key", async () => {
  const { request, giveKey, sent, turns } = await wrapped();
  const abort = new AbortController();
  const asked = request("/api/predict", { signal: abort.signal });
  sent.pop().answer(401);
  await turns();
  abort.abort();
  await assert.rejects(asked, { name: "AbortError" });
  const given = giveKey("secret");
  sent.pop().answer(204);
  await given;
  await turns();
  assert.equal(sent.length, 0);
});
test("what is wrong with a login is told", async () => {
  const { giveKey, sent } = await wrapped();
  const given = giveKey("secret");
  sent.pop().answer(503, { error: { message: "too busy" } });
  assert.equal(await given, "too busy");
  globalThis.fetch = () => Promise.reject(new TypeError("refused"));
  assert.match(await giveKey("secret"), /is `ridge serve` still running/);
});

test("views ask for paths of the API", () => {
  const views = JSON.parse(readFileSync(new URL("../src/views.json", import.meta.url), "utf8"));
  for (const view of Object.values(views)) assert.match(view.path, /^\/api\/[a-z]+$/);
});
