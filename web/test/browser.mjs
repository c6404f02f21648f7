// The page in a real browser, against the built binary:  node test/browser.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { findChromium, launch } from "./chromium.mjs";
import { serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });

const profile = mkdtempSync(join(tmpdir(), "ridge-browser-"));
const server = await serve(ridge, ["--no-model"]);
const { base } = server;
const cli = (...words) => JSON.parse(execFileSync(ridge, [...words, "--json"], { encoding: "utf8" }));

const faults = [];
const requests = [];
const { page, close } = await launch(profile, {
  // A refused option is a 400, which the browser reports by itself; the page must not.
  fault: (text) => /status of 400/.test(text) || faults.push(text),
  request: (url) => {
    requests.push(url);
    if (!url.startsWith(base) && !/^(data|blob|file|about):/.test(url)) faults.push(`left the host: ${url}`);
  },
});
await page.setViewport(1440, 1000);
const open = async (hash) => {
  await page.goto("about:blank");
  await page.goto(base + hash);
  await page.waitForSelector(".headline output");
  await page.waitForSelector("#panel .loading", "detached");
  await page.settled();
};
const reading = async (name) => Number(await page.getAttribute(`output[data-name="${name}"]`, "data-value"));
const address = (part) => page.waitForFunction((text) => location.hash.includes(text), part);

const listed = (selector) => page.evaluate((s) => [...document.querySelectorAll(s)].map((element) => element.textContent), selector);
const openReport = async (file) => {
  await page.goto("about:blank");
  await page.goto(`${pathToFileURL(file)}#/slow`);
  await page.waitForSelector("[data-panel=slow] .verdict");
};
// Twenty steps of a GEMM, attention and an exposed all-reduce. The host launches late, so gaps follow.
function inventedTrace() {
  const traceEvents = [];
  let at = 1e15, correlation = 0;
  const run = (name, us) => {
    traceEvents.push({ ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", pid: 1, tid: 1, ts: at + 40, dur: 5, args: { correlation: ++correlation } });
    traceEvents.push({ ph: "X", cat: "kernel", name, pid: 0, tid: 7, ts: at + 50, dur: us, args: { device: 0, stream: 7, correlation } });
    at += 50 + us;
  };
  for (let step = 0; step < 20; ++step) {
    run("nvjet_tst_64x8", 60);
    run("void flash::flash_fwd_kernel<1>()", 20);
    run("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 30);
  }
  return { schemaVersion: 1, traceEvents };
}

const panels = {
  roofline: ".dot", pyramid: ".level", time: ".bar rect", tiles: ".tile", batch: ".precision path",
  memory: ".part rect", slow: ".observed input", history: ".series path",
};
const tests = {
  async "every panel renders, with its figures"() {
    for (const [name, mark] of Object.entries(panels)) {
      await open(`#/${name}?model=llama-3-8b&machine=h200&batch=32&context=4096`);
      await page.waitForSelector(`[data-panel=${name}] ${mark}`, "attached");
    }
  },
  async "numbers equal the command line's for five configurations"() {
    const cases = [
      ["--model", "llama-3-8b", "--machine", "h100-sxm"],
      ["--model", "llama-3-70b", "--machine", "8xh100-sxm", "--batch", "32", "--context", "4096", "--weights", "fp8", "--kv", "fp8"],
      ["--model", "deepseek-v3", "--machine", "8xh200", "--batch", "128", "--context", "8192"],
      ["--model", "gemma-3-27b", "--machine", "b200", "--batch", "16", "--context", "32768", "--no-graphs"],
      ["--model", "llama-3-8b", "--machine", "epyc-9654", "--weights", "int4", "--speculate", "3"],
    ];
    for (const words of cases) {
      const query = new URLSearchParams();
      for (let i = 0; i < words.length; ++i) {
        if (words[i].startsWith("--no-")) query.set(words[i].slice(2), "true");
        else query.set(words[i].slice(2), words[++i]);
      }
      const expected = cli("predict", ...words);
      await open(`#/time?${query}`);
      assert.equal(await reading("per token"), expected.tpot_s, words.join(" "));
      assert.equal(await reading("first token"), expected.ttft_s);
      assert.equal(await reading("tokens/s"), expected.decode.tokens_per_s);
      assert.equal(await page.getAttribute('output[data-name="wall"]', "data-value"), expected.decode.wall);
      assert.ok((await page.textContent("code.command")).includes(words[1]));
    }
  },
  async "controls change numbers, and the address"() {
    await open("#/roofline?model=llama-3-8b&machine=h200&batch=8");
    const before = await reading("tokens/s");
    await page.fill("input[name=batch]", "64");
    await page.waitForFunction((old) => Number(document.querySelector('output[data-name="tokens/s"]').dataset.value) !== old, before);
    assert.ok((await reading("tokens/s")) > before * 2);
    await address("batch=64");
    await page.selectOption("select[name=weights]", "int4");
    await address("weights=int4");
    await page.click("input[name=no-flash]");
    await address("no-flash=true");
    await page.focus("input[aria-label='Context, slider']");
    await page.press("End");
    await address("context=131072");
    await page.waitForSelector(".headline.busy", "detached");
  },
  async "a dragged dot changes the batch"() {
    await open("#/roofline?model=llama-3-8b&machine=h200&batch=8");
    await page.waitForSelector(".dot.decode");
    const box = await page.boundingBox(".dot.decode");
    await page.moveMouse(box.x + box.width / 2, box.y + box.height / 2);
    await page.waitForSelector(".card dl");
    await page.mouse("mousePressed");
    for (let step = 1; step <= 4; ++step) await page.moveMouse(box.x + (130 * step) / 4, box.y + 4);
    await page.mouse("mouseReleased");
    await page.waitForFunction(() => Number(new URLSearchParams(location.hash.split("?")[1]).get("batch")) > 16);
  },
  async "the address round-trips"() {
    const hash = "#/batch?model=qwen3-32b&machine=2xh100-sxm&batch=24&context=8192&weights=fp8&target=30ms";
    await open(hash);
    assert.equal(new URL(await page.url()).hash, hash);
    assert.equal(await page.inputValue("input[name=batch]"), "24");
    assert.equal(await page.inputValue("select[name=machine]"), "h100-sxm");
    assert.equal(await page.inputValue("select[name=devices]"), "2x");
    await page.clickText("[role=tab]", "Time");
    await address("#/time?model=qwen3-32b");
    await page.goBack();
    await page.waitForSelector("[data-panel=batch]");
    assert.equal(new URL(await page.url()).hash, hash);
    await open("#/pyramid?gpu=b200");
    assert.equal(await page.inputValue("select[name=machine]"), "b200");
  },
  async "a bad value is told beside its field and the rest stays"() {
    await open("#/roofline?model=llama-3-8b&machine=h200&batch=8");
    await page.waitForSelector(".dot", "attached");
    await page.fill("input[name=batch]", "many");
    await page.waitForSelector(".field.bad .error");
    assert.match(await page.textContent(".field.bad .error"), /not a number/);
    assert.equal(await page.getAttribute("input[name=batch]", "aria-invalid"), "true");
    assert.ok((await page.count(".dot")) > 3);
    await page.fill("input[name=batch]", "16");
    await page.waitForSelector(".field.bad", "detached");
    await page.goto("about:blank");
    await page.goto(`${base}#/roofline?machine=h1000`);
    assert.match(await page.textContent(".headline .error"), /did you mean h100/);
  },
  async "why slow answers"() {
    const seen = cli("explain", "--model", "llama-3-70b", "--machine", "8xh100-sxm", "--observed", "280", "--gpu-util", "0.38", "--context", "4096");
    await open("#/slow?model=llama-3-70b&machine=8xh100-sxm&context=4096");
    await page.fill("input[name=observed]", "280");
    await page.fill("input[name=gpu-util]", "0.38");
    await page.waitForFunction((sentence) => document.querySelector(".verdict")?.textContent === sentence, seen.sentence);
    assert.equal(await page.getAttribute("[data-verdict]", "data-verdict"), seen.verdict);
    const command = await page.textContent("code.command");
    assert.equal(command, "ridge explain --model llama-3-70b --machine 8xh100-sxm --context 4096 --observed 280 --gpu-util 0.38");
    assert.equal(cli(...command.split(" ").slice(1)).sentence, seen.sentence);
    await page.setViewport(1200, 900);
    await page.settled();
    const hidden = await page.evaluate(() => { const box = document.querySelector(".levers").parentElement; return box.scrollWidth - box.clientWidth; });
    assert.ok(hidden <= 0, `${hidden} px of the levers are cut off`);
    await page.setViewport(1440, 1000);
    assert.match(await page.textContent(".facts"), new RegExp(`${seen.verdict}.*confidence${Math.round(seen.confidence * 100)} %`));
    assert.equal(await page.count(seen.healthy ? ".facts .healthy" : ".facts .problem"), 1);
    const rows = await page.evaluate(() => [...document.querySelectorAll(".levers tr:not(.how) td:first-child")].map((cell) => cell.textContent));
    assert.deepEqual(rows, [...seen.levers.filter((l) => l.targeted), ...seen.levers.filter((l) => !l.targeted)].map((l) => l.name.replace("->", "→")));
    assert.deepEqual(await listed(".evidence .missing li"), seen.missing.map((text) => `? ${text.replace(/^--/, "")}`));
    await page.fill("input[name=itl]", "soon");
    await page.waitForSelector(".observed .field.bad .error");
    await page.fill("input[name=itl]", "30ms");
    await page.waitForSelector(".observed .field.bad", "detached");
  },
  async "why slow: any one number is explained"() {
    await open("#/slow?model=llama-3-8b&machine=h200");
    const options = await page.evaluate(() => [...document.querySelectorAll(".observed input")].map((input) => input.name));
    assert.equal(options.length, 24);
    assert.equal(await page.evaluate(() => document.querySelector(".observed details").open), false);
    const values = { itl: "30ms", "itl-p50": "30ms", "itl-p99": "90ms", ttft: "2s", "queue-time": "2s", accepted: "2.3", power: "600W", "power-limit": "700W", "sm-clock": "1410" };
    await page.click(".observed summary");
    for (const option of options) {
      const typed = values[option] ?? (/usage|hit|active|util|cpu/.test(option) ? "0.5" : "8");
      await page.fill(`input[name=${option}]`, typed);
      const command = await page.waitForFunction((end) => {
        const text = document.querySelector("code.command").textContent;
        return text.endsWith(end) && text;
      }, ` --${option.replace("seen-", "")} ${typed}`);
      const { sentence } = cli(...command.split(" ").slice(1));
      await page.waitForFunction((text) => document.querySelector(".verdict")?.textContent === text, sentence);
      await page.fill(`input[name=${option}]`, "");
      await page.waitForSelector(".verdict", "detached");
    }
    await open("#/slow?model=llama-3-8b&machine=h200&cpu=0.98"); // one of the rarer fields
    assert.equal(await page.evaluate(() => document.querySelector(".observed details").open), true);
  },
  async "tiles: one stage leaves bubbles"() {
    await open("#/tiles?machine=h100-sxm&stages=4");
    await page.waitForSelector(".sentence");
    const four = await page.textContent(".sentence");
    await page.focus("#stages");
    await page.press("Home");
    await page.waitForFunction((old) => document.querySelector(".sentence").textContent !== old, four);
    assert.match(await page.textContent(".sentence"), /With 1 stage /);
    await page.clickText("button", "step");
  },
  async "panels by keyboard"() {
    await open("#/roofline");
    await page.focus("[role=tab][aria-selected=true]");
    await page.press("ArrowRight");
    await page.waitForSelector("[data-panel=pyramid]");
    await page.focus("[data-level=L2]");
    await page.press("Enter");
    await page.waitForSelector("[data-detail=L2]");
  },
  async "a figure is saved as SVG, CSV, PNG and JSON"() {
    await open("#/roofline?model=llama-3-8b&machine=h200&batch=32");
    await page.waitForSelector(".dot");
    for (const kind of ["SVG", "CSV", "PNG", "JSON"]) {
      const name = await page.download(() => page.clickText(".save *", kind));
      assert.equal(name, `roofline.${kind.toLowerCase()}`);
    }
  },
  async "a report stands alone"() {
    const file = join(profile, "report.html");
    execFileSync(ridge, ["report", "-o", file, "--model", "llama-3-8b", "--machine", "h200", "--batch", "32", "--observed", "900", "--output", "300"]);
    const expected = cli("predict", "--model", "llama-3-8b", "--machine", "h200", "--batch", "32");
    requests.length = 0;
    for (const [name, mark] of Object.entries({ ...panels, slow: ".verdict" })) {
      await page.goto("about:blank");
      await page.goto(`${pathToFileURL(file)}#/${name}`);
      await page.waitForSelector(`[data-panel=${name}] ${mark}`, "attached");
    }
    assert.equal(await reading("per token"), expected.tpot_s);
    assert.deepEqual(requests.filter((url) => url.startsWith("http")), []);
    await page.goto("about:blank");
    await page.goto(String(pathToFileURL(file)));
    await page.waitForSelector("[data-panel=slow] .verdict"); // a report opens with its diagnosis
    const command = await page.textContent("code.command");
    assert.equal(command, "ridge explain --model llama-3-8b --machine h200 --observed 900 --batch 32 --output 300");
    assert.equal(await page.textContent(".verdict"), cli(...command.split(" ").slice(1)).sentence);
    assert.deepEqual(await listed(".quantities tbody td:first-child"), ["tokens per s", "batch", "output"]);
  },
  async "a report shows the diagnosis of metrics"() {
    const metrics = join(profile, "metrics.prom"), file = join(profile, "metrics.html");
    writeFileSync(metrics, ["running 32", "waiting 40", "kv_cache_usage_perc 0.99"].map((line) => `vllm:${line.startsWith("kv") ? "" : "num_requests_"}${line}\n`).join(""));
    execFileSync(ridge, ["report", "-o", file, "--explain", metrics, "--model", "llama-3-8b", "--machine", "h200", "--gpu-util", "0.97"]);
    await openReport(file);
    const seen = cli("explain", metrics, "--model", "llama-3-8b", "--machine", "h200", "--gpu-util", "0.97");
    assert.equal(await page.textContent(".verdict"), seen.sentence);
    assert.equal(await page.count(".observed"), 0); // no form
    assert.deepEqual(await listed(".quantities tbody td:first-child"), seen.observed.quantities.map((q) => q.name.replaceAll("_", " ")));
    assert.deepEqual(await listed(".quantities tbody td:nth-child(3)"), seen.observed.quantities.map((q) => q.origin));
    assert.match(await page.textContent(".files"), /metrics\.prom: vLLM metrics/);
    assert.ok((await page.textContent("code.command")).startsWith(`ridge explain ${metrics} --model llama-3-8b`));
  },
  async "a report shows the time line of a trace"() {
    const trace = join(profile, "trace.json"), file = join(profile, "trace.html");
    writeFileSync(trace, JSON.stringify(inventedTrace()));
    execFileSync(ridge, ["report", "-o", file, "--explain", trace]);
    await openReport(file);
    const { profile: p, missing } = cli("explain", trace);
    assert.ok(p.busy_s > 0 && missing.length > 0);
    const parts = await listed("[data-part] text");
    assert.deepEqual(parts.map((text) => text.replace(/ [\d.]+ (ms|µs|s),.*/, "")), ["kernels run", "exposed collectives", "gaps: kernel launch", "gaps: host code"]);
    const length = (part) => page.evaluate((name) => Number(document.querySelector(`[data-part="${name}"] rect`).getAttribute("width")), part);
    const near = (a, b) => assert.ok(Math.abs(a / b - 1) < 0.02, `${a} is not ${b}`);
    near((await length("exposed collectives")) / (await length("kernels run")), p.exposed_collective_s / (p.busy_s - p.exposed_collective_s));
    near((await length("gaps: host code")) / (await length("kernels run")), p.gaps_s.host / (p.busy_s - p.exposed_collective_s));
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("[data-operator]")].map((row) => row.dataset.operator)), p.operators.map((row) => row.family));
    assert.match(await page.textContent(".files"), /do not tell the model or the machine/);
    assert.equal(await page.textContent("code.command"), `ridge explain ${trace}`);
    assert.equal(await page.evaluate(() => document.querySelectorAll(".facts").length), 1); // no step without a model
  },
  async "screenshots for a person"() {
    for (const width of [1440, 390]) {
      await page.setViewport(width, width > 1000 ? 1000 : 844);
      for (const name of Object.keys(panels)) {
        const extra = name === "slow" ? "&observed=600&seen-batch=8&gpu-util=0.4" : name === "roofline" ? "&compare=b200" : "";
        await open(`#/${name}?model=llama-3-8b&machine=h200&batch=32&context=4096${extra}`);
        await page.waitForSelector(`[data-panel=${name}] ${panels[name]}`, "attached");
        for (const theme of ["light", "dark"]) {
          await page.emulateMedia({ "prefers-color-scheme": theme, "prefers-reduced-motion": "no-preference" });
          await page.settled();
          await page.screenshot(join(screenshots, `${name}-${width}-${theme}.png`));
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert.ok(wide <= 0, `${name} at ${width} px is ${wide} px too wide, ${theme}`);
        }
      }
    }
    await page.setViewport(1440, 1000);
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "failed.png") });
await close();
await server.stop();
rmSync(profile, { recursive: true, force: true });
writeFileSync(join(screenshots, "README.txt"), "Written by web/test/browser.mjs.\n");
process.exit(failed ? 1 : 0);
