// Bundles the page:  node build.mjs           writes dist/, which the C++ build embeds
//                    node build.mjs --check   exits 1 where dist/ is not what src/ builds
// dist/ is committed, so that a plain build needs no Node. The bundle depends only on src/, the lock
// file and the version; gzip's bytes depend on the zlib too, so files are compared uncompressed and
// written only where they differ.
import { build } from "esbuild";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const kBudget = 40_000; // bytes, gzipped, all files together

const web = dirname(fileURLToPath(import.meta.url));
const check = process.argv.includes("--check");
const cmake = readFileSync(join(web, "../CMakeLists.txt"), "utf8");
const version = /project\(ridge VERSION ([\d.]+)/.exec(cmake)[1];

const bundle = await build({
  absWorkingDir: web,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { RIDGE_VERSION: JSON.stringify(version) },
  outdir: "dist",
  write: false,
  logLevel: "warning",
});
const source = (name) => readFileSync(join(web, "src", name));
const bundled = (name) => Buffer.from(bundle.outputFiles.find((file) => file.path.endsWith(name)).contents);
// src/serve/page.cc names the same files.
const files = {
  "app.css": bundled("app.css"),
  "app.js": bundled("app.js"),
  "icon.svg": source("icon.svg"),
  "index.html": source("index.html"),
  "views.json": source("views.json"),
};

let differing = 0;
const sizes = {};
mkdirSync(join(web, "dist"), { recursive: true });
for (const [name, text] of Object.entries(files)) {
  const path = join(web, "dist", `${name}.gz`);
  const same = existsSync(path) && gunzipSync(readFileSync(path)).equals(text);
  if (!same) {
    ++differing;
    if (check) console.error(`web/dist/${name}.gz is not what web/src builds`);
    else writeFileSync(path, gzipSync(text, { level: 9 }));
  }
  if (existsSync(path)) sizes[name] = readFileSync(path).length;
}
if (check && differing > 0) {
  console.error("run tools/build_page and commit web/dist");
  process.exit(1);
}
const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
console.log(`page: ${Object.entries(sizes).map(([name, size]) => `${name} ${size}`).join(", ")} = ${total} bytes gzipped`);
if (total > kBudget) {
  console.error(`the page exceeds its budget of ${kBudget} bytes gzipped`);
  process.exit(1);
}
