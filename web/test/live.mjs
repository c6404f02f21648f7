// The live panel in a real browser, with the shipped model served by the built binary:
//   node test/live.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
//
// The engine is faster or slower than the page by orders of magnitude, depending on the machine. A test
// that looks at an engine at work therefore holds its pace, and lets single steps run.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { animate } from "./apng.mjs";
import { findChromium, launch } from "./chromium.mjs";
import { measuredHome, serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";
import { until } from "./until.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "ridge-live-"));

const kModel = ["ridge-7m", "-t", "1"];
const env = measuredHome();
// A small pool, so that pages are evicted; drafts from the text.
const server = await serve(ridge, [...kModel, "--kv-tokens", "4096", "--speculate", "4"], { env, loaded: true, paced: true });

const faults = [];
const requests = []; // URLs
let lost = false; // while the server is down, the browser reports failed requests by itself
const { page, close } = await launch(profile, {
  fault: (text) => (lost && /ERR_|Failed to load/.test(text)) || faults.push(text),
  request: (url) => requests.push(url),
});
await page.setViewport(1440, 1000);

const attribute = (selector, name) => page.evaluate((s, n) => document.querySelector(s)?.getAttribute(n), selector, name);
const total = async () => JSON.parse(await attribute("[data-total]", "data-total"));
const knob = (name, value) => page.fill(`input[name=${name}]`, String(value));
// The answers of the prompt that was sent last have ended.
const ended = () => page.waitForSelector(".answers[data-busy=false]");
const sent = async () => Number(await page.getAttribute(".answers", "data-sent"));
async function send() {
  const before = await sent();
  await page.click(".answers button[type=submit]");
  await until("the prompt to be sent", async () => (await sent()) > before);
}
const idle = () => page.waitForFunction(() => [...document.querySelectorAll("[data-request]")].every((r) => /finished|cancelled|failed/.test(r.dataset.state)));
const ran = (count) => page.waitForFunction((n) => document.querySelectorAll("[data-request][data-state=finished]").length >= n, count);
async function metrics() {
  const text = await (await fetch(`${server.base}metrics`)).text();
  const sum = (name, label = "") => text.split("\n").filter((line) => line.startsWith(name) && line[name.length] === "{" && line.includes(label)).reduce((s, line) => s + Number(line.split(" ").pop()), 0);
  return {
    steps: sum("ridge:steps_total"), generated_tokens: sum("vllm:generation_tokens_total"), measured_s: sum("ridge:step_measured_seconds_sum"),
    predicted_s: sum("ridge:step_predicted_seconds_sum"), roof_s: sum("ridge:step_roof_seconds_total"), draft_tokens: sum("vllm:spec_decode_num_draft_tokens_total"),
    free: sum("ridge:pages", 'state="free"'), cached: sum("ridge:pages", 'state="cached"'), held: sum("ridge:pages", 'state="held"'),
  };
}

let begin = null; // what /metrics said when the page's stream began; null: the page has none of `server`
// Every step of the engine so far is on the page. Returns the page's sums and those of /metrics.
const arrived = () => until("every step to be on the page", async () => {
  const after = await metrics();
  const seen = await total();
  const dropped = Number(await attribute("[data-total]", "data-dropped"));
  return seen.steps + dropped === after.steps - begin.steps && [seen, after];
});
// Leaves the page only when nothing of the engine is on its way, so that the next stream begins with
// nothing.
async function open(base = server.base) {
  if (begin) await arrived();
  await page.goto("about:blank");
  await server.go();
  begin = base === server.base ? await metrics() : null;
  await page.goto(`${base}#/live`);
  await page.waitForSelector("[data-live=open] .answers");
}
// After a test that failed anywhere: nothing runs, and no page follows.
async function reset() {
  begin = null;
  lost = false;
  await page.goto("about:blank");
  await server.go();
  await until("the engine to be idle", async () => (await metrics()).held === 0);
}
// A server on a port of its own that it can come back to. Ports below 32768 are handed out to nobody who
// does not name them, so that none takes it while the server is gone.
async function onPort() {
  for (;;) {
    const port = 20000 + Math.floor(Math.random() * 12000);
    try {
      return { port, server: await serve(ridge, [...kModel, "--port", String(port)], { env, loaded: true, paced: true }) };
    } catch (error) {
      if (!/ended/.test(error.message)) throw error; // else the port is taken
    }
  }
}
// Prompts that are sent now arrive, and wait for the steps that the test lets run.
const held = async (copies, on = server) => {
  await on.hold();
  await send();
  await page.waitForFunction((n) => [...document.querySelectorAll("[data-request]")].filter((r) => r.dataset.state === "waiting").length === n, copies);
};

// The entries of a stream of the test's own, which says what the page was told. It has begun when this
// returns.
async function listen() {
  // Its reader ends it: in Node 18 an AbortController may end nothing once its request is answered.
  const reader = (await fetch(`${server.base}api/live`)).body.getReader();
  const entries = [];
  let greeted = false;
  const done = (async () => {
    const decoder = new TextDecoder();
    let text = "";
    for (let chunk; !(chunk = await reader.read()).done; ) {
      const events = (text + decoder.decode(chunk.value, { stream: true })).split("\n\n");
      text = events.pop();
      for (const event of events) {
        greeted ||= event.startsWith("event: hello");
        const [, data] = /^event: steps\ndata: (.*)$/.exec(event) ?? [];
        if (data) entries.push(...JSON.parse(data).steps.filter((entry) => entry.steps > 0));
      }
    }
  })().catch(() => {});
  await until("the test's own stream to begin", () => greeted);
  return { entries, stop: async () => { await reader.cancel().catch(() => {}); await done; } };
}

const tests = {
  async "a prompt streams, and its text is that of ridge run"() {
    await open();
    const prompt = "Threads of a process";
    await page.fill("textarea[name=live-prompt]", prompt);
    await knob("max-tokens", 60);
    await send();
    await ended();
    const text = await page.textContent("[data-answer] .text");
    const { text: expected } = JSON.parse(execFileSync(ridge, ["run", "ridge-7m", prompt, "-n", "60", "-t", "1", "--temperature", "0", "--repetition-penalty", "1", "--json"], { encoding: "utf8", env }));
    assert.equal(text, expected);
    // The rate is left out where the whole answer came at once, as a fast engine's may.
    assert.match(await page.textContent("[data-answer] .note"), /^60 tokens(, [\d.]+ k?tok\/s)?, first token after [\d.]+ .?s, ended: length$/);
    assert.match(await page.textContent(".answers [role=status]"), /^Answer: 60 tokens/);
  },
  async "a second request is in the batch, and its prefix hit is marked"() {
    await open();
    await page.fill("textarea[name=live-prompt]", "Divided into pages, the memory of a computer needs a table; and a page table tells where each of them lies. ".repeat(3));
    await knob("max-tokens", 20);
    await send();
    await ended();
    await ran(1);
    assert.equal(await page.count("[data-request]"), 1);
    await send();
    await ran(2);
    const [first, second] = await page.evaluate(() => [...document.querySelectorAll("[data-request]")].map((r) => ({ cached: Number(r.dataset.cached), generated: Number(r.dataset.generated), marked: r.querySelector(".hit") !== null })));
    assert.deepEqual([first.generated, second.generated], [20, 20]);
    assert.ok(first.cached < 16 && first.marked === first.cached > 0); // nobody asked this before
    assert.deepEqual([second.cached >= 32, second.marked], [true, true]);
    // Not sharing the beginning: no hit.
    await page.click("input[name=share]");
    await send();
    await ran(3);
    assert.equal(await attribute("[data-request]:last-child", "data-cached"), "0");
  },
  async "the stream's sums are those of /metrics, and the dot is the newest steps"() {
    await open();
    const heard = await listen();
    await knob("copies", 6);
    await knob("max-tokens", 100);
    await send();
    await ended();
    await ran(6);
    const [seen, after] = await arrived();
    assert.equal(await attribute("[data-total]", "data-dropped"), "0");
    assert.equal(seen.generated_tokens, 600);
    for (const name of ["steps", "generated_tokens", "draft_tokens"]) assert.equal(seen[name], after[name] - begin[name], name);
    for (const name of ["measured_s", "predicted_s", "roof_s"]) assert.ok(Math.abs(seen[name] / (after[name] - begin[name]) - 1) < 1e-3, `${name}: ${seen[name]}, ${after[name] - begin[name]}`);
    const { entries } = heard;
    await until("the test's own stream to have every step", () => entries.reduce((steps, entry) => steps + entry.steps, 0) === seen.steps);
    await heard.stop();
    const last = entries[entries.length - 1];
    const newest = entries.filter((entry) => entry === last || entry.at_s >= last.until_s - 0.5);
    const sum = (name) => newest.reduce((total, entry) => total + entry[name], 0);
    const near = (a, b) => assert.ok(Math.abs(a / b - 1) < 1e-9, `${a} is not ${b}`);
    const dot = await until("the dot of the newest steps", async () => {
      const drawn = JSON.parse((await attribute("[data-dot]", "data-dot")) ?? "{}");
      return drawn.steps === sum("steps") && Math.abs(drawn.measured_s / sum("measured_s") - 1) < 1e-9 && drawn;
    });
    for (const name of ["flops", "bytes", "predicted_s"]) near(dot[name], sum(name));
    near(dot.intensity, sum("flops") / sum("bytes"));
    near(dot.flops_per_s, sum("flops") / sum("measured_s"));
    near(dot.predicted_flops_per_s, sum("flops") / sum("predicted_s"));
    const served = await (await fetch(`${server.base}api/serving`)).json();
    assert.equal(await attribute("[data-roof]", "data-roof"), served.streams_from.level);
    const roofs = await page.evaluate(() => [...document.querySelectorAll("[data-roof-kind]")].map((e) => [e.dataset.roofKind, Number(e.dataset.bytesPerS ?? 0), Number(e.dataset.flopsPerS ?? 0)]));
    assert.deepEqual(roofs, served.roofs.map((r) => [r.kind, r.bytes_per_s ?? 0, r.flops_per_s ?? 0]));
    assert.deepEqual(roofs.map(([kind]) => kind), ["datasheet", "measured", "predicted"]);
    assert.equal(await page.evaluate(() => document.querySelectorAll(".live-roof").length), 3);
    assert.match(await page.textContent("[data-view=roof]"), new RegExp(`stream from ${served.streams_from.level}`));
  },
  async "other weights follow the batch that runs"() {
    await open();
    await page.click(".formats summary");
    const shown = (batch) => page.waitForFunction((n) => {
      const { batch, context } = document.querySelector(".formats table")?.dataset ?? {};
      const { ranBatch, ranContext } = document.querySelector(".formats").dataset;
      return batch === ranBatch && context === ranContext && (n === null || batch === n) && { batch: Number(batch), context: Number(context) };
    }, batch);
    assert.deepEqual(await shown("1"), { batch: 1, context: 256 }); // before anything ran
    await knob("copies", 6);
    await knob("max-tokens", 900); // more than the steps below generate
    await held(6);
    for (let i = 0; i < 3; ++i) {
      await server.step(1);
      await arrived();
      assert.deepEqual(await shown("6"), { batch: 6, context: 64 });
    }
    await page.click("button[name=stop]");
    await ended();
    await idle();
    // Folded and unfolded the view is drawn again, now that nothing runs: what ran last stays. The six
    // end together or, where the stream's tick falls between them, not quite.
    await page.click(".formats summary");
    await page.waitForSelector(".formats:not([open])");
    await page.click(".formats summary");
    const last = await shown(null);
    assert.ok(last.batch >= 1 && last.batch <= 6 && last.context === 64, JSON.stringify(last));
    await server.go();
  },
  async "free, cached and held pages are the pool, and those of /metrics"() {
    await open();
    await knob("copies", 8);
    await knob("length", 400);
    await knob("max-tokens", 60);
    await page.click("input[name=share]");
    const pool = async () => page.evaluate(() => ["pages", "free", "cached", "held"].map((n) => Number(document.querySelector("[data-pages]").dataset[n])));
    await send();
    for (let done = false; !done; ) {
      const [pages, free, cached, inUse] = await pool();
      assert.equal(free + cached + inUse, pages);
      done = await page.evaluate(() => [...document.querySelectorAll("[data-answer]")].some((a) => a.dataset.end));
    }
    await ended();
    await ran(8);
    const pages = await until("the pool of /metrics on the page", async () => {
      const [pages, free, cached, inUse] = await pool();
      const now = await metrics();
      return free === now.free && cached === now.cached && inUse === now.held && pages;
    });
    assert.equal(pages, 4096 / 16);
    await page.waitForSelector("[data-node]");
    // The pool is small: more copies evict what these left. The page learns of its pages a few times a
    // second, so that a page which is evicted and cached again in between is not seen: single steps.
    await held(8);
    await until("an eviction", async () => {
      await server.step(1);
      await arrived();
      await until("the pool after the step", async () => {
        const [, free, cached, inUse] = await pool();
        const now = await metrics();
        return free === now.free && cached === now.cached && inUse === now.held;
      });
      return page.evaluate(() => Number(document.querySelector("[data-evictions]").dataset.evictions) > 0);
    });
    await server.go();
    await ended();
    await ran(16);
  },
  async "the same arrivals with static batching, simulated"() {
    await open();
    await knob("copies", 6);
    await knob("max-tokens", 40);
    await send();
    await ended();
    await ran(6);
    await page.click("button[name=replay]");
    await page.waitForSelector("[data-replay]");
    assert.ok(Number(await attribute("[data-replay]", "data-replay")) > 0);
    const [, count] = /^(\d+) requests, simulated from predicted steps: static batching takes .* continuous .*; measured /.exec(await page.textContent("[data-replay]"));
    assert.equal(count, "6");
    await page.waitForSelector(".replay canvas");
  },
  async "an answer stops"() {
    await open();
    await knob("copies", 1);
    await knob("max-tokens", 900);
    await page.fill("textarea[name=live-prompt]", "A list of numbers: 1, 2, 3");
    await held(1);
    await server.step(8);
    await page.waitForFunction(() => Number(document.querySelector("[data-answer]")?.dataset.tokens) > 3);
    await page.click("button[name=stop]");
    await page.waitForSelector("[data-answer][data-end=stopped]");
    await page.waitForSelector("[data-request][data-state=cancelled]");
    assert.ok(Number(await attribute("[data-answer]", "data-tokens")) < 900);
    await server.go();
  },
  async "four of eight answers are shown, and what the server refuses is told"() {
    await open();
    await knob("copies", 8);
    await knob("max-tokens", 8);
    await send();
    await ended();
    assert.equal(await page.count("[data-answer]"), 4);
    assert.match(await page.textContent("[data-together]"), /Together 64 tokens(, .* tok\/s)?\. 4 of 8 answers are shown/);
    await page.click("input[name=chat]");
    await send(); // the model has no template: an answer or one line that says so
    await ended();
    assert.ok(await page.evaluate(() => document.querySelector(".answers .error") || [...document.querySelectorAll("[data-answer]")].every((a) => a.dataset.end)));
    faults.splice(0, faults.length, ...faults.filter((f) => !/status of 400/.test(f)));
  },
  async "operators of a step, on demand"() {
    await open();
    assert.equal(await page.count("[data-step]"), 0);
    requests.length = 0;
    await page.click("input[name=profile]");
    await until("the stream with profiles", () => requests.some((url) => url.endsWith("/api/live?profile=1")));
    await page.waitForSelector("[data-live=open]");
    begin = await metrics();
    await knob("max-tokens", 200); // one step in 64 is timed
    await knob("drafts", 0);
    await knob("copies", 2);
    await send();
    await page.waitForSelector("[data-step]");
    const [step, rest, parts] = await page.evaluate(() => {
      const table = document.querySelector("[data-step]");
      return [Number(table.dataset.step), Number(table.dataset.unattributed), table.querySelectorAll("tbody tr").length];
    });
    assert.ok(step > 0 && rest >= 0 && rest < step && parts > 5);
    await ended();
    await ran(2);
  },
  async "hold still pauses the drawing and tells its cost"() {
    await open();
    // The five seconds end when the test says so.
    await page.evaluate(() => {
      const real = window.setTimeout;
      window.setTimeout = (f, ms, ...rest) => (ms === 5000 ? (window.endHold = f, 0) : real(f, ms, ...rest));
    });
    await page.click("button[name=hold]");
    await page.waitForSelector("button[name=hold][aria-pressed=true]");
    await knob("max-tokens", 20);
    await send();
    await ended(); // the engine has worked
    await page.frames(20);
    assert.equal((await total()).steps, 0);
    await page.evaluate(() => window.endHold());
    await page.waitForSelector("button[name=hold][aria-pressed=false]");
    await page.waitForFunction(() => /Drawing took [\d.<]+ % of one core/.test(document.querySelector("[data-hold]").textContent));
    await page.waitForFunction(() => JSON.parse(document.querySelector("[data-total]").dataset.total).steps > 0);
  },
  async "a hidden tab closes the stream and opens it again"() {
    await open();
    const hide = (hidden) => page.evaluate((h) => {
      Object.defineProperty(document, "hidden", { value: h, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    await page.evaluate(() => {
      const real = EventSource.prototype.close;
      window.closedStreams = 0;
      EventSource.prototype.close = function () { ++window.closedStreams; real.call(this); };
    });
    await hide(true);
    await page.waitForSelector("[data-live=hidden]");
    assert.equal(await page.evaluate(() => window.closedStreams), 1);
    await hide(false);
    await page.waitForSelector("[data-live=open]");
  },
  async "by keyboard, with reduced motion and on a phone"() {
    await page.setViewport(390, 844);
    await page.emulateMedia({ "prefers-reduced-motion": "reduce" });
    await open();
    await server.least("10ms"); // steps of more than a second: without reduced motion there would be a trail
    assert.equal(await page.evaluate(() => document.querySelectorAll("details.view[open]").length), 1);
    await page.evaluate(() => document.querySelectorAll("details.view").forEach((d) => { d.open = true; }));
    await knob("drafts", 0);
    await page.focus("textarea[name=live-prompt]");
    await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, modifiers: 2 });
    await ran(1);
    await ended();
    await arrived();
    await until("the dot after the newest steps", async () => JSON.parse((await attribute("[data-dot]", "data-dot")) ?? "{}").generated_tokens < 128);
    await page.settled();
    assert.equal(await page.count(".trail"), 0);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${wide} px too wide`);
    const small = await page.evaluate(() => [...document.querySelectorAll(".live button, .live summary, .live .switch, .live input[type=number]")].filter((e) => e.getClientRects().length && e.getBoundingClientRect().height < 43.5).map((e) => e.outerHTML.slice(0, 80)));
    assert.deepEqual(small, []);
    const tiny = await page.evaluate(() => [...document.querySelectorAll(".live *")].filter((e) => e.childNodes.length && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && parseFloat(getComputedStyle(e).fontSize) < 12).map((e) => e.outerHTML.slice(0, 80)));
    assert.deepEqual(tiny, []);
    await page.setViewport(1440, 1000);
    await page.emulateMedia({ "prefers-reduced-motion": "no-preference" });
  },
  async "without a model the panel says how to start one"() {
    const other = await serve(ridge, ["--no-model"]);
    if (begin) await arrived();
    begin = null;
    await page.goto(`${other.base}#/live`);
    await page.waitForSelector("[data-live=none] [data-why]");
    assert.match(await page.textContent("[data-live=none]"), /ridge serve/);
    await page.goto("about:blank");
    await other.stop();
  },
  async "screenshots for a person"() {
    for (const theme of ["light", "dark"]) {
      for (const width of [1440, 390]) {
        await page.setViewport(width, width > 1000 ? 1000 : 844);
        await page.emulateMedia({ "prefers-color-scheme": theme, "prefers-reduced-motion": "no-preference" });
        await open();
        await page.evaluate(() => document.querySelectorAll("details.view, details.formats").forEach((d) => { d.open = true; }));
        await page.click("input[name=profile]");
        await knob("copies", 6);
        await knob("length", 200);
        await knob("max-tokens", 300);
        await knob("drafts", 0);
        await held(6);
        await server.step(100); // one step in 64 is timed
        await page.waitForSelector("[data-step]");
        await arrived();
        await page.screenshot(join(screenshots, `live-${width}-${theme}.png`));
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(wide <= 0, `live at ${width} px is ${wide} px too wide`);
        await page.click("button[name=stop]");
        await ended();
        await idle();
      }
    }
    await page.setViewport(1440, 1000);
  },
  async "a short animation of the batch and the KV cache"() {
    await page.emulateMedia({ "prefers-color-scheme": "light" });
    await page.setViewport(1440, 1000);
    await open();
    await knob("copies", 12);
    await knob("length", 150);
    await knob("max-tokens", 400); // more than the steps below generate
    const { x, y, width, height } = await page.boundingBox(".live .column:nth-child(2)");
    await held(12);
    const generated = () => page.evaluate(() => [...document.querySelectorAll("[data-request]")].reduce((sum, r) => sum + Number(r.dataset.generated), 0));
    const frames = [];
    while (frames.length < 14) {
      const before = await generated();
      await server.step(frames.length ? 4 : 12); // the first of all compute the prompts
      await until("the steps of a frame", async () => (await generated()) > before);
      const { data } = await page.send("Page.captureScreenshot", { clip: { x, y, width, height, scale: 0.75 } });
      frames.push(Buffer.from(data, "base64"));
    }
    writeFileSync(join(screenshots, "live.apng"), animate(frames, 250));
    await page.click("button[name=stop]");
    await ended();
    await idle();
    await server.go();
  },
  async "a server that is gone is told, and one that comes back is found"() {
    const { server: other, port } = await onPort();
    await open(other.base);
    lost = true;
    await knob("copies", 4);
    await knob("max-tokens", 900);
    await held(4, other);
    await other.step(8);
    await page.waitForFunction(() => Number(document.querySelector("[data-answer]")?.dataset.tokens) > 3);
    await other.stop("SIGKILL");
    await page.waitForSelector("[data-live=lost] [role=alert]");
    await page.waitForFunction(() => /does not answer/.test(document.querySelector("[data-live=lost] [role=alert]")?.textContent));
    await ended();
    await page.waitForSelector(".answers .error");
    const again = await serve(ridge, [...kModel, "--port", String(port)], { env, loaded: true });
    await page.waitForSelector("[data-live=open]");
    lost = false;
    await page.goto("about:blank");
    await again.stop();
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "failed-live.png"), reset });
await close();
await server.stop();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
