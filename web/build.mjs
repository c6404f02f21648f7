// Bundles the page and writes it as a C++ source:  node build.mjs OUT.cc VERSION
// The bundle also lies beside OUT in page/, for a look at what is served.
import { build } from "esbuild";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";

const [out, version] = process.argv.slice(2);
const kFirstLoad = 40_000; // bytes, gzipped: everything but what is loaded later
const kInAll = 70_000;

const folder = join(dirname(out), "page");
mkdirSync(folder, { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { RIDGE_VERSION: JSON.stringify(version) },
  outdir: folder,
  logLevel: "warning",
});

const types = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  json: "application/json",
};
for (const name of ["index.html", "icon.svg", "views.json"]) {
  writeFileSync(join(folder, name), readFileSync(join("src", name)));
}
const files = ["app.css", "app.js", "icon.svg", "index.html", "views.json"].map((name) => {
  const gzip = gzipSync(readFileSync(join(folder, name)), { level: 9 });
  return { name, type: types[name.split(".").at(-1)], gzip };
});

const total = files.reduce((sum, file) => sum + file.gzip.length, 0);
console.log(`page: ${files.map((f) => `${f.name} ${f.gzip.length}`).join(", ")} = ${total} bytes gzipped`);
if (total > kFirstLoad || total > kInAll) {
  console.error(`the page is over its budget of ${kFirstLoad} bytes gzipped`);
  process.exit(1);
}

// Octal escapes end after three digits, unlike hexadecimal ones, so no byte runs into the next.
const literal = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32) {
    text += '\n    "';
    for (const byte of bytes.subarray(i, i + 32)) text += "\\" + byte.toString(8).padStart(3, "0");
    text += '"';
  }
  return text;
};
const entries = files.map(
  (f) => `    {"${f.name}", "${f.type}", std::string_view(${literal(f.gzip)}, ${f.gzip.length})},\n`,
);
writeFileSync(
  out,
  `// Made by web/build.mjs from web/. Do not edit.
#include "serve/page.h"

namespace ridge {
namespace {

constexpr PageFile kFiles[] = {
${entries.join("")}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace ridge
`,
);
