// The live panel's store and drawing data, over invented events. Bundled first: node has no types.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { InventedEngine, serving } from "./invented_engine.mjs";

const folder = mkdtempSync(join(tmpdir(), "ridge-live-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const load = async (name) => {
  const outfile = join(folder, `${name}.mjs`);
  await build({ entryPoints: [join(dirname(fileURLToPath(import.meta.url)), `../src/live/${name}.ts`)], bundle: true, format: "esm", outfile });
  return import(outfile);
};
const { LiveStore, letter, kRequests, runningLoad } = await load("store");
const { bars, batchEnds, track, kPrefills, kDecodes, kIdle } = await load("tracks");
const { Ring } = await load("ring");

// A store fed by an engine; its clock is the engine's.
function watched() {
  const sent = [];
  const engine = new InventedEngine((event, data) => { sent.push([event, data]); store.take(event, data); });
  const store = new LiveStore(() => engine.now);
  engine.hello();
  return { engine, store, sent };
}
const run = (engine) => { while (engine.step()); };

// Numbers, strings and cells that are reachable from a value: what grows if something is kept.
function size(value, seen = new Set()) {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null || seen.has(value)) return 1;
  seen.add(value);
  if (ArrayBuffer.isView(value)) return value.length;
  const parts = value instanceof Map ? [...value.values()] : Object.values(value);
  return parts.reduce((sum, part) => sum + size(part, seen), 1);
}

test("a ring keeps its newest rows", () => {
  const ring = new Ring(["t", "v"], 4);
  for (let i = 0; i < 10; ++i) ring.push({ t: i * 2, v: i });
  assert.deepEqual([ring.first, ring.count, ring.at("v", 6), ring.at("v", 9)], [6, 10, 6, 9]);
  assert.deepEqual([ring.from("t", 0), ring.from("t", 13), ring.from("t", 14), ring.from("t", 99)], [6, 7, 7, 10]);
});

test("sums are those of the steps that were sent", () => {
  const { engine, store, sent } = watched();
  engine.arrive(200, 40);
  engine.arrive(30, 60, 16);
  run(engine);
  const steps = sent.filter(([event]) => event === "steps").flatMap(([, data]) => data.steps);
  for (const name of ["generated_tokens", "prefill_tokens", "flops", "measured_s", "accepted_tokens"]) {
    const expected = steps.reduce((sum, step) => sum + step[name], 0);
    assert.ok(Math.abs(store.total[name] / expected - 1) < 1e-12, name);
    assert.ok(Math.abs(store.sum(0)[name] / expected - 1) < 1e-12, name);
  }
  assert.equal(store.total.generated_tokens, 100);
  assert.equal(store.busy, false);
});

test("a request goes from its arrival to its end, and its prefix hit is known", () => {
  const { engine, store } = watched();
  engine.arrive(100, 20, 64);
  assert.equal(store.requests.get(1).cached, 64);
  engine.step();
  assert.equal(store.requests.get(1).state, "running");
  run(engine);
  const request = store.requests.get(1);
  assert.deepEqual([request.state, request.generated, request.end], ["finished", 20, "length"]);
  const row = track(store, request, request.arrived_s, request.ended_s + 0.02, 100);
  assert.equal(row[0], kPrefills);
  assert.equal(row[50], kDecodes);
  assert.equal(row[99], kIdle);
});

test("a preempted request waits until it is computed again", () => {
  const { engine, store } = watched();
  engine.arrive(20, 40);
  engine.step();
  engine.step();
  store.take("requests", { dropped: 0, requests: [{ id: 1, at_s: engine.now, event: "preempted" }] });
  assert.equal(store.requests.get(1).state, "preempted");
  engine.step();
  assert.equal(store.requests.get(1).state, "running");
  assert.equal(store.requests.get(1).resumed_s.length, 1);
});

test("pages: free, cached and held are the pool; a cached page that another request takes was evicted", () => {
  const { engine, store } = watched();
  for (let i = 0; i < 40; ++i) {
    engine.arrive(400, 3);
    run(engine);
    const { free, cached, held } = store.pages;
    assert.equal(free + cached + held, serving.pages);
    assert.equal(store.owners.filter((o) => o === 0).length, free);
    assert.equal(store.owners.filter((o) => o === -1).length, cached);
  }
  assert.deepEqual([...store.order.subarray(0, store.used)].sort((a, b) => a - b), Array.from({ length: serving.pages }, (_, i) => i));
  assert.ok(store.evictions > 0);
  const evictions = store.evictions;
  engine.arrive(400, 3, 400); // as many as its prefix hit says are reused
  assert.equal(store.evictions, evictions);
});

test("bars are steps, or their means, and keep the time", () => {
  const { engine, store } = watched();
  engine.arrive(64, 300);
  run(engine);
  const [from, to] = store.window(false);
  for (const most of [1000, 20]) {
    const list = bars(store, from, to + 1e-9, most);
    assert.ok(list.length <= most);
    assert.equal(list.reduce((sum, bar) => sum + bar.steps, 0), store.total.steps);
    const time = list.reduce((sum, bar) => sum + bar.steps * (bar.prefill_s + bar.decode_s), 0);
    assert.ok(Math.abs(time / store.total.measured_s - 1) < 1e-9);
  }
});

test("the window is the work since the engine was idle, and rests with it", () => {
  const { engine, store } = watched();
  engine.arrive(64, 10);
  run(engine);
  const first = store.window(false);
  engine.now += 60;
  assert.deepEqual(store.window(false), first);
  engine.arrive(64, 10);
  const begin = engine.now;
  run(engine);
  assert.ok(Math.abs(store.window(false)[0] - begin) < 1e-9);
  assert.ok(store.window(true)[1] - store.window(true)[0] === 30);
});

test("an hour of events holds its memory", () => {
  const { engine, store } = watched();
  const tree = { nodes: Array.from({ length: 200 }, (_, i) => ({ id: i + 1, parent: i, pages: 1, tokens: 16, locked: 0 })), left_out: 3 };
  const sizes = [];
  for (let second = 0; second < 3600; ++second) {
    for (let i = 0; i < 2; ++i) engine.arrive(20 + ((second * 7) % 90), 8 + (second % 10), second % 3 ? 0 : 16);
    for (let i = 0; i < 50; ++i) engine.step(0.02);
    store.take("tree", tree);
    if (second % 600 === 599) sizes.push(size(store));
  }
  assert.ok(store.total.steps > 8 * store.entries.capacity, `${store.total.steps} steps`);
  assert.ok(store.requests.size <= kRequests);
  assert.ok(Math.max(...sizes) / Math.min(...sizes) < 1.02, `sizes every ten minutes: ${sizes}`);
});

test("a new stream forgets the one before", () => {
  const { engine, store } = watched();
  engine.arrive(64, 10);
  run(engine);
  engine.hello();
  assert.deepEqual([store.total.steps, store.requests.size, store.entries.count, store.pages.free], [0, 0, 0, serving.pages - store.pages.cached]);
});

test("static batches follow each other, and each ends with its longest answer", () => {
  const request = (scheduled_s, end_s) => ({ scheduled_s, end_s });
  assert.deepEqual(batchEnds([request(0, 2), request(0, 5), request(5, 6), request(0, 3), request(6, 9)]), [5, 5, 6, 5, 9]);
});

test("letters", () => assert.deepEqual([1, 26, 27, 53].map(letter), ["A", "Z", "A1", "A2"]));

test("the batch and context that run now are known, and forgotten when nothing runs", () => {
  const { store } = watched();
  assert.equal(runningLoad(store, 4096), null);
  const at_s = 1;
  const requests = [7, 8].map((id) => ({ id, at_s, event: "arrived", prompt_tokens: 100 }));
  store.take("requests", { requests, dropped: 0 });
  assert.equal(runningLoad(store, 4096), null); // they wait
  store.take("requests", { requests: requests.map((r) => ({ ...r, event: "admitted", cached_tokens: 0 })), dropped: 0 });
  assert.deepEqual(runningLoad(store, 4096), { batch: 2, context: 128 });
  assert.deepEqual(runningLoad(store, 100), { batch: 2, context: 100 });
  store.take("requests", { requests: [{ ...requests[0], event: "finished", cached_tokens: 0, generated_tokens: 5, end: "length" }], dropped: 0 });
  assert.equal(runningLoad(store, 4096).batch, 1);
});

test("a busy machine is remembered until it is quiet, or another stream begins", () => {
  const { engine, store } = watched();
  assert.equal(store.load.busy, false);
  store.take("load", { others: 0.4, busy: true });
  assert.deepEqual(store.load, { others: 0.4, busy: true });
  engine.hello();
  assert.equal(store.load.busy, false);
});
