// A real Prometheus server scrapes `ridge serve`, and the queries that dashboards make answer.
//   node prometheus.mjs RIDGE_BINARY
// Exit 77 (skipped) where Prometheus is not installed.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "../../web/test/serve.mjs";
import { until, within } from "../../web/test/until.mjs";

try {
  execFileSync("prometheus", ["--version"], { stdio: "ignore" });
} catch {
  console.log("skipped: prometheus is not installed (Debian's package prometheus)");
  process.exit(77);
}

// Prometheus names no port that it found itself, so that one is tried after the other. They are below
// those that systems hand out (from 32768).
async function startPrometheus(options) {
  for (;;) {
    const port = 20000 + Math.floor(Math.random() * 12000);
    const child = spawn("prometheus", [...options, `--web.listen-address=127.0.0.1:${port}`], { stdio: ["ignore", "ignore", "pipe"] });
    process.on("exit", () => child.kill("SIGKILL"));
    let text = "";
    const listens = await within("Prometheus to be ready", new Promise((resolve) => {
      child.stderr.on("data", (chunk) => {
        text = (text + chunk).slice(-10000);
        if (/Server is ready to receive web requests/.test(text)) resolve(true);
      });
      child.on("exit", () => resolve(false));
    }));
    if (listens) return { child, port };
    if (!/address already in use/.test(text)) throw new Error(`prometheus ended: ${text}`);
  }
}

const folder = mkdtempSync(join(tmpdir(), "ridge-prometheus-"));
let server, prometheus;
try {
  server = await serve(process.argv[2], ["ridge-1m"], { loaded: true });
  const { host } = new URL(server.base);
  const config = `scrape_configs:
  - job_name: ridge
    scrape_interval: 1s
    scrape_timeout: 1s
    static_configs: [{targets: ["${host}"]}]
`;
  writeFileSync(join(folder, "prometheus.yml"), config);
  prometheus = await startPrometheus([`--config.file=${join(folder, "prometheus.yml")}`, `--storage.tsdb.path=${join(folder, "data")}`]);
  const requests = 3;
  const tokens = 8;
  for (let i = 0; i < requests; ++i) {
    const answer = await fetch(`${server.base}v1/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ prompt: "Once upon", max_tokens: tokens, ignore_eos: true }),
    });
    assert.equal(answer.status, 200);
  }
  const query = async (text) => {
    const target = `http://127.0.0.1:${prometheus.port}/api/v1/query?query=${encodeURIComponent(text)}`;
    const { data } = await (await fetch(target)).json();
    return data.result.length > 0 ? Number(data.result[0].value[1]) : undefined;
  };
  // Each is asked until it is so: where a scrape comes late, the newest value is missing for a while.
  const is = (text, fits) => until(`${text}: ${fits}`, async () => fits(await query(text)));
  const holds = (text, expected) => until(`${text} to be ${expected}`, async () => (await query(text)) === expected);
  await holds("sum(vllm:generation_tokens_total)", requests * tokens);
  await holds("sum(vllm:time_to_first_token_seconds_count)", requests);
  await holds('sum(vllm:request_success_total{finished_reason="length"})', requests);
  await holds("vllm:num_requests_running", 0);
  await holds("vllm:kv_cache_usage_perc", 0);
  const quantile = "histogram_quantile(0.9, sum by (le) (vllm:e2e_request_latency_seconds_bucket))";
  await is(quantile, (value) => value > 0);
  await is("sum(ridge:step_measured_seconds_count)", (value) => value >= tokens);
  await is("sum(ridge:step_predicted_seconds_sum)", (value) => value > 0);
  console.log("Prometheus scrapes and answers");
} finally {
  if (prometheus) {
    const gone = new Promise((resolve) => prometheus.child.on("exit", resolve));
    prometheus.child.kill("SIGKILL");
    await gone;
  }
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
}
