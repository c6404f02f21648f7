// The animations in a real browser, against the built binary:  node test/motion.mjs RIDGE SCREENSHOTS [NAME]
// They are on a page of their own (motion/entry.tsx), served here; the API is the binary's.
// Exit 77 (skipped) where there is no chromium.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { animate } from "./apng.mjs";
import { findChromium, launch } from "./chromium.mjs";
import { serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });
const here = dirname(fileURLToPath(import.meta.url));
const bundle = await build({
  entryPoints: [join(here, "motion/entry.tsx")], bundle: true, format: "esm", outdir: "out", write: false,
  jsx: "automatic", jsxImportSource: "preact", loader: { ".panel.css": "text" },
  define: { RIDGE_VERSION: '"test"', RIDGE_REPORT: "false" },
});
const part = (end) => bundle.outputFiles.find(({ path }) => path.endsWith(end)).text;

const profile = mkdtempSync(join(tmpdir(), "ridge-motion-"));
const server = await serve(ridge, ["--no-model"]);
const api = server.base.slice(0, -1);
const html = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><link rel="stylesheet" href="/entry.css"><body><script type="module" src="/entry.js"></script>';
const pages = createServer(async (request, response) => {
  const { url } = request;
  if (url.startsWith("/api/")) {
    const answer = await fetch(api + url);
    response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
  } else {
    const [type, text] = url === "/entry.js" ? ["text/javascript", part(".js")] : url === "/entry.css" ? ["text/css", part(".css")] : ["text/html", html];
    response.writeHead(200, { "content-type": type }).end(text);
  }
});
await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${pages.address().port}/`;
const answer = async (path) => (await fetch(api + path)).json();

const faults = [];
const { page, close } = await launch(profile, {
  fault: (text) => /status of 400/.test(text) || faults.push(text),
  request: (url) => url.startsWith(base) || /^(data|blob|about):/.test(url) || faults.push(`left the host: ${url}`),
});
const kQuery = {
  step: "model=llama-3-8b&machine=h200&batch=1&context=4096",
  tiles: "machine=h200&stages=4",
  attention: "model=llama-3-8b&machine=h200&prompt=8192",
  kv: "model=llama-3-8b&machine=h200",
  batching: "model=llama-3-8b&machine=h200",
  speculation: "model=llama-3-8b&machine=h200&context=1024&draft=llama-3.2-1b&speculate=4&acceptance=0.7&batch=1",
};
const names = Object.keys(kQuery).filter((name) => !only || only === name);
const open = async (name, query = kQuery[name]) => {
  await page.goto("about:blank");
  await page.goto(`${base}?${name}/${query}`);
  await page.waitForSelector("[data-motion] svg");
  await page.settled();
};
const counter = async (name, film = "") => Number(await page.getAttribute(`${film} [data-counter="${name}"]`, "data-value"));
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-6 * Math.abs(b), `${what}: ${a} is not ${b}`);
const press = async (film, ...keys) => {
  await page.focus(film);
  for (const key of keys) await page.press(key);
};
// Playing moves the time at each frame, so that so many frames would show it.
const kFrames = 10;
const at = (film) => page.evaluate((s) => Number(document.querySelector(s).dataset.at), film);

// What the counters must read at the end.
const totals = {
  async step() {
    const { prediction } = await answer(`/api/roofline?${kQuery.step}`);
    const ops = prediction.ops.filter((op) => op.phase === "decode");
    const sum = (field) => ops.reduce((all, op) => all + op[field], 0);
    near(await counter("bytes"), sum("bytes"), "bytes");
    near(await counter("flops"), sum("flops"), "flops");
    near(await counter("idle"), 1 - sum("at_peak_s") / Math.max(prediction.decode.expected_s, sum("expected_s")), "idle");
  },
  async tiles() {
    for (const stages of [1, 2, 4]) near(await counter(`stages-${stages}`), (await answer(`/api/tiles?machine=h200&stages=${stages}`)).seconds, stages);
  },
  async attention() {
    const { plain, tiled, row } = await answer(`/api/attention?${kQuery.attention}`);
    near(await counter("plain"), plain.bytes, "stored bytes");
    near(await counter("tiled"), tiled.bytes, "tiled bytes");
    assert.ok(row.difference <= row.bound);
  },
  async kv() {
    const { trace, pages: all } = await answer(`/api/pages?${kQuery.kv}`);
    near(await counter("held"), all - trace.at(-1).free, "pages");
    near(await counter("copied"), trace.filter((e) => e.kind === "copy").reduce((sum, e) => sum + e.bytes, 0), "copied");
  },
  async batching() {
    const { runs } = await answer(`/api/schedule?${kQuery.batching}`);
    for (const run of runs) {
      near(await counter(`tokens-${run.policy}`), run.tokens, run.policy);
      near(await counter(`useful-${run.policy}`), run.useful_seats, run.policy);
    }
    assert.equal(runs[0].tokens, runs[1].tokens);
  },
  async speculation() {
    const data = await answer(`/api/speculation?${kQuery.speculation}`);
    near(await counter("tokens"), data.tokens, "tokens");
    near(await counter("plain"), data.plain_tokens, "plain");
  },
};

const tests = {
  async "nothing plays by itself, and the keyboard drives it"() {
    for (const name of names) {
      await open(name);
      const film = `[data-motion="${name}"]`;
      assert.equal(await at(film), 0, name);
      await page.frames(kFrames);
      assert.equal(await at(film), 0, name);
      const events = await page.evaluate((s) => document.querySelector(s).querySelectorAll("ol li").length, film);
      assert.ok(events > 5, name);
      // Steps visit every event of the list, and the last one says what the list's last line says.
      await press(film, "ArrowRight");
      assert.equal(await page.textContent(`${film} .spoken`), await page.textContent(`${film} ol li`));
      await press(film, ...Array.from({ length: events - 1 }, () => "ArrowRight"));
      assert.equal(await page.textContent(`${film} .spoken`), await page.textContent(`${film} ol li:last-child`), name);
      await press(film, "Home");
      assert.equal(await at(film), 0);
      assert.equal(await page.textContent(`${film} .spoken`), "");
      await press(film, "End");
      assert.equal(await at(film), 1);
      await totals[name]();
    }
  },
  async "screenshots: begin, middle and end, both themes, both widths"() {
    for (const width of [1000, 390]) {
      await page.setViewport(width, width === 390 ? 1500 : 1000);
      for (const name of names) {
        await open(name);
        const film = `[data-motion="${name}"]`;
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} px too wide at ${width}`);
        for (const moment of [0, 500, 1000]) {
          await page.selectOption(`${film} .seek`, String(moment));
          await page.waitForFunction((s, m) => Math.abs(Number(document.querySelector(s).dataset.at) - m / 1000) < 1e-6, film, moment);
          for (const theme of ["light", "dark"]) {
            await page.emulateMedia({ "prefers-color-scheme": theme });
            await page.frames();
            await page.screenshot(join(screenshots, `motion-${name}-${width}-${theme}-${moment / 10}.png`));
          }
        }
      }
    }
    await page.setViewport(1000, 1000);
    await page.emulateMedia({});
  },
  async "an animated picture of attention"() {
    if (!names.includes("attention")) return;
    await page.setViewport(760, 600);
    await open("attention");
    const film = '[data-motion="attention"]';
    const pictures = [], count = 20;
    const { x, y, width, height } = await page.boundingBox(`${film} svg`);
    for (let i = 0; i <= count; ++i) {
      const moment = Math.round((1000 * i) / count);
      await page.selectOption(`${film} .seek`, String(moment));
      await page.waitForFunction((s, m) => Math.abs(Number(document.querySelector(s).dataset.at) - m / 1000) < 1e-6, film, moment);
      const { data } = await page.send("Page.captureScreenshot", { clip: { x: x - 8, y: y - 8, width: width + 16, height: height + 8, scale: 1 } });
      pictures.push(Buffer.from(data, "base64"));
    }
    writeFileSync(join(screenshots, "attention.apng"), animate(pictures, 400, 4000));
    await page.setViewport(1000, 1000);
  },
  async "play moves, pause holds"() {
    await open(names[0]);
    const film = `[data-motion="${names[0]}"]`;
    await page.click(`${film} .play`);
    await page.waitForFunction((s) => Number(document.querySelector(s).dataset.at) > 0.01, film);
    await page.click(`${film} .play`);
    await page.waitForSelector(`${film} .play[aria-label=Play]`);
    await page.frames();
    const held = await at(film);
    await page.frames(kFrames);
    assert.equal(await at(film), held);
  },
  async "reduced motion: three stills that do not move"() {
    await page.emulateMedia({ "prefers-reduced-motion": "reduce" });
    for (const name of names) {
      await open(name);
      assert.equal(await page.count(`[data-motion="${name}"] figure svg`), 3, name);
      assert.equal(await page.count(`[data-motion="${name}"] .play`), 0);
      const look = async () => { await page.screenshot(join(profile, "still.png")); return readFileSync(join(profile, "still.png")); };
      await page.settled();
      const before = await look();
      await page.frames(kFrames);
      await page.settled();
      assert.ok(before.equals(await look()), name);
    }
    await page.emulateMedia({});
  },
};

const failed = await runSuite(tests, { faults, page, picture: join(screenshots, "motion-failed.png") });
await close();
await server.stop();
pages.close();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
