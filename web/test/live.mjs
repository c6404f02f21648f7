// The live panel in a real browser, with the shipped model served by the built binary:
//   node test/live.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { animate } from "./apng.mjs";
import { launch } from "./chromium.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!chromium) {
  console.log("skipped: no chromium (tools/setup test installs it)");
  process.exit(77);
}
mkdirSync(screenshots, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "ridge-live-"));

// A server that answers; `what` is awaited in its output.
async function serve(what, ...words) {
  const process = spawn(ridge, ["serve", ...(words.includes("--port") ? [] : ["--port", "0"]), "--drain", "0", ...words], { stdio: ["ignore", "pipe", "inherit"] });
  const base = await new Promise((resolve, reject) => {
    let text = "";
    process.stdout.on("data", (chunk) => {
      text += chunk;
      const match = what.test(text) && /http:\/\/[\d.:]+\//.exec(text);
      if (match) resolve(match[0]);
    });
    process.on("exit", () => reject(new Error("ridge serve ended")));
  });
  const exited = new Promise((resolve) => process.on("exit", resolve));
  const stop = async () => { process.kill("SIGKILL"); await exited; };
  return { base, stop };
}
const kServing = /Serving ridge-7m/;
// A small pool, so that pages are evicted; drafts from the text.
const server = await serve(kServing, "ridge-7m", "-t", "1", "--kv-tokens", "4096", "--speculate", "4");

const faults = [];
let lost = false; // while the server is down, the browser reports failed requests by itself
const { page, close } = await launch(chromium, profile, {
  fault: (text) => (lost && /ERR_|Failed to load/.test(text)) || faults.push(text),
  request: () => {},
});
await page.setViewport(1440, 1000);

const open = async (base = server.base) => {
  await page.goto("about:blank");
  await page.wait(500); // the stream ends, so that the next one begins with nothing
  await page.goto(`${base}#/live`);
  await page.waitForSelector("[data-live=open] .answers");
};
const attribute = (selector, name) => page.evaluate((s, n) => document.querySelector(s)?.getAttribute(n), selector, name);
const total = async () => JSON.parse(await attribute("[data-total]", "data-total"));
const knob = (name, value) => page.fill(`input[name=${name}]`, String(value));
const send = () => page.click(".answers button[type=submit]");
const ended = () => page.waitForFunction(() => {
  const all = [...document.querySelectorAll("[data-answer]")];
  return all.length > 0 && all.every((a) => a.dataset.end);
});
const idle = () => page.waitForFunction(() => [...document.querySelectorAll("[data-request]")].every((r) => /finished|cancelled|failed/.test(r.dataset.state)));
async function metrics() {
  const text = await (await fetch(`${server.base}metrics`)).text();
  const sum = (name, label = "") => text.split("\n").filter((line) => line.startsWith(name) && line[name.length] === "{" && line.includes(label)).reduce((s, line) => s + Number(line.split(" ").pop()), 0);
  return {
    steps: sum("ridge:steps_total"), generated_tokens: sum("vllm:generation_tokens_total"), measured_s: sum("ridge:step_measured_seconds_sum"),
    predicted_s: sum("ridge:step_predicted_seconds_sum"), roof_s: sum("ridge:step_roof_seconds_total"), draft_tokens: sum("vllm:spec_decode_num_draft_tokens_total"),
    free: sum("ridge:pages", 'state="free"'), cached: sum("ridge:pages", 'state="cached"'), held: sum("ridge:pages", 'state="held"'),
  };
}

// The entries of a stream of the test's own, which says what the page was told.
async function listen() {
  const abort = new AbortController();
  const response = await fetch(`${server.base}api/live`, { signal: abort.signal });
  const entries = [];
  const done = (async () => {
    const decoder = new TextDecoder();
    let text = "";
    for await (const chunk of response.body) {
      const events = (text + decoder.decode(chunk, { stream: true })).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const [, data] = /^event: steps\ndata: (.*)$/.exec(event) ?? [];
        if (data) entries.push(...JSON.parse(data).steps.filter((entry) => entry.steps > 0));
      }
    }
  })().catch(() => {});
  return async () => { abort.abort(); await done; return entries; };
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
    const { text: expected } = JSON.parse(execFileSync(ridge, ["run", "ridge-7m", prompt, "-n", "60", "-t", "1", "--temperature", "0", "--repetition-penalty", "1", "--json"], { encoding: "utf8" }));
    assert.equal(text, expected);
    assert.match(await page.textContent("[data-answer] .note"), /^60 tokens, \d+ tok\/s, first token after [\d.]+ .?s, ended: length$/);
    assert.match(await page.textContent(".answers [role=status]"), /^Answer: 60 tokens/);
  },
  async "a second request is in the batch, and its prefix hit is marked"() {
    await open();
    await page.fill("textarea[name=live-prompt]", "Divided into pages, the memory of a computer needs a table; and a page table tells where each of them lies. ".repeat(3));
    await knob("max-tokens", 20);
    await send();
    await ended();
    await page.waitForSelector("[data-request][data-state=finished]");
    assert.equal(await page.count("[data-request]"), 1);
    await send();
    await page.waitForFunction(() => document.querySelectorAll("[data-request][data-state=finished]").length === 2);
    const [first, second] = await page.evaluate(() => [...document.querySelectorAll("[data-request]")].map((r) => ({ cached: Number(r.dataset.cached), generated: Number(r.dataset.generated), marked: r.querySelector(".hit") !== null })));
    assert.deepEqual([first.generated, second.generated], [20, 20]);
    assert.ok(first.cached < 16 && first.marked === first.cached > 0); // nobody asked this before
    assert.deepEqual([second.cached >= 32, second.marked], [true, true]);
    // Not sharing the beginning: no hit.
    await page.click("input[name=share]");
    await send();
    await page.waitForFunction(() => document.querySelectorAll("[data-request][data-state=finished]").length === 3);
    assert.equal(await attribute("[data-request]:last-child", "data-cached"), "0");
  },
  async "the stream's sums are those of /metrics, and the dot is the newest steps"() {
    const before = await metrics();
    await open();
    const heard = await listen();
    await knob("copies", 6);
    await knob("max-tokens", 100);
    await send();
    await ended();
    await idle();
    await page.wait(600); // the last events, and the roofline at 2 Hz
    const [seen, after] = [await total(), await metrics()];
    assert.equal(await attribute("[data-total]", "data-dropped"), "0");
    assert.equal(seen.generated_tokens, 600);
    for (const name of ["steps", "generated_tokens", "draft_tokens"]) assert.equal(seen[name], after[name] - before[name], name);
    for (const name of ["measured_s", "predicted_s", "roof_s"]) assert.ok(Math.abs(seen[name] / (after[name] - before[name]) - 1) < 1e-3, `${name}: ${seen[name]}, ${after[name] - before[name]}`);
    const dot = JSON.parse(await attribute("[data-dot]", "data-dot"));
    const entries = await heard();
    const newest = entries.filter((entry) => entry.at_s >= entries[entries.length - 1].until_s - 0.5);
    const sum = (name) => newest.reduce((total, entry) => total + entry[name], 0);
    const near = (a, b) => assert.ok(Math.abs(a / b - 1) < 1e-9, `${a} is not ${b}`);
    for (const name of ["steps", "flops", "bytes", "measured_s", "predicted_s"]) near(dot[name], sum(name));
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
    const batch = () => attribute(".formats table", "data-batch");
    await page.waitForFunction(() => document.querySelector(".formats table")?.dataset.batch === "1");
    await knob("copies", 6);
    await knob("max-tokens", 900); // long enough for the batch to stand still
    await send();
    await page.waitForFunction(() => document.querySelector(".formats table").dataset.batch === "6");
    await page.click("button[name=stop]");
    await idle();
    await page.wait(1200);
    const last = await batch(); // the six do not end in the same step
    assert.ok(Number(last) >= 1 && Number(last) <= 6, last);
    await page.wait(800);
    assert.equal(await batch(), last); // what ran last stays
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
      const [pages, free, cached, held] = await pool();
      assert.equal(free + cached + held, pages);
      done = await page.evaluate(() => [...document.querySelectorAll("[data-answer]")].some((a) => a.dataset.end));
    }
    await ended();
    await idle();
    await page.wait(600);
    const [pages, free, cached, held] = await pool();
    assert.equal(pages, 4096 / 16);
    const now = await metrics();
    assert.deepEqual([free, cached, held], [now.free, now.cached, now.held]);
    await page.waitForSelector("[data-node]");
    // The pool is small: more copies evict what these left.
    await send();
    await ended();
    await page.waitForFunction(() => Number(document.querySelector("[data-evictions]").dataset.evictions) > 0);
  },
  async "the same arrivals with static batching, simulated"() {
    await open();
    await knob("copies", 6);
    await knob("max-tokens", 40);
    await send();
    await ended();
    await page.waitForFunction(() => document.querySelectorAll("[data-request][data-state=finished]").length >= 6);
    await page.click("button[name=replay]");
    await page.waitForSelector("[data-replay]");
    assert.ok(Number(await attribute("[data-replay]", "data-replay")) > 0);
    // Where the machine is busy, the end of the test before belongs to the same burst.
    const [, requests] = /^(\d+) requests, simulated from predicted steps: static batching takes .* continuous .*; measured /.exec(await page.textContent("[data-replay]"));
    assert.ok(Number(requests) >= 6);
    await page.waitForSelector(".replay canvas");
  },
  async "an answer stops"() {
    await open();
    await knob("copies", 1);
    await knob("max-tokens", 900);
    await page.fill("textarea[name=live-prompt]", "A list of numbers: 1, 2, 3");
    await send();
    await page.waitForFunction(() => Number(document.querySelector("[data-answer]")?.dataset.tokens) > 3);
    await page.click("button[name=stop]");
    await page.waitForSelector("[data-answer][data-end=stopped]");
    await page.waitForSelector("[data-request][data-state=cancelled]");
    assert.ok(Number(await attribute("[data-answer]", "data-tokens")) < 900);
  },
  async "four of eight answers are shown, and what the server refuses is told"() {
    await open();
    await knob("copies", 8);
    await knob("max-tokens", 8);
    await send();
    await ended();
    assert.equal(await page.count("[data-answer]"), 4);
    assert.match(await page.textContent("[data-together]"), /Together 64 tokens, .* 4 of 8 answers are shown/);
    await page.click("input[name=chat]");
    await send(); // the model has no template: an answer or one line that says so
    await page.waitForFunction(() => document.querySelector(".answers .error") || [...document.querySelectorAll("[data-answer]")].every((a) => a.dataset.end));
    faults.splice(0, faults.length, ...faults.filter((f) => !/status of 400/.test(f)));
  },
  async "operators of a step, on demand"() {
    await open();
    assert.equal(await page.count("[data-step]"), 0);
    await page.click("input[name=profile]");
    await page.waitForSelector("[data-live=open]");
    await knob("max-tokens", 900);
    await knob("copies", 2);
    await send();
    await page.waitForSelector("[data-step]");
    const [step, rest, parts] = await page.evaluate(() => {
      const table = document.querySelector("[data-step]");
      return [Number(table.dataset.step), Number(table.dataset.unattributed), table.querySelectorAll("tbody tr").length];
    });
    assert.ok(step > 0 && rest >= 0 && rest < step && parts > 5);
    await page.click("button[name=stop]");
    await idle(); // the next test counts steps
  },
  async "hold still pauses the drawing and tells its cost"() {
    await open();
    await page.click("button[name=hold]");
    await page.waitForSelector("button[name=hold][aria-pressed=true]");
    await knob("max-tokens", 20);
    await send();
    for (let held = true; held; ) {
      const look = await page.evaluate(() => ({ held: document.querySelector("button[name=hold]").disabled, total: JSON.parse(document.querySelector("[data-total]").dataset.total) }));
      held = look.held;
      if (held) assert.equal(look.total.steps, 0);
    }
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
    assert.equal(await page.evaluate(() => document.querySelectorAll("details.view[open]").length), 1);
    await page.evaluate(() => document.querySelectorAll("details.view").forEach((d) => { d.open = true; }));
    await page.focus("textarea[name=live-prompt]");
    await page.send("Input.dispatchKeyEvent", { type: "keyDown", key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, modifiers: 2 });
    await ended();
    await page.wait(600);
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
    const other = await serve(/http/, "--no-model");
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
        await send();
        await page.wait(1500);
        await page.screenshot(join(screenshots, `live-${width}-${theme}.png`));
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(wide <= 0, `live at ${width} px is ${wide} px too wide`);
        await ended();
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
    await knob("max-tokens", 250);
    const { x, y, width, height } = await page.boundingBox(".live .column:nth-child(2)");
    await send();
    const frames = [];
    while (frames.length < 14) {
      const { data } = await page.send("Page.captureScreenshot", { clip: { x, y, width, height, scale: 0.75 } });
      frames.push(Buffer.from(data, "base64"));
      await page.wait(150);
    }
    writeFileSync(join(screenshots, "live.apng"), animate(frames, 250));
    await ended();
  },
  async "a server that is gone is told, and one that comes back is found"() {
    const other = await serve(kServing, "ridge-7m", "-t", "1");
    await open(other.base);
    lost = true;
    await knob("copies", 24);
    await knob("max-tokens", 900);
    await send();
    await page.waitForFunction(() => Number(document.querySelector("[data-answer]")?.dataset.tokens) > 3);
    await other.stop();
    await page.waitForSelector("[data-live=lost] [role=alert]");
    assert.match(await page.textContent("[data-live=lost] [role=alert]"), /does not answer/);
    await ended();
    await page.waitForSelector(".answers .error");
    const again = await serve(kServing, "ridge-7m", "-t", "1", "--port", new URL(other.base).port);
    await page.waitForSelector("[data-live=open]");
    lost = false;
    await page.goto("about:blank");
    await again.stop();
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "failed-live.png"), mended: () => (lost = false) });
await close();
await server.stop();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
