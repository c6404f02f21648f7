// Starts `ridge serve` for the tests of the page and for the clients in tests/clients, and sets the
// pace of its engine's steps, so that what a test sees does not depend on the machine's speed.
//
// RIDGE_TEST_PACE (a duration, for example 20ms) is the least time of a step of every server that is
// started here: it runs the suites as a slow machine would.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { within } from "./until.mjs";

const kLeast = process.env.RIDGE_TEST_PACE ?? "";
const children = new Set();
// No server stays behind, also where a suite throws or is ended.
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

// The environment of a measured computer: with a file as `ridge measure` writes it a server does not
// measure while it loads the model, which takes two seconds of every processor (a minute where others
// work too), and the roofs are the same everywhere.
export function measuredHome() {
  const home = mkdtempSync(join(tmpdir(), "ridge-measured-"));
  process.on("exit", () => rmSync(home, { recursive: true, force: true }));
  mkdirSync(join(home, "ridge/machines"), { recursive: true });
  writeFileSync(join(home, "ridge/machines/this.json"), JSON.stringify({
    name: "this", title: "A measured computer", kind: "cpu", units: 16, clock: 3e9, peak: { fp32: 2e12, bf16: 4e12 },
    levels: [
      { name: "L1", scope: "unit", capacity: 32768, instances: 16, read_bandwidth: 4e12, latency: 1.5e-9 },
      { name: "L3", scope: "device", capacity: 33554432, read_bandwidth: 6e11, latency: 2e-8 },
      { name: "DRAM", scope: "device", capacity: 64e9, read_bandwidth: 8e10, latency: 9e-8 },
    ],
    provenance: { "": { origin: "measured", source: "a test", date: "2026-11-16" } },
  }));
  return { ...process.env, XDG_CONFIG_HOME: home };
}

// `words` follow `ridge serve`; the port is a free one unless they name it. Options:
//   loaded  wait until the model is served, not only the page
//   paced   the pace is set by the test: hold(), step(n), least(duration), go()
//   env     the environment
// Returns the server's base URL, which ends with a slash, the methods of the pace, and stop(signal).
export async function serve(ridge, words, { loaded = false, paced = false, env = process.env } = {}) {
  const all = ["serve", "--drain", "0", ...words];
  if (!words.includes("--port")) all.push("--port", "0");
  if (paced) all.push("--step-pace", "stdin");
  else if (kLeast && !words.includes("--no-model")) all.push("--step-pace", kLeast);
  const child = spawn(ridge, all, { stdio: [paced ? "pipe" : "ignore", "pipe", "inherit"], env });
  children.add(child);
  let ended = false;
  const exited = new Promise((resolve) => child.on("exit", () => {
    ended = true;
    children.delete(child);
    resolve();
  }));
  child.on("error", () => child.emit("exit"));
  child.stdin?.on("error", () => {}); // the server ended: whoever waits for an acknowledgement is told

  // Lines of its output, in order; a test waits for one at a time.
  const seen = [];
  let look = () => {};
  let rest = "";
  child.stdout.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    seen.push(...lines);
    look();
  });
  // The first match of `pattern` in a line that has not been taken yet.
  const line = (pattern) => within(`${pattern} from ridge ${all.join(" ")}`, new Promise((resolve, reject) => {
    look = () => {
      while (seen.length) {
        const match = pattern.exec(seen.shift());
        if (match) return resolve(match);
      }
      if (ended) reject(new Error(`ridge ${all.join(" ")} ended`));
    };
    exited.then(() => look());
    look();
  }));

  const command = async (text) => {
    child.stdin.write(`${text}\n`);
    const [, taken] = await line(/^pace: (.*)$/);
    if (taken !== text) throw new Error(`the pace is "${taken}" instead of "${text}"`);
  };
  const go = async () => {
    await command("go");
    if (kLeast) await command(kLeast);
  };
  const [, base] = await line(/(http:\/\/[\d.:]+\/)/);
  if (loaded) await line(/^Serving /);
  if (paced && kLeast) await command(kLeast);
  return {
    base,
    hold: () => command("hold"), // no step follows
    step: (count) => command(`step ${count}`), // so many more, then none
    least: (duration) => command(duration), // time of a step at least
    go, // as fast as RIDGE_TEST_PACE allows
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      await exited;
    },
  };
}
