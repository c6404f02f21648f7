// Runs one of the page's checks for ctest:  node test/run.mjs FILE ARGS...
// Exit 77 (skipped) where npm has not installed what they need.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

if (!existsSync("node_modules/typescript") || !existsSync("node_modules/esbuild")) {
  console.log("skipped: web/node_modules is missing (tools/build_page --install)");
  process.exit(77);
}
process.exit(spawnSync(process.execPath, process.argv.slice(2), { stdio: "inherit" }).status ?? 1);
