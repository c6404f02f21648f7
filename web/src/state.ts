// One configuration, kept in the address: #/roofline?machine=h200&model=llama-3-8b&batch=32.
// Names are the command line's, so that link, command and API say the same.
import { dropped } from "./dropped";
import { frozen } from "./frozen";
import { signal, watch } from "./signal";
import type { Explanation } from "./types";
import views from "./views.json";

export type Config = Readonly<Record<string, string>>;

export const kSections = [
  ["learn", "Learn"],
  ["roofline", "Roofline"],
  ["pyramid", "Pyramid"],
  ["time", "Time"],
  ["tiles", "Tiles"],
  ["batch", "Batch & context"],
  ["memory", "KV & memory"],
  ["slow", "Why slow"],
  ["plan", "Plan"],
  ["history", "The wall over time"],
  ["lab", "Lab"],
  ["live", "Live"],
] as const;
export const kStopCount = 15;
export type Section = (typeof kSections)[number][0];

// Options of a prediction, in the order of a command line.
export const kRequest = [
  "model", "machine", "stack", "batch", "context", "prompt", "weights", "kv", "activations",
  "tp", "pp", "dp", "ep", "chunk", "prefix-hit", "speculate", "acceptance", "draft",
  "expert-skew", "offload", "no-flash", "no-fusion", "no-graphs", "no-paging", "reserve",
  "no-continuous", "price",
] as const;

// What a person saw: options of ridge explain. Its --batch and --output are seen-batch and seen-output
// here, since batch and output are also what a prediction assumes.
export const { also: kObserved, rename: kRenamed } = views.explain;
export const observes = (of: Config) => kObserved.some((name) => of[name]);
export const renamed = (name: string) => (kRenamed as Config)[name] ?? name;

// What a first visit shows: a common case whose machine has measured roofs.
const kStart: Config = { model: "llama-3-8b", machine: "h200", batch: "32", context: "4096" };
// What the command line takes where nothing is said.
export const kDefaults: Config = {
  model: "llama-3-8b", machine: "h100-sxm", stack: "auto", batch: "1", context: "2048", prompt: "1024",
  tile: "128x128x64", stages: "4", reuse: "0", target: "50 ms", clients: "32", output: "256",
  "plan-machine": "h100-sxm,h200,a100-sxm-80gb,b200", "plan-prompt": "1024", "plan-output": "256", "plan-ttft": "1 s", "plan-itl": "40 ms",
};

// The diagnosis that a report holds, if what was seen is part of it: the report opens with it.
const held = frozen?.views["explain"] as Explanation | undefined;
const diagnosis = held?.verdict ? held : null;

function readHash(): { section: Section; stop: number; config: Config } {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [panel, part] = path.split("/"); // learn/7: a stop of the path
  const section = kSections.find(([name]) => name === panel)?.[0] ?? (diagnosis ? "slow" : "roofline");
  const config: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(query)) {
    if (value !== "") config[name === "gpu" ? "machine" : name] = value;
  }
  const stop = Number(part);
  return { section, stop: stop >= 1 && stop <= kStopCount && Number.isInteger(stop) ? stop : 1, config: query === "" ? kStart : config };
}

const initial = readHash();
export const section = signal<Section>(initial.section);
export const stop = signal(initial.stop); // of the Learn path
export const config = signal<Config>(frozen ? frozen.config : initial.config);

// A context that is not given holds the prompt.
const longest = () => String(Math.max(Number(kDefaults["context"]), Number(config.value["prompt"]) || 0));
// A prompt that is not given fills the context that is.
// A plan has requests/s unless it has clients.
const planRate = () => (config.value["plan-clients"] ? "" : "20");
const derived: Record<string, () => string | undefined> = { context: longest, prompt: () => config.value["context"], "plan-rate": planRate };
export const get = (name: string) => config.value[name] ?? derived[name]?.() ?? kDefaults[name] ?? "";

export function set(changes: Record<string, string | undefined>): void {
  if (frozen) return;
  const next: Record<string, string> = { ...config.value };
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") delete next[name];
    else next[name] = value;
  }
  config.value = next;
}

const hash = () => {
  const query = new URLSearchParams(config.value as Record<string, string>).toString();
  return `#/${section.value}${section.value === "learn" ? `/${stop.value}` : ""}${query && !frozen ? `?${query}` : ""}`;
};

// Typing and dragging change the address in place; a new section is a step back can return to.
let shown = location.hash;
function show() {
  const next = hash();
  if (next === shown) return;
  const turned = shown !== "" && shown.split("?")[0] !== next.split("?")[0];
  shown = next;
  if (turned) history.pushState(null, "", next);
  else history.replaceState(null, "", next);
}
watch(show);
show();
addEventListener("hashchange", () => follow());
addEventListener("popstate", () => follow());
function follow() {
  if (location.hash === hash()) return;
  const read = readHash();
  shown = location.hash;
  section.value = read.section;
  stop.value = read.stop;
  if (!frozen) config.value = read.config;
}

// What a plan is asked: the options of the address, and the defaults of the others.
export function planned(): Config {
  const { only, rename } = views.plan;
  return Object.fromEntries(only.map((name) => [name, (rename as Config)[name] ? get(name) : (config.value[name] ?? "")]));
}

const quoted = (text: string) => (/^[\w.,:/=%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// A panel's command: where something was seen, the panel that explains has the explanation; most have
// the prediction. Where the files of a report do not tell the model or the machine, the explanation had none.
export function command(of: Config = config.value, on: Section = section.value): string {
  if (on === "lab") return "ridge lab all";
  if (on === "learn" || on === "live") return "ridge serve";
  if (on === "tiles") {
    const given = views.tiles.only.map((name) => [name, name === "machine" ? get(name) : of[name]] as const);
    return ["ridge tiles", ...given.flatMap(([name, value]) => (value ? [`--${name} ${quoted(value)}`] : []))].join(" ");
  }
  if (on === "plan") {
    const { rename } = views.plan;
    return ["ridge plan", ...Object.entries({ ...planned(), model: get("model") }).filter(([, value]) => value).map(([name, value]) => `--${(rename as Config)[name] ?? name} ${quoted(value.replace(/ (?=[mu]?s$)/, ""))}`)].join(" ");
  }
  const sent = dropped.value.files.map((file) => file.name);
  const explains = on === "slow" && (diagnosis !== null || observes(of) || sent.length > 0);
  const files = (diagnosis?.files ?? []).filter((file) => file.kind !== "numbers as typed").flatMap((file) => file.path.split(", "));
  if (explains) files.push(...sent);
  const alone = explains && sent.length > 0 && dropped.value.fromFiles; // nothing of the form but what was seen
  const words = explains ? ["ridge explain", ...files.map(quoted)] : ["ridge predict"];
  for (const name of explains ? [...kRequest.filter((n) => n !== "batch" && !alone), ...kObserved] : kRequest) {
    const device = name === "model" || name === "machine";
    if (device && diagnosis && files.length && !diagnosis.expected) continue;
    if ((name === "acceptance" || name === "draft") && !of["speculate"]) continue;
    const value = of[name] ?? (device ? kDefaults[name] : undefined);
    if (value === undefined) continue;
    if (name.startsWith("no-")) words.push(`--${name}`);
    else words.push(`--${renamed(name)} ${quoted(value)}`);
  }
  return words.join(" ");
}
