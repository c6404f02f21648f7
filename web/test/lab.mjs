// The lab panel in a real browser: results of a file, one experiment run from the page, a report.
//   node test/lab.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findChromium, launch } from "./chromium.mjs";
import { serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });

const folder = mkdtempSync(join(tmpdir(), "ridge-lab-"));
// Invented results: two points inside their bands, one outside, one doubtful.
const list = JSON.parse(execFileSync(ridge, ["lab", "--json"], { encoding: "utf8" }));
const point = (x, measured, more = {}) => ({ x, measured, spread: 0.01, predicted: 10 * x, low: 9 * x, high: 12 * x, inside: measured <= 12 * x, error: Math.abs(measured / (10 * x) - 1), ...more });
const series = [
  { name: "first", points: [point(1, 10), point(2, 21), point(4, 90), point(8, 60, { doubt: "other processes took 40 % of the processors" })] },
  { name: "second", points: [point(1, 11), point(2, 19), point(4, 41), point(8, 83)] },
];
const results = {
  device: "An invented CPU", date: "2026-11-16", ceilings: "40.0 GB/s from DRAM", quick: false, conditions: [], seconds: 9,
  agreement: { points: 7, inside: 6, left_out: 1, share: 6 / 7, median_error: 0.05 }, backend: "cpu", interrupted: true,
  experiments: list.filter((e) => e.cpu).map((e, i) => ({
    ...e, verdict: ["confirmed", "refuted", "open"][i % 3], sentence: `What ${e.name} found.`, x: i % 2 ? { label: "tokens", log: true } : { label: "part", log: false, categories: true }, y: { label: "ms", log: true },
    series: i % 2 ? series : [{ name: "parts", points: ["weights", "keys and values", "activations"].map((label, n) => point(n + 1, 10 * (n + 1), { label })) }],
    checks: [{ what: "the same tokens", holds: true }], notes: ["A note."], agreement: { points: 7, inside: 6, left_out: 1, share: 6 / 7 },
  })),
};
const file = join(folder, "lab.json");
writeFileSync(file, JSON.stringify(results));

const env = { ...process.env, XDG_CONFIG_HOME: folder };
const servers = await Promise.all([["--no-model", "--lab", file], ["--no-model"]].map((words) => serve(ridge, words, { env })));
const [full, empty] = servers.map(({ base }) => base);

const faults = [];
const { page, close } = await launch(folder, {
  fault: (text) => faults.push(text),
  request: (url) => {
    if (![full, empty].some((base) => url.startsWith(base)) && !/^(data|blob|file|about):/.test(url)) faults.push(`left the host: ${url}`);
  },
});
const kDesk = [1440, 1000], kPhone = [390, 844];
const open = async (base, size = kDesk) => {
  await page.setViewport(...size);
  await page.goto("about:blank");
  await page.goto(`${base}#/lab`);
  await page.waitForSelector("[data-panel=lab] .trial");
  await page.settled();
};

const tests = {
  async "results of a file: verdicts, bands, points, doubtful ones hollow, and a table"() {
    await open(full);
    await page.waitForSelector(".trial .measured");
    const trials = await page.evaluate(() => document.querySelectorAll(".trial").length);
    assert.equal(trials, list.length);
    const text = await page.evaluate(() => document.querySelector(".lab .sentence").textContent);
    assert.match(text, /An invented CPU/);
    // The server counts the agreement of what it shows: 7 points and one in doubt of every second one.
    const shown = results.experiments.flatMap((e) => e.series).flatMap((s) => s.points);
    const sure = shown.filter((p) => !p.doubt);
    assert.match(text, new RegExp(`${sure.filter((p) => p.inside).length} of ${sure.length} points`));
    assert.match(text, /\(median\).*\(90th percentile\)/);
    assert.match(text, /The run was interrupted/);
    const drawn = await page.evaluate(() => {
      const trial = document.querySelectorAll(".trial[open]")[1];
      return {
        hollow: trial.querySelectorAll("svg.chart .doubtful").length,
        measured: trial.querySelectorAll("svg.chart .measured").length,
        bands: trial.querySelectorAll("svg.chart .range").length,
        lines: trial.querySelectorAll("svg.chart .predicted").length,
        rows: [...trial.querySelectorAll("tbody tr")].map((row) => row.lastElementChild.textContent),
        sentence: trial.querySelector("[data-sentence]").textContent,
      };
    });
    assert.deepEqual([drawn.measured, drawn.hollow, drawn.bands, drawn.lines], [8, 1, 2, 2]);
    assert.equal(drawn.rows.filter((row) => row === "outside").length, 1);
    assert.equal(drawn.rows.filter((row) => row.startsWith("doubtful: other processes")).length, 1);
    assert.match(drawn.sentence, /^What .* found\.$/);
    const categories = await page.evaluate(() => {
      const trial = document.querySelectorAll(".trial[open]")[0];
      return {
        names: [...trial.querySelectorAll("svg.chart text")].map((text) => text.textContent),
        bands: trial.querySelectorAll("svg.chart .range").length,
        marks: [...trial.querySelectorAll("svg.chart .predicted")].map((path) => path.getAttribute("d")),
      };
    });
    for (const name of ["weights", "keys and values", "activations"]) assert.ok(categories.names.includes(name), name);
    assert.equal(categories.bands, 3);
    assert.deepEqual(categories.marks.map((d) => /^M[\d.]+ [\d.]+v20$/.test(d)), [true, true, true]); // no line through them
    await page.screenshot(join(screenshots, "lab.png"));
  },
  async "nothing is cut or below 12 px, in both themes and on a phone"() {
    for (const [size, theme] of [[kDesk, "dark"], [kPhone, "light"], [kPhone, "dark"]]) {
      await open(full, size);
      await page.evaluate((t) => { document.documentElement.dataset.theme = t; }, theme);
      await page.evaluate(() => document.querySelectorAll(".trial").forEach((trial, i) => { trial.open = i < 3; }));
      await page.waitForSelector(".trial[open] svg.chart");
      await page.settled();
      const state = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth - innerWidth,
        covered: [...document.querySelectorAll(".trial")].filter((e, i, all) => {
          const a = e.getBoundingClientRect(), b = all[i + 1]?.getBoundingClientRect();
          return b && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        }).length,
        small: [...document.querySelectorAll(".lab *")].filter((e) => e.textContent && parseFloat(getComputedStyle(e).fontSize) < 12).length,
      }));
      assert.deepEqual(state, { wide: 0, covered: 0, small: 0 }, `${size} ${theme}`);
      await page.screenshot(join(screenshots, `lab-${size[0]}-${theme}.png`));
    }
  },
  async "without results the panel lists the claims, and one runs from the page"() {
    await open(empty);
    assert.match(await page.evaluate(() => document.querySelector(".lab .sentence").textContent), /no results yet/);
    await page.evaluate(() => { document.querySelector("[data-experiment=history]").open = true; });
    await page.waitForSelector("[data-experiment=history] button[name=run]");
    await page.evaluate(() => document.querySelector("[data-experiment=history] button[name=run]").click());
    await page.waitForFunction(() => document.querySelector("[data-experiment=history] .verdict").textContent === "refuted");
    await page.waitForSelector("[data-experiment=history] svg.chart .measured");
    await page.waitForSelector('[data-running=""]', "attached");
  },
  async "a report holds the lab, and one without results has no such panel"() {
    const html = join(folder, "report.html");
    execFileSync(ridge, ["report", "-o", html, "--lab", file]);
    await page.setViewport(...kDesk);
    await page.goto(`file://${html}#/lab`);
    await page.waitForSelector("[data-panel=lab] .trial svg.chart");
    assert.equal(await page.evaluate(() => document.querySelectorAll(".trial button[name=run]").length), 0);
    execFileSync(ridge, ["report", "-o", html]);
    await page.goto("about:blank");
    await page.goto(`file://${html}`);
    await page.waitForSelector(".headline output");
    assert.equal(await page.evaluate(() => document.querySelectorAll("#tab-lab").length), 0);
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "lab-failed.png") });
await close();
for (const server of servers) await server.stop();
rmSync(folder, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
