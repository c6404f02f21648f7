// A real Prometheus server scrapes `ridge serve`, and the queries that dashboards make answer.
//   node prometheus.mjs RIDGE_BINARY
// Exit 77 (skipped) where Prometheus is not installed.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

try {
  execFileSync("prometheus", ["--version"], { stdio: "ignore" });
} catch {
  console.log("skipped: prometheus is not installed (Debian's package prometheus)");
  process.exit(77);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function until(what, attempt) {
  for (let i = 0; i < 300; ++i) {
    try {
      const value = await attempt();
      if (value) return value;
    } catch {
      // not listening yet
    }
    await pause(100);
  }
  throw new Error(`no ${what} within 30 s`);
}

const folder = mkdtempSync(join(tmpdir(), "ridge-prometheus-"));
const children = [];
try {
  const [port, scraper] = [await freePort(), await freePort()];
  const stdio = ["ignore", "ignore", "ignore"];
  children.push(spawn(process.argv[2], ["serve", "ridge-1m", "--port", `${port}`], { stdio }));
  const config = `scrape_configs:
  - job_name: ridge
    scrape_interval: 500ms
    scrape_timeout: 400ms
    static_configs: [{targets: ["127.0.0.1:${port}"]}]
`;
  writeFileSync(join(folder, "prometheus.yml"), config);
  const options = [
    `--config.file=${join(folder, "prometheus.yml")}`,
    `--storage.tsdb.path=${join(folder, "data")}`,
    `--web.listen-address=127.0.0.1:${scraper}`,
  ];
  children.push(spawn("prometheus", options, { stdio }));

  const url = `http://127.0.0.1:${port}`;
  await until("model", async () => (await fetch(`${url}/health`)).ok);
  const requests = 3;
  const tokens = 8;
  for (let i = 0; i < requests; ++i) {
    const answer = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ prompt: "Once upon", max_tokens: tokens, ignore_eos: true }),
    });
    assert.equal(answer.status, 200);
  }
  const query = async (text) => {
    const target = `http://127.0.0.1:${scraper}/api/v1/query?query=${encodeURIComponent(text)}`;
    const { data } = await (await fetch(target)).json();
    return data.result.length > 0 ? Number(data.result[0].value[1]) : undefined;
  };
  const total = "sum(vllm:generation_tokens_total)";
  await until("scrape with every token", async () => (await query(total)) === requests * tokens);
  assert.equal(await query("sum(vllm:time_to_first_token_seconds_count)"), requests);
  assert.equal(await query('sum(vllm:request_success_total{finished_reason="length"})'), requests);
  assert.equal(await query("vllm:num_requests_running"), 0);
  assert.equal(await query("vllm:kv_cache_usage_perc"), 0);
  const quantile = "histogram_quantile(0.9, sum by (le) (vllm:e2e_request_latency_seconds_bucket))";
  assert.ok((await query(quantile)) > 0);
  assert.ok((await query("sum(ridge:step_measured_seconds_count)")) >= tokens);
  assert.ok((await query("sum(ridge:step_predicted_seconds_sum)")) > 0);
  console.log("Prometheus scrapes and answers");
} finally {
  for (const child of children) child.kill("SIGKILL");
  await pause(100);
  rmSync(folder, { recursive: true, force: true });
}
