// The page behind a key, in a real browser:  node test/key.mjs RIDGE SCREENSHOTS [TEST]
// Exit 77 (skipped) where there is no chromium. Installs nothing.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findChromium, launch } from "./chromium.mjs";
import { measuredHome, serve } from "./serve.mjs";
import { runSuite } from "./suite.mjs";

const [ridge, screenshots, only] = process.argv.slice(2);
findChromium();
mkdirSync(screenshots, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "ridge-key-"));

const kKey = "a key of the tests";
const env = measuredHome();
const words = ["ridge-7m", "-t", "1", "--api-key", kKey];
// A name beyond this machine's own makes a server ask for the key everywhere, on loopback, too.
// The models load while the first tests run.
const [guarded, local] = await Promise.all([
  serve(ridge, [...words, "--allowed-hosts", "example.test"], { env }),
  serve(ridge, words, { env }),
]);

const faults = [];
const requests = [];
const { page, close } = await launch(profile, {
  fault: (text) => /status of 401/.test(text) || faults.push(text), // the browser's own lines
  request: (url) => {
    requests.push(url);
    if (![guarded, local].some(({ base }) => url.startsWith(base)) && !/^(data|blob|about):/.test(url)) faults.push(`left the host: ${url}`);
  },
});
await page.setViewport(1440, 1000);
const open = async (hash, { base } = guarded) => {
  await page.goto("about:blank");
  await page.goto(base + hash);
};
const forget = () => page.send("Network.clearBrowserCookies");
const made = (path) => requests.filter((url) => new URL(url).pathname === path).length;
const kDialog = "dialog.login[open]";
const noDialog = async () => {
  assert.equal(await page.count("dialog"), 0);
  assert.equal(await page.count(".keyless"), 0);
};
const give = async (key) => {
  await page.waitForSelector(kDialog);
  await page.fill("dialog input[name=key]", key);
  await page.press("Enter");
};
const logIn = async () => {
  await give(kKey);
  await page.waitForSelector("dialog", "detached");
};
// The page begins without a cookie, and is let in.
const enter = async (hash) => {
  await forget();
  await open(hash);
  await logIn();
};
const sendTrace = async () => {
  await page.evaluate(() => {
    const transfer = new DataTransfer();
    const traceEvents = Array.from({ length: 40 }, (_, i) => ({ ph: "X", cat: "kernel", name: "nvjet_tst_64x8", pid: 0, tid: 7, ts: 1e15 + 100 * i, dur: 60, args: { device: 0, stream: 7 } }));
    transfer.items.add(new File([JSON.stringify({ schemaVersion: 1, traceEvents })], "trace.json"));
    const input = document.querySelector(".drop input");
    input.files = transfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
  await page.waitForSelector(".drop li");
};

const kFigures = "#/roofline?model=llama-3-8b&machine=h200&batch=8";

const tests = {
  async "one dialog for all requests: a wrong key is told, the right one shows the figures"() {
    await open(kFigures);
    await page.waitForSelector(kDialog);
    await page.settled();
    assert.ok(requests.filter((url) => url.includes("/api/")).length > 1);
    assert.equal(await page.count("dialog"), 1);
    const { name, label, focus } = await page.evaluate(() => {
      const dialog = document.querySelector("dialog"), input = dialog.querySelector("input");
      return { name: document.getElementById(dialog.getAttribute("aria-labelledby")).textContent, label: input.labels[0].textContent, focus: document.activeElement === input && input.type };
    });
    assert.deepEqual({ name, label, focus }, { name: "This server asks for a key", label: "API key", focus: "password" });

    await give("a guess");
    await page.waitForFunction(() => document.querySelector("dialog input").getAttribute("aria-invalid") === "true");
    const told = await page.evaluate(() => {
      const input = document.querySelector("dialog input"), error = document.getElementById(input.getAttribute("aria-describedby"));
      return { role: error.getAttribute("role"), text: error.textContent, focus: document.activeElement === input };
    });
    assert.deepEqual(told, { role: "alert", text: "The server does not know this key.", focus: true });
    assert.equal(await page.count(".dot"), 0);

    await logIn();
    await page.waitForSelector(".headline output");
    await page.waitForSelector(".dot", "attached");
    await noDialog();
    assert.equal(made("/api/login"), 2);
  },
  async "the page keeps nothing that its scripts could read, and a reload does not ask"() {
    await enter(kFigures);
    await page.waitForSelector(".headline output");
    assert.deepEqual(await page.evaluate(() => [document.cookie, JSON.stringify([{ ...localStorage }, { ...sessionStorage }]).includes("key")]), ["", false]);
    const { cookies } = await page.send("Network.getCookies", { urls: [guarded.base] });
    assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
    assert.ok(!cookies[0].value.includes(kKey));
    await open(kFigures);
    await page.waitForSelector(".dot", "attached");
    await noDialog();
  },
  async "Escape puts the dialog aside, and what was asked for waits until the key is given"() {
    await forget();
    await open(kFigures);
    await page.waitForSelector(kDialog);
    await page.press("Escape");
    await page.waitForSelector(".keyless");
    assert.equal(await page.count("dialog"), 0);
    assert.equal(await page.count(".headline output"), 0);
    await page.click(".keyless button");
    await page.waitForSelector(kDialog);
    await page.click("dialog button[name=not-now]");
    await page.click(".keyless button");
    await logIn();
    await page.waitForSelector(".headline output");
    await noDialog();
  },
  async "files are explained, also where their upload is what is refused"() {
    await enter("#/slow?model=llama-3-8b&machine=h100-sxm&batch=8");
    await page.waitForSelector(".drop input");
    await forget();
    await sendTrace();
    await page.waitForSelector(kDialog);
    assert.match(await page.textContent("dialog .note"), /not taken any more/); // the cookie is gone
    await logIn();
    await page.waitForFunction(() => /nvjet_tst_64x8/.test(document.querySelector("#panel").textContent));
    await noDialog();
  },
  async "every panel, the Learn path and the lab ask through the same door"() {
    await enter(kFigures);
    const marks = {
      pyramid: ".level", time: ".bar rect", tiles: ".tile", batch: ".precision path", memory: ".part rect", history: ".series path",
      lab: ".trial", plan: "form", "learn/8": ".guess", "learn/13": ".guess",
    };
    for (const [name, mark] of Object.entries(marks)) {
      await page.evaluate((hash) => { location.hash = hash; }, `#/${name}?model=llama-3-8b&machine=h200&batch=8`);
      await page.waitForSelector(`#panel ${mark}`, "attached");
    }
    await page.settled();
    assert.equal(await page.count("#panel .error"), 0);
    await noDialog();
  },
  async "the live stream, a prompt and its tokens"() {
    await enter("#/live");
    await page.waitForSelector("[data-live=open] .answers");
    await page.fill("input[name=max-tokens]", "24");
    await page.fill("input[name=length]", "40"); // asks /tokenize, too
    await page.click(".answers button[type=submit]");
    await page.waitForSelector('[data-answer][data-tokens="24"][data-end="length"]');
    await page.waitForFunction(() => JSON.parse(document.querySelector("[data-total]").dataset.total).generated_tokens >= 24);
    for (const path of ["/api/serving", "/api/live", "/tokenize", "/v1/completions"]) assert.ok(made(path) > 0, path);
    await noDialog();
  },
  async "a stream that is refused asks for the key, and opens again"() {
    await enter("#/live");
    await page.waitForSelector("[data-live=open]");
    await forget();
    const hide = (hidden) => page.evaluate((h) => {
      Object.defineProperty(document, "hidden", { value: h, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    await hide(true);
    await page.waitForSelector("[data-live=hidden]");
    await hide(false);
    await logIn();
    await page.waitForSelector("[data-live=open]");
  },
  async "a server for this machine only asks for the key of the OpenAI API, where a prompt is sent"() {
    await forget();
    await open("#/live", local);
    await page.waitForSelector("[data-live=open] .answers");
    await noDialog();
    await page.fill("input[name=max-tokens]", "8");
    await page.click(".answers button[type=submit]");
    await logIn();
    await page.waitForSelector('[data-answer][data-tokens="8"][data-end="length"]');
  },
  async "the dialog fits, in both themes and on a phone"() {
    for (const [width, height] of [[1440, 1000], [360, 640]]) {
      for (const theme of ["light", "dark"]) {
        await page.setViewport(width, height);
        await page.emulateMedia({ "prefers-color-scheme": theme });
        await forget();
        await open(kFigures);
        await give("a guess");
        await page.waitForSelector("dialog input[aria-invalid=true]");
        await page.screenshot(join(screenshots, `key-${width}-${theme}.png`));
        const { left, right, over, small, low } = await page.evaluate(() => {
          const dialog = document.querySelector("dialog"), { left, right } = dialog.getBoundingClientRect();
          return {
            left, right, over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
            small: [...dialog.querySelectorAll("*")].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12).length,
            low: [...dialog.querySelectorAll("input, button")].filter((e) => e.getBoundingClientRect().height < 43.5).length,
          };
        });
        assert.ok(left >= 0 && right <= width, `${left} to ${right} of ${width} px`);
        assert.deepEqual([over, small, width < 900 ? low : 0], [0, 0, 0]);
        await page.press("Escape");
        await page.waitForSelector(".keyless");
        await page.screenshot(join(screenshots, `keyless-${width}-${theme}.png`));
      }
    }
  },
};

const failed = await runSuite(tests, { only, faults, page, picture: join(screenshots, "failed-key.png") });
await close();
await Promise.all([guarded, local].map((server) => server.stop()));
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
