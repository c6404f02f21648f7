// The page: configuration at the side, the answer on top, one panel at a time.
import type { ComponentType } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { fieldErrors, plain, useView, type View } from "./api";
import { Controls } from "./controls";
import { bytes, count, memorySize, seconds } from "./format";
import { frozen } from "./frozen";
import { KeyDialog } from "./key";
import { kNoAnswer } from "./request";
import { watch } from "./signal";
import { command, get, kSections, section, type Section } from "./state";
import type { Prediction } from "./types";
import { WallTag } from "./walls";

// A panel loads when it is opened.
const kPanels: Record<Section, () => Promise<{ default: ComponentType }>> = {
  learn: () => (RIDGE_REPORT ? Promise.reject() : import("./panels/learn")), // needs a server
  roofline: () => import("./panels/roofline"),
  pyramid: () => import("./panels/pyramid"),
  time: () => import("./panels/time"),
  tiles: () => import("./panels/tiles"),
  batch: () => import("./panels/batch"),
  memory: () => import("./panels/memory"),
  slow: () => import("./panels/slow"),
  plan: () => (RIDGE_REPORT ? Promise.reject() : import("./panels/plan")), // needs a server
  history: () => import("./panels/history"),
  lab: () => import("./panels/lab"),
  live: () => (RIDGE_REPORT ? Promise.reject() : import("./panels/live")), // needs a server
};
const loaded = new Map<Section, ComponentType>();

function Panel({ name }: { name: Section }) {
  const [failed, fail] = useState("");
  const [, draw] = useState(0);
  useEffect(() => {
    if (loaded.has(name)) return;
    kPanels[name]().then(
      (module) => { loaded.set(name, module.default); draw((n) => n + 1); },
      () => fail(name),
    );
  }, [name]);
  const Loaded = loaded.get(name);
  if (Loaded) return <Loaded />;
  if (failed === name) return <p class="error banner" role="alert">{kNoAnswer}</p>;
  return <p class="loading">Loading…</p>;
}

function Reading({ name, value, children, sub }: { name: string; value: number; children: string; sub?: string }) {
  return (
    <div class="reading">
      <span class="label">{name}</span>
      <output data-value={value} data-name={name}>{children}</output>
      {sub && <span class="sub">{sub}</span>}
    </div>
  );
}

function Headline({ view }: { view: View<Prediction> }) {
  const p = view.data;
  const problem = view.error;
  const [all, showAll] = useState(false); // on a phone only the first numbers are shown
  return (
    <section class={`headline${view.busy ? " busy" : ""}${problem ? " stale" : ""}${all ? "" : " folded"}`} aria-label="The answer" aria-live="polite">
      {problem && <p class="error banner" role="alert">{plain(problem)}</p>}
      {p && (
        <>
          <Reading name="per token" value={p.tpot_s} sub={`band ${seconds(p.decode.low_s / p.decode.tokens_per_step)} – ${seconds(p.decode.high_s / p.decode.tokens_per_step)}`}>{seconds(p.tpot_s)}</Reading>
          <Reading name="first token" value={p.ttft_s} sub={`band ${seconds(p.prefill.low_s)} – ${seconds(p.prefill.high_s)}`}>{seconds(p.ttft_s)}</Reading>
          <Reading name="tokens/s" value={p.decode.tokens_per_s} sub={`roof ${count(p.decode.roof_tokens_per_s)}`}>{count(p.decode.tokens_per_s)}</Reading>
          <Reading name="a user" value={p.decode.tokens_per_s_per_user} sub="tok/s">{count(p.decode.tokens_per_s_per_user)}</Reading>
          <Reading name="memory" value={p.memory.weights_bytes + p.memory.kv_bytes + p.memory.activation_bytes + p.memory.overhead_bytes}
            sub={`of ${memorySize(p.memory.capacity_bytes)} usable${p.devices > 1 ? ` on each of ${p.devices}` : ""}`}>
            {bytes(p.memory.weights_bytes + p.memory.kv_bytes + p.memory.activation_bytes + p.memory.overhead_bytes)}
          </Reading>
          <div class="reading wall">
            <span class="label">decode wall</span>
            <output data-name="wall" data-value={p.decode.wall}><WallTag wall={p.decode.wall} /></output>
            <span class="sub">then {p.decode.next_wall}</span>
          </div>
          <button type="button" class="unfold" aria-expanded={all} onClick={() => showAll(!all)}>{all ? "fewer numbers" : "all numbers"}</button>
        </>
      )}
    </section>
  );
}

function Copy({ label, text }: { label: string; text: () => string }) {
  const [done, show] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      // Without the clipboard (an http address that is not local): let the person copy it.
      prompt(label, text());
    }
    show(true);
    setTimeout(() => show(false), 1500);
  };
  return <button type="button" onClick={copy}>{done ? "Copied" : <><span class="long">Copy </span>{label}</>}</button>;
}

function ThemeButton() {
  const [theme, turn] = useState(() => {
    try { return localStorage.getItem("theme") ?? ""; } catch { return ""; }
  });
  useEffect(() => {
    if (theme) document.documentElement.dataset["theme"] = theme;
    else delete document.documentElement.dataset["theme"];
    try { localStorage.setItem("theme", theme); } catch { /* private mode */ }
  }, [theme]);
  const next = theme === "" ? "light" : theme === "light" ? "dark" : "";
  return <button type="button" onClick={() => turn(next)} title="Light, dark, or as the system"><span class="long">Theme: </span>{theme || "auto"}</button>;
}

// A report holds no answers for the panels that ask while they are used.
const kTabs = kSections.filter(([name]) => !frozen || (name !== "learn" && name !== "live" && name !== "plan" && (name !== "lab" || frozen.views["lab"])));

function Tabs() {
  const names = kTabs.map(([name]) => name);
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    section.value = names[(names.indexOf(section.value) + step + names.length) % names.length] as Section;
    requestAnimationFrame(() => (document.querySelector("[role=tab][aria-selected=true]") as HTMLElement | null)?.focus());
  };
  const list = useRef<HTMLDivElement>(null);
  // The row of tabs scrolls where it is narrower than its tabs: the selected one stays in sight.
  useLayoutEffect(() => {
    const tab = document.getElementById(`tab-${section.value}`);
    const row = list.current;
    if (tab && row) row.scrollLeft = tab.offsetLeft - row.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
  }, [section.value]);
  return (
    <div class="tabs" role="tablist" aria-label="Panels" onKeyDown={onKey} ref={list}>
      {kTabs.map(([name, title]) => (
        <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={section.value === name} aria-controls="panel"
          tabIndex={section.value === name ? 0 : -1} onClick={() => (section.value = name)}>
          {title}
        </button>
      ))}
    </div>
  );
}

export function App() {
  const [, draw] = useState(0);
  useLayoutEffect(() => watch(() => draw((n) => n + 1)), []);
  const learning = section.value === "learn"; // it has its own machine, question and answer
  const view = useView<Prediction>("predict", undefined, !learning);
  const option = view.error?.option;
  useEffect(() => {
    fieldErrors.value = view.error && option ? { [option]: view.error.message } : {};
  }, [view.error]);
  const wide = typeof matchMedia !== "undefined" && matchMedia("(min-width: 900px)").matches;
  return (
    <>
      <a class="skip" href="#panel" onClick={(e) => { e.preventDefault(); document.getElementById("panel")?.focus(); }}>To the panel</a>
      <header>
        <h1><svg viewBox="0 0 32 20" width="30" height="19" aria-hidden="true"><path d="M1 18 15 3H31" /><circle cx="8" cy="14.5" r="2.6" /></svg>Ridge</h1>
        <Tabs />
        <div class="actions">
          {!frozen && <Copy label="link" text={() => location.href} />}
          <Copy label="command" text={() => command()} />
          <ThemeButton />
        </div>
      </header>
      {!RIDGE_REPORT && <KeyDialog />}
      <div class={learning ? "layout whole" : "layout"}>
        {!learning && <aside>
          <details open={wide}>
            <summary>{get("model")} on {get("machine")}, batch {get("batch")}</summary>
            {frozen && <p class="frozen">A report, frozen: {frozen.made}. Explore with <code>ridge serve</code>.</p>}
            <Controls />
          </details>
        </aside>}
        <main>
          {!learning && <Headline view={view} />}
          <div id="panel" role="tabpanel" aria-labelledby={`tab-${section.value}`} tabIndex={-1} data-panel={section.value}>
            <Panel name={section.value} />
          </div>
          <footer>
            {!learning && view.data?.notes.map((note) => <p key={note}>Note: {note}.</p>)}
            {!learning && view.data && <p>Expected times, stack {view.data.stack}: {view.data.basis}</p>}
            <p>Ridge {RIDGE_VERSION} · roofs are dense peaks and published or measured bandwidths{!learning && <> · <code class="command">{command()}</code></>}</p>
          </footer>
        </main>
      </div>
    </>
  );
}
