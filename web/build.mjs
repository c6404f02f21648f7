// Bundles the page:  node build.mjs           writes dist/, which the C++ build embeds
//                    node build.mjs --check   exits 1 where dist/ is not what src/ builds
// dist/ is committed, so that a plain build needs no Node. The bundle depends only on src/, the lock
// file and the version; gzip's bytes depend on the zlib too, so files are compared uncompressed and
// written only where they differ.
//
// The page is split: app.js is what the first visit loads, and each panel is a file of its own that
// loads when it is opened. A report is one file, so it has a bundle of its own: report.js.
import { build, transform } from "esbuild";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync, gzipSync } from "node:zlib";

const kFirstBudget = 60_000; // bytes, gzipped, before any panel is opened: what the shell loads
const kBudget = 140_000; // all of the page, every panel opened

const web = dirname(fileURLToPath(import.meta.url));
const check = process.argv.includes("--check");
const cmake = readFileSync(join(web, "../CMakeLists.txt"), "utf8");
const version = /project\(ridge VERSION ([\d.]+)/.exec(cmake)[1];

// The style of a panel travels with its code, as text that the panel adds to the page (style.ts).
const panelStyles = {
  name: "panel styles",
  setup(bundler) {
    bundler.onLoad({ filter: /\.panel\.css$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, "utf8"), { loader: "css", minify: true });
      return { contents: code, loader: "text" };
    });
  },
};
const bundle = (options) =>
  build({
    absWorkingDir: web,
    bundle: true,
    minify: true,
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: "dist",
    write: false,
    metafile: true,
    logLevel: "warning",
    plugins: [panelStyles],
    ...options,
    define: { RIDGE_VERSION: JSON.stringify(version), ...options.define },
  });
const page = await bundle({
  entryPoints: { app: "src/main.tsx" },
  format: "esm",
  splitting: true,
  chunkNames: "[name]-[hash]",
  define: { RIDGE_REPORT: "false" },
});
const report = await bundle({ entryPoints: { report: "src/main.tsx" }, format: "iife", define: { RIDGE_REPORT: "true" } });

const files = {};
for (const name of ["icon.svg", "index.html", "views.json"]) files[name] = readFileSync(join(web, "src", name));
for (const { path, contents } of page.outputFiles) {
  if (path.endsWith(".css") && basename(path) !== "app.css") throw new Error(`${basename(path)} would never be loaded: a panel's style is a .panel.css (style.ts)`);
  files[basename(path)] = Buffer.from(contents);
}
files["report.js"] = Buffer.from(report.outputFiles.find(({ path }) => path.endsWith("report.js")).contents);

// What app.js imports at once, and what these import.
function shell(path, seen = new Set()) {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const needed of page.metafile.outputs[path].imports) {
    if (needed.kind === "import-statement") shell(needed.path, seen);
  }
  return seen;
}
const first = ["app.css", "icon.svg", "index.html", ...[...shell("dist/app.js")].map((path) => basename(path))];

let differing = 0;
const sizes = {};
mkdirSync(join(web, "dist"), { recursive: true });
for (const old of readdirSync(join(web, "dist"))) {
  if (files[old.replace(/\.gz$/, "")]) continue;
  ++differing;
  if (check) console.error(`web/dist/${old} is of an older page`);
  else rmSync(join(web, "dist", old));
}
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
const sum = (names) => names.reduce((bytes, name) => bytes + sizes[name], 0);
// The report's bundle and views.json are read by the binary, not by the page.
const all = Object.keys(sizes).filter((name) => name !== "report.js" && name !== "views.json");
console.log(all.map((name) => `${name} ${sizes[name]}`).join(", "));
for (const [what, names, budget] of [["first load", first, kFirstBudget], ["page", all, kBudget]]) {
  console.log(`${what}: ${sum(names)} bytes gzipped, of ${budget}`);
  if (sum(names) > budget) {
    console.error(`the ${what} exceeds its budget of ${budget} bytes gzipped`);
    process.exit(1);
  }
}
