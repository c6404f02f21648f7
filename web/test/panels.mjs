// The panels in a real browser: what the eye and the keyboard find, beyond browser.mjs.
//   node test/panels.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findChromium, launch } from "./chromium.mjs";
import { serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [given, screenshots, only] = process.argv.slice(2);
const ridge = resolve(given); // it also runs in a folder of the test's
findChromium();
mkdirSync(screenshots, { recursive: true });

const folder = mkdtempSync(join(tmpdir(), "ridge-panels-"));
const server = await serve(ridge, ["--no-model"]);
const { base } = server;
const cli = (...words) => JSON.parse(execFileSync(ridge, [...words, "--json"], { encoding: "utf8", cwd: folder }));

const faults = [];
const { page, close } = await launch(folder, {
  fault: (text) => /status of 400/.test(text) || faults.push(text),
  request: (url) => {
    if (!url.startsWith(base) && !/^(data|blob|file|about):/.test(url)) faults.push(`left the host: ${url}`);
  },
});
const kDesk = [1440, 1000], kPhone = [390, 844];
const open = async (hash, size = kDesk) => {
  await page.setViewport(...size);
  await page.goto("about:blank");
  await page.goto(base + hash);
  await page.waitForSelector(".headline output");
  await page.waitForSelector("#panel .loading", "detached");
  await page.settled();
};
const kCase = "model=llama-3-8b&machine=h200&batch=32&context=4096";
const query = (name) => page.evaluate((n) => new URLSearchParams(location.hash.split("?")[1]).get(n), name);

const listed = (selector) => page.evaluate((s) => [...document.querySelectorAll(s)].map((element) => element.textContent), selector);
const kMetrics = "vllm:num_requests_running 32\nvllm:num_requests_waiting 40\nvllm:kv_cache_usage_perc 0.99\n";
// Twenty steps of a GEMM and attention, marked as steps of 32 sequences.
function inventedTrace() {
  const traceEvents = [];
  let at = 1e15, correlation = 0;
  const run = (name, us) => {
    traceEvents.push({ ph: "X", cat: "cuda_runtime", name: "cudaLaunchKernel", pid: 1, tid: 1, ts: at + 1, dur: 2, args: { correlation: ++correlation } });
    traceEvents.push({ ph: "X", cat: "kernel", name, pid: 0, tid: 7, ts: at + 5, dur: us, args: { device: 0, stream: 7, correlation } });
    at += 5 + us;
  };
  for (let step = 0; step < 20; ++step) {
    for (let layer = 0; layer < 32; ++layer) {
      run("nvjet_tst_64x8", 120);
      run("void flash::flash_fwd_kernel<1>()", 60);
    }
  }
  return { schemaVersion: 1, traceEvents };
}
// Gives files to the page: through the button, or dropped on the panel.
const give = async (files, drag = false) => (await page.waitForSelector(".drop input"), page.evaluate((given, dropping) => {
  const transfer = new DataTransfer();
  for (const [name, text] of Object.entries(given)) transfer.items.add(new File([text], name));
  const input = document.querySelector(".drop input");
  if (dropping) {
    document.querySelector(".panel").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
  } else {
    input.files = transfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }
}, files, drag));

const tests = {
  async "at phone width the selected tab is in sight, and the figure on the first screen"() {
    for (const name of ["roofline", "pyramid", "time", "tiles", "batch", "memory", "slow", "history"]) {
      await open(`#/${name}?${kCase}`, kPhone);
      const box = await page.evaluate(() => {
        const { left, right } = document.querySelector("[role=tab][aria-selected=true]").getBoundingClientRect();
        return { left, right };
      });
      assert.ok(box.left >= 0 && box.right <= 390, `${name}: ${JSON.stringify(box)}`);
    }
    await open(`#/roofline?${kCase}`, kPhone);
    await page.waitForSelector(".dot");
    const top = await page.evaluate(() => document.querySelector("[data-figure=roofline]").getBoundingClientRect().top);
    assert.ok(top < 480, `the roofline starts at ${top} px`);
    await page.click(".unfold");
    await page.waitForFunction(() => document.querySelector("output[data-name=memory]").getClientRects().length > 0);
  },
  async "at phone width a wide table scrolls in its own box, and the page does not"() {
    for (const name of ["tiles", "batch", "memory", "slow", "history", "plan", "time"]) {
      await open(`#/${name}?${kCase}&clients=8`, kPhone);
      await page.waitForSelector(".panel");
      const { wide, free } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        free: [...document.querySelectorAll(".panel table")].filter((t) => !t.closest(".scroll")).length,
      }));
      assert.equal(wide, 0, name);
      assert.equal(free, 0, `${name}: a table outside a scroll box`);
    }
  },
  async "a memory has one size on every panel"() {
    const h200 = "machine=h200&model=llama-3-8b";
    await open(`#/pyramid?${h200}`);
    await page.waitForFunction(() => /HBM/.test(document.querySelector(".panel")?.textContent ?? ""));
    const pyramid = await page.textContent(".panel");
    assert.match(pyramid, /151 GB/);
    assert.match(pyramid, /60\.0 MiB/);
    assert.doesNotMatch(pyramid, /140 GiB/);
    await open(`#/memory?${h200}`);
    await page.waitForFunction(() => /that the driver leaves/.test(document.querySelector(".panel")?.textContent ?? ""));
    assert.match(await page.textContent(".panel"), /of 150 GB that the driver leaves/);
  },
  async "nothing is written smaller than 12 px"() {
    for (const name of ["roofline", "pyramid", "time", "tiles", "batch", "memory", "slow", "history"]) {
      await open(`#/${name}?${kCase}&observed=600`);
      const small = await page.evaluate(() => [...document.querySelectorAll("body *")]
        .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && parseFloat(getComputedStyle(e).fontSize) < 12).map((e) => e.outerHTML.slice(0, 80)));
      assert.deepEqual(small, [], name);
    }
  },
  async "a dot of the roofline is a slider"() {
    await open(`#/roofline?${kCase}`);
    const dot = ".dot.decode[role=slider]";
    await page.focus(dot);
    assert.equal(await page.getAttribute(dot, "aria-valuenow"), "32");
    await page.press("ArrowRight");
    await page.waitForFunction(() => location.hash.includes("batch=64"));
    await page.press("Home");
    await page.waitForFunction(() => location.hash.includes("batch=1&"));
    await page.focus(".dot.prefill[role=slider]");
    await page.press("ArrowRight");
    await page.waitForFunction(() => location.hash.includes("prompt=8192"));
  },
  async "measured roofs say so, and a technique that is off is told"() {
    await open(`#/roofline?${kCase}&no-flash=true`);
    await page.waitForSelector("[data-techniques]");
    assert.match(await page.textContent("[data-techniques]"), /^FlashAttention is off: time to first token x\d/);
    assert.match(await page.evaluate(() => [...document.querySelectorAll(".roof-label")].map((e) => e.textContent).join("|")), /L2 10\.0 TB\/s, measured/);
    await page.click("input[name=no-flash]");
    await page.waitForSelector("[data-techniques]", "detached");
  },
  async "time: what is solid ends at the roof"() {
    await open(`#/time?model=llama-3-8b&machine=h200&batch=32&context=4096&itl=12ms`);
    await page.waitForSelector("[data-figure=time-decode] .rule.seen");
    const [solid, pale, roof] = await page.evaluate(() => {
      const at = (selector) => document.querySelector(`[data-figure=time-decode] ${selector}`).getBoundingClientRect();
      return [at(".wall-memory rect:not(.loss)").right, at(".wall-memory .loss").right, at(".roofmark line").right];
    });
    assert.ok(solid <= roof + 1 && pale > roof, `${solid} ${pale} ${roof}`);
    const struck = await page.evaluate(() => {
      const lines = [...document.querySelectorAll(".rule line")].map((e) => e.getBoundingClientRect());
      return [...document.querySelectorAll(".rule text")].filter((e) => {
        const t = e.getBoundingClientRect();
        return lines.some((l) => l.left > t.left + 1 && l.left < t.right - 1 && l.top < t.bottom && l.bottom > t.top);
      }).length;
    });
    assert.equal(struck, 0, "a line goes through a label");
  },
  async "batch: curves end at the largest batch that fits"() {
    await open(`#/batch?${kCase}`);
    await page.waitForSelector("[data-figure=batch-device] .precision");
    const { memory } = cli("predict", "--model", "llama-3-8b", "--machine", "h200", "--context", "4096", "--weights", "bf16");
    const last = await page.evaluate(() => [...document.querySelectorAll("[data-figure=batch-device] .precision.p0 title")].at(-1).textContent);
    assert.ok(last.startsWith(`batch ${memory.max_batch},`), last);
  },
  async "KV table stays within the model's context"() {
    await open(`#/memory?${kCase}`);
    await page.waitForFunction(() => document.querySelectorAll(".partlist thead").length > 0);
    const contexts = await page.evaluate(() => [...document.querySelectorAll(".partlist thead + tbody td:first-child")].map((e) => Number(e.textContent)));
    assert.ok(contexts.length > 1 && Math.max(...contexts) <= 8192, String(contexts));
  },
  async "why slow: a loss goes left of x1, a gain right"() {
    await open(`#/slow?${kCase}&observed=600&seen-batch=8&gpu-util=0.4`);
    await page.waitForSelector(".levers .gain");
    const bars = await page.evaluate(() => [...document.querySelectorAll(".levers tr:not(.how)")].filter((row) => row.querySelector(".gain rect")).map((row) => ({
      gain: Number(row.querySelector("[data-label='tok/s']").textContent.slice(1)),
      x: Number(row.querySelector("rect").getAttribute("x")), width: Number(row.querySelector("rect").getAttribute("width")),
      one: Number(row.querySelector("line").getAttribute("x1")),
    })));
    assert.ok(bars.some(({ gain }) => gain < 0.9) && bars.some(({ gain }) => gain > 1.1));
    for (const { gain, x, width, one } of bars) {
      if (gain === 1) assert.ok(width < 0.5);
      else assert.ok(gain > 1 ? x >= one - 1e-6 : x + width <= one + 1e-6, `x${gain}`);
    }
    await open(`#/slow?${kCase}&observed=600&seen-batch=8&gpu-util=0.4`, kPhone);
    await page.waitForSelector(".levers .how");
    const cut = await page.evaluate(() => [...document.querySelectorAll(".levers td")].filter((cell) => cell.getBoundingClientRect().right > 390).length);
    assert.equal(cut, 0);
  },
  async "why slow: an example fills the form, and the step is on the roofline"() {
    await open("#/slow");
    await page.clickText(".chip", "Example: Llama 3 70B on 8 × H100, 280 tok/s at 38 % utilisation");
    const seen = cli("explain", "--model", "llama-3-70b", "--machine", "8xh100-sxm", "--context", "4096", "--observed", "280", "--gpu-util", "0.38");
    await page.waitForFunction((sentence) => document.querySelector(".verdict")?.textContent === sentence, seen.sentence);
    const rate = Number(await page.getAttribute("[data-dot=observed]", "data-rate"));
    assert.ok(Math.abs(rate / (seen.expected.flops / seen.observed.step_s) - 1) < 1e-9);
    await page.clickText(".chip", "Clear");
    await page.waitForSelector(".verdict", "detached");
  },
  async "why slow: dropped files are explained as on the command line"() {
    writeFileSync(join(folder, "metrics.prom"), kMetrics);
    writeFileSync(join(folder, "trace.json"), JSON.stringify(inventedTrace()));
    await open(`#/slow?model=llama-3-8b&machine=h200`);
    await give({ "metrics.prom": kMetrics });
    let seen = cli("explain", "metrics.prom");
    await page.waitForFunction((sentence) => document.querySelector(".verdict")?.textContent === sentence, seen.sentence);
    assert.equal(await page.textContent("code.command"), "ridge explain metrics.prom");
    assert.deepEqual(await listed(".quantities tbody td:first-child"), seen.observed.quantities.map((q) => q.name.replaceAll("_", " ")));
    await page.clickText(".chip", "llama-3-8b on h200");
    seen = cli("explain", "metrics.prom", "--model", "llama-3-8b", "--machine", "h200");
    await page.waitForFunction((sentence) => document.querySelector(".verdict")?.textContent === sentence, seen.sentence);
    assert.equal(await page.textContent("code.command"), "ridge explain metrics.prom --model llama-3-8b --machine h200");
    await give({ "trace.json": JSON.stringify(inventedTrace()) }, true);
    seen = cli("explain", "metrics.prom", "trace.json", "--model", "llama-3-8b", "--machine", "h200");
    await page.waitForSelector("[data-figure=timeline]");
    assert.equal(await page.textContent(".verdict"), seen.sentence);
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("[data-operator]")].map((row) => row.dataset.operator)), seen.profile.operators.map((row) => row.family));
    const placed = seen.profile.operators.filter((op) => op.flops && op.bytes);
    for (const op of placed) {
      const rate = Number(await page.getAttribute(`[data-dot="${op.family}"]`, "data-rate"));
      assert.ok(Math.abs(rate / (op.flops / op.seconds) - 1) < 1e-9, op.family);
    }
    await page.screenshot(join(screenshots, "slow-files.png"));
    await page.clickText(".chip", "Remove all");
    await page.waitForSelector(".verdict", "detached");
    await give({ "notes.txt": "buy milk" });
    await page.waitForFunction(() => /notes\.txt: not recognised/.test(document.querySelector(".panel > .error")?.textContent ?? ""));
  },
  async "plan: the cheapest as on the command line, with its launch command"() {
    await open("#/plan?model=llama-3-8b&plan-machine=h100-sxm,l40s&plan-rate=8&plan-prompt=600&plan-output=100&plan-ttft=1s&plan-itl=40ms");
    await page.waitForSelector("[data-plan-best]");
    const command = await page.textContent("code.command");
    assert.equal(command, "ridge plan --model llama-3-8b --machine h100-sxm,l40s --rate 8 --prompt 600 --output 100 --ttft 1s --itl 40ms");
    const plan = cli(...command.split(" ").slice(1));
    assert.equal(await page.getAttribute("[data-plan-best]", "data-plan-best"), plan.candidates[0].machine);
    assert.equal(await page.textContent("[data-plan-launch]"), plan.best.launch);
    const shown = plan.candidates.filter((c) => c.machines > 0 && c.dollars_per_hour !== null);
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("[data-plan]")].map((e) => Number(e.dataset.cost))), shown.map((c) => c.dollars_per_hour));
    assert.equal(await page.count(".plan-point.best"), 1);
    await page.clickText(".chip", "ITL");
    await page.fill("input[name=plan-itl]", "1 us");
    await page.click(".plan-go");
    await page.waitForFunction(() => document.querySelector("[data-plan-best]")?.dataset.planBest === "none");
    await page.fill("input[name=plan-rate]", "many");
    await page.click(".plan-go");
    await page.waitForFunction(() => /not a number/.test(document.querySelector(".panel > .error")?.textContent ?? ""));
  },
  async "the wall over time counts from one machine"() {
    await open("#/history");
    await page.waitForSelector(".series text");
    const [first, text] = await page.evaluate(() => [document.querySelector(".axes .title + .title").textContent, document.querySelector(".panel .sentence").textContent]);
    const peak = await page.evaluate(() => document.querySelector(".series.compute text").textContent.replace("peak ", ""));
    assert.ok(text.includes(`the dense peak grew ${peak},`), text);
    assert.ok(first.includes(/From (\S+) to/.exec(text)[1]), first);
    await open("#/history", kPhone);
    await page.waitForSelector(".series text");
    assert.equal(await page.evaluate(() => [...document.querySelectorAll(".series text")].filter((e) => e.getBoundingClientRect().right > 382).length), 0);
  },
  async "a draft model and its acceptance can be chosen"() {
    await open(`#/roofline?${kCase}`);
    assert.equal(await page.count("input[name=acceptance]"), 0);
    await page.fill("input[name=speculate]", "4");
    await page.fill("input[name=acceptance]", "0.8");
    await page.waitForFunction(() => document.querySelectorAll("select[name=draft] option").length > 10);
    await page.selectOption("select[name=draft]", "llama-3.2-1b");
    await page.waitForFunction(() => location.hash.includes("draft=llama-3.2-1b"));
    const command = await page.textContent("code.command");
    assert.match(command, /--speculate 4 --acceptance 0.8 --draft llama-3.2-1b$/);
    const { tpot_s } = cli(...command.split(" ").slice(1));
    await page.waitForFunction((value) => Number(document.querySelector('output[data-name="per token"]').dataset.value) === value, tpot_s);
    assert.equal(await query("acceptance"), "0.8");
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "panels-failed.png") });
await close();
await server.stop();
rmSync(folder, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
