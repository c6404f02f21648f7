// The Learn path in a real browser, against the built binary:  node test/learn.mjs RIDGE SCREENSHOTS
// Exit 77 (skipped) where there is no chromium.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findChromium, launch } from "./chromium.mjs";
import { measuredHome, serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });
const kStops = 15;

// Two servers: a computer that nobody measured, and one with a file as `ridge measure` writes it.
const profile = mkdtempSync(join(tmpdir(), "ridge-learn-"));
const homes = { bare: { ...process.env, XDG_CONFIG_HOME: join(profile, "bare") }, measured: measuredHome() };
const home = (name) => homes[name];
const servers = await Promise.all(["bare", "measured"].map((name) => serve(ridge, ["--no-model"], { env: home(name) })));
const [base, measured] = servers.map((server) => server.base);

// The command line's answers, asked once each.
const known = new Map();
function cli(words, env = home("bare")) {
  const key = words.join(" ") + env.XDG_CONFIG_HOME;
  if (!known.has(key)) known.set(key, JSON.parse(execFileSync(ridge, [...words, "--json"], { encoding: "utf8", env })));
  return known.get(key);
}

const faults = [];
const requests = [];
const { page, close } = await launch(profile, {
  fault: (text) => faults.push(text),
  request: (url) => {
    requests.push(url);
    if (!url.startsWith(base) && !url.startsWith(measured) && !/^(data|blob|about):/.test(url)) faults.push(`left the host: ${url}`);
  },
});
await page.setViewport(1440, 1000);
const open = async (hash, at = base) => {
  await page.goto("about:blank");
  await page.goto(at + hash);
  await page.waitForSelector(hash.includes("guess=") ? "#reveal" : ".guess");
  await page.settled();
};
// To another address of the page that is open, as a link in it leads: nothing loads anew.
const turn = async (hash) => {
  await page.evaluate((h) => { location.hash = h; }, hash);
  const stop = /learn\/(\d+)/.exec(hash)[1];
  await page.waitForSelector(`[data-stop="${stop}"] ${hash.includes("guess=") ? "#reveal" : ".guess"}`);
  await page.settled();
};
const query = async () => Object.fromEntries(new URLSearchParams((await page.url()).split("?")[1] ?? ""));
const answers = async () => (await page.getAttribute("#reveal", "data-answer")).split("~");
const key = async (name, code = name, text = undefined) => {
  const event = { key: name, code, windowsVirtualKeyCode: { Tab: 9, Enter: 13, ArrowLeft: 37, ArrowRight: 39 }[name] };
  await page.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", ...event, ...(text ? { text } : {}) });
  await page.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
};

// What each stop must say, from the command line alone.
const op = (p, phase, pick) => p.ops.filter((o) => o.phase === phase && pick(o));
const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
function expected(machine) {
  const at = ["--model", "llama-3-8b", "--machine", machine];
  const predict = (...words) => cli(["predict", ...words]);
  const { machine: m, ridge: ridges } = cli(["machine", machine]);
  const model = cli(["model", "llama-3-8b"]);
  const memory = m.levels.filter((l) => l.scope === "device").pop(), cache = m.levels.filter((l) => l.scope === "device").slice(-2)[0];
  const heaviest = (batch) => op(predict(...at, "--batch", batch, "--context", "4096"), "decode", () => true).reduce((a, b) => (b.bytes > a.bytes ? b : a)).name;
  const prompt = predict(...at, "--context", "1024", "--prompt", "128");
  const batch = (n, ...more) => predict(...at, "--batch", n, "--context", "128", ...more).tpot_s;
  const flash = (...more) => op(predict(...at, "--context", "8192", "--prompt", "8192", ...more), "prefill", (o) => o.kind.startsWith("attention"))[0].bytes;
  const format = (weights) => predict(...at, "--context", "2048", "--weights", weights).tpot_s;
  const cards = (tp) => predict("--model", "llama-3-8b", "--machine", "8xh200", "--tp", tp).tpot_s;
  const seats = (...more) => predict(...at, "--batch", "32", "--context", "4096", "--prompt", "4096", ...more).decode.tokens_per_s;
  const drafted = (n, ...more) => predict(...at, "--batch", n, "--context", "1024", ...more).decode.tokens_per_s;
  const drafts = ["--speculate", "4", "--acceptance", "0.7", "--draft", "llama-3.2-1b"];
  const step = predict(...at, "--context", "128");
  const decode = op(step, "decode", () => true), side = 4096;
  const levers = cli(["explain", "--model", "llama-3-70b", "--machine", "8xh100-sxm", "--observed", "280", "--gpu-util", "0.38"]).levers;
  const gain = (pattern) => levers.find((l) => pattern.test(l.name)).gain;
  const remedies = [["B200 instead of H100", gain(/^machine b200$/)], ["weights in int4", gain(/^weights int4$/)], ["batch 3 → 24", gain(/^batch .* 24$/)]];
  return {
    1: [sum(decode, (o) => o.bytes / memory.read_bandwidth) / sum(decode, (o) => o.flops / m.peak[o.math])],
    2: [((cache.capacity * (cache.instances ?? 1)) / model.weight_bytes) * 100],
    3: [(ridges.bf16 * side * side * 2) / (2 * side * side - ridges.bf16 * 2 * (side + side))],
    4: [heaviest("1"), heaviest("32")],
    5: [prompt.ttft_s / prompt.tpot_s],
    6: [cli(["tiles", "--machine", machine]).ladder.find((l) => Math.max(l.memory_busy, l.compute_busy) >= 0.95).stages],
    7: [batch("64") / batch("1")],
    8: [flash("--no-flash") / flash()],
    9: [model.weight_bytes / (model.kv_bytes_per_token * 4096)],
    10: [predict("--model", "llama-3.1-8b", "--machine", machine, "--context", "4096", "--no-paging").memory.max_batch],
    11: [format("bf16") / format("int4")],
    12: [cards("1") / cards("8")],
    13: [(seats("--no-continuous") / seats()) * 100],
    14: ["1", "128"].map((n) => drafted(n, ...drafts) / drafted(n)),
    15: remedies.sort((a, b) => b[1] - a[1]).map(([name]) => name),
  };
}

// Every element with text of its own against the ground it stands on.
function faint() {
  const channel = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const rgb = parse(getComputedStyle(at).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0.99) return rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll(".learn *:not(.learn-motion *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || element.closest("button:disabled, text.on, option, .sr")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(element.namespaceURI.includes("svg") ? style.fill : style.color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5 || parseFloat(style.fontSize) < 12) found.push(`${element.tagName} "${element.textContent.slice(0, 30)}" ${contrast.toFixed(2)} ${style.fontSize}`);
  }
  return found;
}

const tests = {
  async "the first load holds nothing of Learn"() {
    requests.length = 0;
    await page.goto(`${base}#/roofline`);
    await page.waitForSelector("[data-panel=roofline] .dot");
    await page.settled();
    assert.deepEqual(requests.filter((url) => /learn|\/api\/work/.test(url)), []);
  },
  async "the answer is hidden before a guess, and then it is the command line's"() {
    for (const machine of ["h200", "a100-sxm-80gb"]) {
      const truth = expected(machine);
      const on = machine === "h200" ? "" : `on=${machine}`;
      await open(`#/learn/${kStops}?${on}`);
      for (let stop = 1; stop <= kStops; ++stop) {
        await turn(`#/learn/${stop}?${on}`);
        assert.equal(await page.count("[data-answer], #reveal, .kills, [data-motion]"), 0, `stop ${stop} tells too early`);
        await page.clickText(".guess button", "Show me");
        await page.waitForSelector("#reveal");
        const said = await answers();
        assert.equal(said.length, truth[stop].length);
        truth[stop].forEach((value, i) => {
          if (typeof value === "string") assert.equal(said[i], value, `stop ${stop} on ${machine}`);
          else assert.ok(Math.abs(Number(said[i]) / value - 1) < 1e-9, `stop ${stop} on ${machine}: ${said[i]} is not ${value}`);
        });
        assert.equal((await query()).done, String(stop));
      }
    }
  },
  async "the control changes its own parameter only"() {
    await open("#/learn/15?on=h100-sxm&guess=show");
    for (let stop = 1; stop <= kStops; ++stop) {
      await turn(`#/learn/${stop}?on=h100-sxm&guess=show&done=${stop}`);
      const before = await query(), answer = await answers();
      await page.evaluate(() => document.querySelector("[data-control] input:not(:checked)").click());
      await page.waitForFunction(() => location.hash.includes("move="));
      const { move, ...rest } = await query();
      assert.ok(move);
      assert.deepEqual(rest, before);
      await page.waitForFunction((value) => document.querySelector(`[data-control] input[value="${value}"]`).checked, move);
      assert.deepEqual(await answers(), answer, `stop ${stop}: the question is fixed`);
    }
  },
  async "address, guess and Back round-trip"() {
    const hash = "#/learn/7?move=64&guess=9&done=3.7";
    await open(hash);
    assert.equal(new URL(await page.url()).hash, hash);
    assert.match(await page.textContent("#reveal"), /You said ×9, it is ×/);
    assert.equal(await page.count(".guess-scale .ring"), 1);
    assert.equal(await page.count(".stops .done"), 2);
    await page.clickText(".turn button", "Next →");
    await page.waitForSelector('[data-stop="8"] .guess');
    assert.equal(new URL(await page.url()).hash, "#/learn/8?done=3.7");
    await page.goBack();
    await page.waitForSelector('[data-stop="7"] #reveal');
    assert.equal(new URL(await page.url()).hash, hash);
    await page.click(".further a");
    await page.waitForSelector("[data-panel=batch] .precision path", "attached");
    assert.deepEqual(await query(), { model: "llama-3-8b", machine: "h200", batch: "64", context: "128", done: "3.7" });
    await page.goBack();
    await page.waitForSelector('[data-stop="7"] #reveal');
    await open("#/learn/99");
    assert.equal(await page.getAttribute("[data-stop]", "data-stop"), "1");
  },
  async "a guess that is no number is told"() {
    await open("#/learn/1");
    await page.fill("input[name=guess0]", "many");
    await page.clickText(".guess button", "Guess");
    await page.waitForSelector(".guess .error");
    assert.equal(await page.count("#reveal"), 0);
    await page.fill("input[name=guess0]", "1,5 x");
    await page.clickText(".guess button", "Guess");
    await page.waitForSelector("#reveal");
    assert.equal((await query()).guess, "1.5");
  },
  async "all fifteen by keyboard alone"() {
    await open("#/learn/1");
    for (let stop = 1; stop <= kStops; ++stop) {
      await page.waitForSelector(`[data-stop="${stop}"] .guess`);
      if (stop > 1) await page.waitForFunction(() => document.activeElement.id === "stop-title");
      for (let tabs = 0; tabs < 80; ++tabs) {
        await key("Tab");
        const name = await page.evaluate(() => document.activeElement.name || document.activeElement.type);
        if (/^guess\d/.test(name) && (await page.evaluate(() => document.activeElement.tagName === "INPUT"))) await page.send("Input.insertText", { text: "3" });
        if (name === "submit") break;
      }
      await key("Enter", "Enter", "\r");
      await page.waitForSelector("#reveal");
      await page.waitForFunction(() => document.activeElement.id === "reveal");
      await key("ArrowRight");
    }
    assert.equal((await query()).done, Array.from({ length: kStops }, (_, i) => i + 1).join("."));
    assert.equal(await page.getAttribute("[data-stop]", "data-stop"), String(kStops)); // the last has no next
    await key("ArrowLeft");
    await page.waitForSelector(`[data-stop="${kStops - 1}"]`);
  },
  async "remedies are sorted by buttons"() {
    await open("#/learn/15");
    const listed = () => page.evaluate(() => [...document.querySelectorAll(".order li > span")].map((e) => e.textContent));
    const before = await listed();
    await page.evaluate(() => document.querySelector(".order li:first-child button:last-child").click());
    await page.waitForFunction((name) => document.querySelector(".order li > span").textContent === name, before[1]);
    assert.deepEqual(await listed(), [before[1], before[0], before[2]]);
    await page.clickText(".guess button", "Guess");
    await page.waitForSelector("#reveal");
    assert.equal((await query()).guess, [before[1], before[0], before[2]].join("~"));
    assert.match(await page.textContent("#reveal"), /You said/);
  },
  async "without a measurement the example is labelled, never this"() {
    await open("#/learn/1");
    assert.equal(await page.getAttribute("[data-measured]", "data-measured"), "false");
    assert.equal(await page.getAttribute("[data-place]", "data-place"), "llama-3-8b on h200");
    assert.match(await page.textContent(".whose"), /an example.*ridge measure/);
    assert.ok(!(await page.evaluate(() => [...document.querySelectorAll("#learn-machine option")].some((o) => o.value === "this"))));
  },
  async "a measured computer answers for itself"() {
    const env = home("measured");
    await open("#/learn/15?guess=show", measured);
    for (let stop = 1; stop <= kStops; ++stop) {
      await turn(`#/learn/${stop}?guess=show`);
      assert.notEqual((await answers())[0], "?", `stop ${stop}`);
    }
    await open("#/learn/7?guess=show", measured);
    assert.equal(await page.getAttribute("[data-measured]", "data-measured"), "true");
    const [model, machine] = (await page.getAttribute("[data-place]", "data-place")).split(" on ");
    assert.equal(machine, "this");
    const tpot = (batch) => cli(["predict", "--model", model, "--machine", "this", "--context", "128", "--batch", batch], env).tpot_s;
    assert.ok(Math.abs(Number((await answers())[0]) / (tpot("64") / tpot("1")) - 1) < 1e-9);
  },
  async "phone: no overflow, 44 px targets; contrast in both themes; screenshots for a person"() {
    for (const [theme, width] of [["light", 1440], ["dark", 390]]) {
      await page.emulateMedia({ "prefers-color-scheme": theme, "prefers-reduced-motion": "reduce" });
      await page.setViewport(width, width > 1000 ? 1000 : 844);
      await open(`#/learn/${kStops}?guess=show`);
      for (let stop = 1; stop <= kStops; ++stop) {
        for (const guess of ["", stop === 4 ? "guess=gate_up~gate_up" : stop === 14 ? "guess=2~2" : stop === 15 ? "guess=show" : "guess=4"]) {
          await turn(`#/learn/${stop}?${guess}`);
          await page.waitForFunction(() => document.querySelector(".bench .drawing svg"));
          const where = `stop ${stop} at ${width} px, ${theme}`;
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert.ok(wide <= 0, `${where} is ${wide} px too wide`);
          const small = await page.evaluate(() => [...document.querySelectorAll(".learn :is(button, a, select, summary, input:not([type=radio]), .move label):not(.learn-motion *)")]
            .filter((e) => e.getClientRects().length && e.getBoundingClientRect().height < 43.5).map((e) => e.outerHTML.slice(0, 80)));
          assert.deepEqual(small, [], where);
          const cut = await page.evaluate(() => [...document.querySelectorAll(".bench .drawing > svg text, .bench .drawing > * > svg text, .guess-scale text")]
            .filter((t) => { const box = t.closest("figure, .ask").getBoundingClientRect(), own = t.getBoundingClientRect(); return own.right > box.right + 1 || own.left < box.left - 1; }).map((t) => t.textContent));
          assert.deepEqual(cut, [], where);
          assert.deepEqual(await page.evaluate(faint), [], where);
          await page.screenshot(join(screenshots, `learn-${stop}${guess ? "-told" : ""}-${width}-${theme}.png`));
        }
        assert.ok(await page.evaluate(() => { const tab = document.getElementById("tab-learn").getBoundingClientRect(); return tab.left >= 0 && tab.right <= innerWidth; }), "the tab is in sight");
      }
    }
    await page.setViewport(1440, 1000);
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "learn-failed.png") });
await close();
for (const server of servers) await server.stop();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
