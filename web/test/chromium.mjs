// Drives Chromium over the DevTools protocol, through a pipe (--remote-debugging-pipe): Node 18, which
// Debian 12 packages, has no WebSocket. One browser, one page; only what browser.mjs needs.
import { spawn } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { until } from "./until.mjs";

// Where Chromium is. Ends the process as a skip (77) where it is nowhere.
export function findChromium() {
  const found = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (found) return found;
  console.log("skipped: no chromium (tools/setup test installs it)");
  process.exit(77);
}

// As until(). A page that is being replaced has no context to evaluate in; that is not an error while
// waiting.
const poll = (what, probe) => until(what, async () => {
  try {
    return await probe();
  } catch (error) {
    if (!/context|navigated|Cannot find/i.test(error.message)) throw error;
    return undefined;
  }
});

// Messages are JSON, each ended by a NUL: ours go to Chromium's descriptor 3, answers come from 4.
class Connection {
  #next = 1;
  #waiting = new Map(); // id -> {resolve, reject, method}
  #listeners = new Map(); // event -> functions
  #rest = Buffer.alloc(0);

  constructor(process) {
    this.to = process.stdio[3];
    this.to.on("error", () => {}); // the exit below says why
    process.stdio[4].on("data", (chunk) => this.#receive(chunk));
    let stderr = "";
    process.stderr.on("data", (chunk) => (stderr = (stderr + chunk).slice(-2000)));
    process.on("exit", (code) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`chromium ended (${code}): ${stderr}`));
      this.#waiting.clear();
    });
  }
  send(method, params = {}, sessionId = undefined) {
    const id = this.#next++;
    this.to.write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method }));
  }
  on(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }
  #receive(chunk) {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    for (let end; (end = this.#rest.indexOf(0)) >= 0; ) {
      const message = JSON.parse(this.#rest.subarray(0, end).toString());
      this.#rest = this.#rest.subarray(end + 1);
      const call = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (call && message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
      else if (call) call.resolve(message.result);
      else for (const listener of this.#listeners.get(message.method) ?? []) listener(message.params);
    }
  }
}

// Virtual key codes, from the protocol's Input.dispatchKeyEvent.
const keys = { Enter: 13, Escape: 27, End: 35, Home: 36, ArrowRight: 39 };

class Page {
  #loaded = new Set(); // loader ids of documents whose load event has fired
  #downloads = new Map(); // guid -> {name, done}
  #loading = new Set(); // ids of requests that are not answered yet, streams of events apart
  #requests = 0; // so far

  constructor(connection, sessionId, downloads) {
    this.connection = connection;
    this.sessionId = sessionId;
    this.downloads = downloads;
  }
  // handlers: fault(text) for console errors and exceptions, request(url) for every request.
  async start(handlers) {
    const on = (event, listener) => this.connection.on(event, listener);
    on("Page.lifecycleEvent", ({ name, loaderId }) => name === "load" && this.#loaded.add(loaderId));
    on("Runtime.exceptionThrown", ({ exceptionDetails: e }) => handlers.fault(e.exception?.description ?? e.text));
    on("Runtime.consoleAPICalled", ({ type, args }) => {
      if (type === "error") handlers.fault(args.map((a) => a.value ?? a.description).join(" "));
    });
    on("Log.entryAdded", ({ entry }) => entry.level === "error" && handlers.fault(`${entry.text} ${entry.url ?? ""}`));
    on("Network.requestWillBeSent", ({ request, requestId, type }) => {
      ++this.#requests;
      if (type !== "EventSource") this.#loading.add(requestId);
      handlers.request(request.url);
    });
    for (const event of ["Network.loadingFinished", "Network.loadingFailed"]) on(event, ({ requestId }) => this.#loading.delete(requestId));
    on("Browser.downloadWillBegin", ({ guid, suggestedFilename }) => this.#downloads.set(guid, { name: suggestedFilename, done: false }));
    on("Browser.downloadProgress", ({ guid, state }) => {
      if (state === "completed") this.#downloads.get(guid).done = true;
    });
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await this.send(`${domain}.enable`);
    await this.send("Page.setLifecycleEventsEnabled", { enabled: true });
    await this.connection.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: this.downloads, eventsEnabled: true });
  }
  send(method, params) {
    return this.connection.send(method, params, this.sessionId);
  }

  // The value of f(...args) in the page; a promise is awaited there.
  async evaluate(f, ...args) {
    const { result, exceptionDetails: e } = await this.send("Runtime.evaluate", {
      expression: `(${f})(...${JSON.stringify(args)})`, returnByValue: true, awaitPromise: true,
    });
    if (e) throw new Error(e.exception?.description ?? e.text);
    return result.value;
  }
  async goto(url) {
    this.#loading.clear(); // of the page that is left
    const { loaderId, errorText } = await this.send("Page.navigate", { url });
    if (errorText) throw new Error(`${url}: ${errorText}`);
    await poll(`${url} to load`, () => this.#loaded.has(loaderId));
  }
  async goBack() {
    const { currentIndex, entries } = await this.send("Page.getNavigationHistory");
    await this.send("Page.navigateToHistoryEntry", { entryId: entries[currentIndex - 1].id });
  }
  url() {
    return this.evaluate(() => location.href);
  }

  waitForFunction(f, ...args) {
    return poll(String(f), () => this.evaluate(f, ...args));
  }
  // Lets the page draw `count` frames. What a frame's effects change is in the next one.
  frames(count = 2) {
    return this.evaluate(async (n) => {
      for (let i = 0; i < n; ++i) await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
    }, count);
  }
  // Waits until the page is at rest: every request is answered, no transition runs, and three frames
  // change nothing.
  settled() {
    return poll("the page to come to rest", async () => {
      if (this.#loading.size > 0) return false;
      const before = this.#requests;
      const rests = await this.evaluate(async () => {
        let changes = 0;
        const observer = new MutationObserver((list) => { changes += list.length; });
        observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
        for (let i = 0; i < 3; ++i) await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
        observer.disconnect();
        return changes === 0 && document.readyState === "complete" && document.getAnimations().every((each) => each.playState !== "running");
      });
      return rests && this.#loading.size === 0 && this.#requests === before;
    });
  }
  // state: "visible", "attached" (perhaps without a box) or "detached".
  waitForSelector(selector, state = "visible") {
    return poll(`${selector} (${state})`, async () => {
      const seen = await this.evaluate((s) => {
        const element = document.querySelector(s);
        return !element ? "detached" : element.getClientRects().length > 0 ? "visible" : "attached";
      }, selector);
      return seen === state || (state === "attached" && seen === "visible");
    });
  }
  // f(element, ...args) in the page, once there is such an element.
  async #with(selector, f, ...args) {
    await this.waitForSelector(selector, "attached");
    return this.evaluate(`(s, ...rest) => (${f})(document.querySelector(s), ...rest)`, selector, ...args);
  }
  count(selector) {
    return this.evaluate((s) => document.querySelectorAll(s).length, selector);
  }
  getAttribute(selector, name) {
    return this.#with(selector, (element, n) => element.getAttribute(n), name);
  }
  textContent(selector) {
    return this.#with(selector, (element) => element.textContent);
  }
  inputValue(selector) {
    return this.#with(selector, (element) => element.value);
  }
  focus(selector) {
    return this.#with(selector, (element) => element.focus());
  }
  // The box in the window, scrolled into view.
  boundingBox(selector) {
    return this.#with(selector, (element) => {
      element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      const { x, y, width, height } = element.getBoundingClientRect();
      return { x, y, width, height };
    });
  }

  // As if typed: everything there is replaced by `text`.
  async fill(selector, text) {
    await this.#with(selector, (element) => {
      element.focus();
      element.select();
    });
    await this.send("Input.insertText", { text });
  }
  selectOption(selector, value) {
    return this.#with(selector, (element, v) => {
      element.value = v;
      if (element.value !== v) throw new Error(`no option ${v}`);
      element.dispatchEvent(new Event("input", { bubbles: true }));
      element.dispatchEvent(new Event("change", { bubbles: true }));
    }, value);
  }
  async click(selector) {
    await this.waitForSelector(selector);
    // Where the page still moves, the mouse would meet something else.
    const box = await poll(`${selector} to stand still`, () => this.#with(selector, async (element) => {
      element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      const place = () => { const { x, y, width, height } = element.getBoundingClientRect(); return { x, y, width, height }; };
      const before = place();
      for (let i = 0; i < 2; ++i) await new Promise(requestAnimationFrame);
      return JSON.stringify(place()) === JSON.stringify(before) && before;
    }));
    await this.moveMouse(box.x + box.width / 2, box.y + box.height / 2);
    await this.mouse("mousePressed");
    await this.mouse("mouseReleased");
  }
  // Clicks the first match of `selector` whose whole text is `text`.
  async clickText(selector, text) {
    const mark = await poll(`${selector} with text ${text}`, () =>
      this.evaluate((s, t) => {
        const found = [...document.querySelectorAll(s)].find((element) => element.textContent.trim() === t);
        if (!found) return "";
        document.querySelectorAll("[data-clicked]").forEach((element) => element.removeAttribute("data-clicked"));
        found.setAttribute("data-clicked", "");
        return "[data-clicked]";
      }, selector, text));
    await this.click(mark);
  }
  async moveMouse(x, y) {
    this.at = { x, y };
    await this.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y, button: this.down ? "left" : "none", buttons: this.down ? 1 : 0 });
  }
  async mouse(type) {
    this.down = type === "mousePressed";
    await this.send("Input.dispatchMouseEvent", { type, ...this.at, button: "left", buttons: this.down ? 1 : 0, clickCount: 1 });
  }
  async press(key) {
    const event = { key, code: key, windowsVirtualKeyCode: keys[key], ...(key === "Enter" ? { text: "\r" } : {}) };
    await this.send("Input.dispatchKeyEvent", { type: key === "Enter" ? "keyDown" : "rawKeyDown", ...event });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }
  // The name of the next file that is saved in full.
  async download(action) {
    this.#downloads.clear();
    await action();
    return poll("a download", () => [...this.#downloads.values()].find((file) => file.done)?.name);
  }

  setViewport(width, height) {
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }
  emulateMedia(features) {
    return this.send("Emulation.setEmulatedMedia", { features: Object.entries(features).map(([name, value]) => ({ name, value })) });
  }
  async screenshot(path) {
    const { cssContentSize: size } = await this.send("Page.getLayoutMetrics");
    const { data } = await this.send("Page.captureScreenshot", { captureBeyondViewport: true, optimizeForSpeed: true, clip: { ...size, x: 0, y: 0, scale: 1 } });
    writeFileSync(path, Buffer.from(data, "base64"));
  }
}

// Starts Chromium with its profile and downloads in the folder `profile`.
export async function launch(profile, handlers) {
  const browser = spawn(findChromium(), [
    "--headless", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "--no-sandbox", "--disable-gpu",
    "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--hide-scrollbars", "about:blank",
  ], { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"] });
  const exited = new Promise((resolve) => browser.on("exit", resolve));
  const connection = new Connection(browser);
  const target = await poll("a page", async () => {
    const { targetInfos } = await connection.send("Target.getTargets");
    return targetInfos.find((info) => info.type === "page")?.targetId;
  });
  const { sessionId } = await connection.send("Target.attachToTarget", { targetId: target, flatten: true });
  const page = new Page(connection, sessionId, profile);
  await page.start(handlers);
  const close = async () => {
    await connection.send("Browser.close").catch(() => {});
    await exited;
  };
  return { page, close };
}
