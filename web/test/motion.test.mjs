// The pure parts of the animations: what they show at a moment adds up. Bundled first: node has no types.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, test } from "node:test";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "ridge-motion-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const load = async (name) => {
  const outfile = join(folder, `${basename(name)}.mjs`);
  await build({ entryPoints: [new URL(`../src/${name}.ts`, import.meta.url).pathname], bundle: true, format: "esm", outfile });
  return import(outfile);
};
const timeline = await load("timeline");
const step = await load("motion/step-frame");
const pipeline = await load("motion/pipeline");
const attention = await load("motion/attention-frame");
const kv = await load("motion/kv-frame");
const batching = await load("motion/batching-frame");
const speculation = await load("motion/speculation-frame");

const near = (a, b) => assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${a} is not ${b}`);

test("time on the screen is linear in every scene, and converts back", () => {
  const film = { scenes: [{ seconds: 1e-4, screen: 8 }, { seconds: 4e-3, screen: 4 }], events: [{ at: 0, text: "a" }, { at: 1e-4, text: "b" }, { at: 1e-4, text: "c" }] };
  near(timeline.shownAt(film, 4), 5e-5);
  near(timeline.shownAt(film, 10), 1e-4 + 2e-3);
  near(timeline.shownAt(film, 99), 4.1e-3);
  for (const s of [0, 3, 8, 9, 12]) near(timeline.screenAt(film, timeline.shownAt(film, s)), s);
  near(timeline.slowdown(film, 1), 80000);
  near(timeline.slowdown(film, 11), 1000);
  assert.equal(timeline.lastEvent(film, 0), 0);
  assert.equal(timeline.lastEvent(film, 5e-5), 0);
  assert.equal(timeline.lastEvent(film, 1e-4), 2);
  assert.equal(timeline.stepFrom(film, 2, 1), 2);
  assert.equal(timeline.stepFrom(film, 0, -1), -1);
});

test("a decode step ends with the sums of its operators", () => {
  const op = (name, count, seconds, bytes) => ({ name, count, flops: 2 * bytes, bytes, expected_s: seconds, at_peak_s: seconds / 100, weight_bytes: bytes * 0.7, kv_bytes: bytes * 0.2, act_bytes: bytes * 0.1 });
  const ops = [op("embed", 1, 1, 10), op("qkv", 32, 64, 3200), op("gate_up", 32, 96, 6400), op("head", 1, 5, 500)];
  const plan = step.stepPlan(ops, 32, 170);
  assert.deepEqual(plan.blocks.map((b) => b.name).filter((n) => !n.startsWith("layer")), ["embed", "qkv", "gate_up", "head", "host"]);
  assert.equal(plan.blocks.length, 5 + 31);
  const end = step.stepFrame(plan, plan.seconds);
  near(end.bytes, 10110);
  near(end.flops, 20220);
  near(end.idle, 1 - 1.66 / 170);
  let before = 0;
  for (let i = 0; i <= 50; ++i) {
    const { bytes } = step.stepFrame(plan, (plan.seconds * i) / 50);
    assert.ok(bytes >= before);
    before = bytes;
  }
  for (const b of plan.blocks) near(b.w + b.k + b.a, b.bytes);
});

test("a tile is in one state, and bubbles fill what the unit does not use", () => {
  const tile = (t) => ({ issued_s: t, started_s: t + 1, from_memory_s: t + 3, in_shared_s: t + 4, computing_s: t + 5, done_s: t + 7 });
  const run = { stages: 1, seconds: 14, memory_busy: 0, compute_busy: 0, steps: [tile(0), tile(7)] };
  assert.deepEqual([0, 2, 3.5, 4.5, 6, 8].map((t) => pipeline.tileState(run.steps[0], t)), ["queued", "wire", "cache", "ready", "computing", "done"]);
  assert.equal(pipeline.tileState(run.steps[1], 3), "waiting");
  assert.deepEqual(pipeline.bubbles(run), [{ from: 0, to: 5 }, { from: 7, to: 12 }]);
  near(pipeline.pipelineFrame(run, 14).idle + 4, 14);
  assert.equal(pipeline.pipelineFrame(run, 14).done, 2);
});

test("both forms of attention move exactly their bytes", () => {
  const form = { flops: 1, bytes: 100, chip_bytes: 0, launches: 1, expected_s: 2, moves: [{ name: "read Q", bytes: 10 }, { name: "write S", bytes: 60 }, { name: "write O", bytes: 30 }] };
  const half = attention.plainFrame(form, 1);
  assert.deepEqual(half.moved, [10, 40, 0]);
  assert.equal(half.move, 1);
  near(half.part, 40 / 60);
  assert.deepEqual(attention.plainFrame(form, 2).moved, [10, 60, 30]);
  assert.equal(attention.plainFrame(form, 5).bytes, 100);
  const tiled = attention.tiledFrame(form, 9);
  assert.equal(tiled.bytes, 100);
  assert.equal(tiled.rows, 4);
  assert.equal(tiled.tile, attention.kTiles.length);
  for (const [q, k] of attention.kTiles) assert.ok(k <= q, "a masked tile is visited");
});

test("pages are conserved through share, copy and release", () => {
  const event = (kind, sequence, page, tokens, more = {}) => ({ event: "", kind, sequence, page, from: null, tokens, references: 1, bytes: kind === "copy" ? 80 : 0, free: 0, ...more });
  const data = {
    pages: 4, page_tokens: 16, tpot_s: 1,
    trace: [event("acquire", "A", 0, 0), event("append", "A", 0, 8), event("share", "B", 0, 8, { references: 2 }), event("copy", "B", 1, 8, { from: 0 }), event("append", "B", 1, 12),
      event("release", "A", 0, 0, { references: 0 })],
  };
  const held = [1, 1, 1, 2, 2, 1];
  held.forEach((n, i) => assert.equal(kv.kvFrame(data, i + 1).held, n, `after ${i + 1}`));
  const shared = kv.kvFrame(data, 3);
  assert.deepEqual(shared.pages[0].owners, ["A", "B"]);
  const end = kv.kvFrame(data, 6);
  assert.deepEqual(end.tables, { B: [1] });
  assert.equal(end.copied, 80);
  assert.equal(end.appended, 12);
  assert.equal(kv.kvFrame(data, 1, 0.5).pages[0].tokens, 4);
  assert.deepEqual(kv.durations(data).map((d) => d > 0), Array(6).fill(true));
});

test("a schedule's counters end at its totals", () => {
  const row = (request, seat, prompt, drawn) => ({ request, seat, prompt, drawn });
  const run = {
    policy: "continuous", seconds: 4, tokens: 4, useful_seats: 0.75, requests: [{ scheduled_s: 0, end_s: 3 }, { scheduled_s: 1, end_s: 4 }],
    steps: [{ start_s: 0, seconds: 1, rows: [row(0, 0, 9, true)] }, { start_s: 1, seconds: 1, rows: [row(0, 0, 0, true), row(1, 1, 5, false)] },
      { start_s: 2, seconds: 1, rows: [row(0, 0, 0, true), row(1, 1, 5, true)] }, { start_s: 3, seconds: 1, rows: [row(1, 1, 0, true)] }],
  };
  const data = { seats: 2, requests: [{ arrival_s: 0 }, { arrival_s: 0.5 }], runs: [run] };
  assert.deepEqual(batching.scheduleFrame(data, run, 0.7).waiting, [1]);
  assert.deepEqual(batching.scheduleFrame(data, run, 3), { tokens: 4, useful: 5 / 6, waiting: [], done: 1 });
  assert.equal(batching.scheduleFrame(data, run, 4).useful, 0.75);
  const parts = batching.pieces(run);
  assert.deepEqual(parts.map((p) => [p.request, p.prompt, p.from, p.to]), [[0, true, 0, 1], [0, false, 1, 3], [1, true, 1, 3], [1, false, 3, 4]]);
});

test("rounds of speculation count their tokens when they end", () => {
  const data = { speculate: 4, draft_s: 1, verify_s: 4, round_s: 8, step_s: 3, rounds: [{ accepted: 2, tokens: 3 }, { accepted: 4, tokens: 5 }], tokens: 8, seconds: 16, plain_tokens: 5 };
  const at = (t) => speculation.speculationFrame(data, t);
  assert.equal(at(2.5).drafted, 2);
  assert.equal(at(7.9).tokens, 0);
  assert.equal(at(8).tokens, 3);
  assert.equal(at(8).round, 1);
  assert.equal(at(16).tokens, 8);
  assert.equal(at(16).plain, 5);
  assert.ok(at(16).verified);
});
