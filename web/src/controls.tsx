// The configuration: what runs where, at which load, in which precision, with which techniques.
import { useId, useState } from "preact/hooks";
import { fieldErrors, plain, useView } from "./api";
import { frozen } from "./frozen";
import { fromSlider, toSlider } from "./scale";
import { get, set } from "./state";
import type { MachineLine, ModelLine, StackLine } from "./types";

const kSteps = 240;

function Hint({ id, option }: { id: string; option: string }) {
  const message = fieldErrors.value[option];
  return message ? <p class="error" id={id} role="alert">{plain({ message })}</p> : null;
}

export function NumberField({ option, label, low, high, unit, hint }: {
  option: string; label: string; low?: number; high?: number; unit?: string; hint?: string;
}) {
  const id = useId();
  const value = get(option);
  const [typed, type] = useState<string | null>(null);
  const bad = option in fieldErrors.value;
  return (
    <div class={`field${bad ? " bad" : ""}`}>
      <label for={id}>{label}</label>
      <input id={id} name={option} inputMode="decimal" autocomplete="off" spellcheck={false} placeholder={hint} value={typed ?? value}
        aria-invalid={bad} aria-describedby={bad ? `${id}e` : undefined}
        onInput={(e) => { type(e.currentTarget.value); set({ [option]: e.currentTarget.value.trim() }); }}
        onBlur={() => type(null)} />
      {unit && <span class="unit">{unit}</span>}
      {low !== undefined && high !== undefined && (
        <input type="range" min={0} max={kSteps} value={toSlider(Number(value) || low, low, high, kSteps)} aria-label={`${label}, slider`}
          aria-valuetext={value}
          onInput={(e) => { type(null); set({ [option]: String(fromSlider(Number(e.currentTarget.value), low, high, kSteps)) }); }} />
      )}
      <Hint id={`${id}e`} option={option} />
    </div>
  );
}

export function Choice({ option, label, choices }: { option: string; label: string; choices: (readonly [string, string])[] }) {
  const id = useId();
  const value = get(option);
  const listed = choices.some(([name]) => name === value);
  const bad = option in fieldErrors.value;
  return (
    <div class={`field${bad ? " bad" : ""}`}>
      <label for={id}>{label}</label>
      <select id={id} name={option} value={value} aria-invalid={bad} onChange={(e) => set({ [option]: e.currentTarget.value })}>
        {!listed && <option value={value}>{value}</option>}
        {choices.map(([name, text]) => <option key={name} value={name}>{text}</option>)}
      </select>
      <Hint id={`${id}e`} option={option} />
    </div>
  );
}

// On is the default of the command line; off is its --no- flag.
export function Switch({ option, label }: { option: string; label: string }) {
  const on = get(option) === "";
  return (
    <label class="switch">
      <input type="checkbox" name={option} role="switch" checked={on} onChange={(e) => set({ [option]: e.currentTarget.checked ? undefined : "true" })} />
      <span>{label}</span>
    </label>
  );
}

const kWeights = ["", "bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4", "nf4", "q4_k"].map((n) => [n, n || "as released"] as const);
const kKv = ["", "bf16", "fp8", "int8", "int4"].map((n) => [n, n || "as released"] as const);

function grouped<T>(list: T[], key: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of list) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups];
}

function MachinePicker() {
  const id = useId();
  const { data } = useView<MachineLine[]>("machines");
  const whole = get("machine");
  const [, prefix = "", base = whole] = /^((?:\d+x)*)(.*)$/i.exec(whole) ?? [];
  const bad = "machine" in fieldErrors.value;
  const known = data?.some((m) => m.name === base);
  return (
    <div class={`field pair${bad ? " bad" : ""}`}>
      <label for={id}>Machine</label>
      <select aria-label="Number of devices" name="devices" value={prefix} onChange={(e) => set({ machine: e.currentTarget.value + base })}>
        {!["", "2x", "4x", "8x", "2x8x", "4x8x"].includes(prefix) && <option value={prefix}>{prefix.replaceAll("x", " × ")}</option>}
        <option value="">1 ×</option><option value="2x">2 ×</option><option value="4x">4 ×</option>
        <option value="8x">8 ×</option><option value="2x8x">2 × 8 ×</option><option value="4x8x">4 × 8 ×</option>
      </select>
      <select id={id} name="machine" value={base} aria-invalid={bad} onChange={(e) => set({ machine: prefix + e.currentTarget.value })}>
        {!known && <option value={base}>{base}</option>}
        {base !== "this" && <option value="this">this machine</option>}
        {grouped([...(data ?? [])].reverse(), (m) => ({ gpu: "GPUs", accelerator: "Accelerators", cpu: "CPUs", soc: "Systems on a chip" })[m.kind] ?? m.kind).map(([kind, list]) => (
          <optgroup key={kind} label={kind}>
            {list.map((m) => <option key={m.name} value={m.name}>{m.name}</option>)}
          </optgroup>
        ))}
      </select>
      <Hint id={`${id}e`} option="machine" />
    </div>
  );
}

function ModelPicker() {
  const id = useId();
  const { data } = useView<ModelLine[]>("models");
  const value = get("model");
  const bad = "model" in fieldErrors.value;
  return (
    <div class={`field${bad ? " bad" : ""}`}>
      <label for={id}>Model</label>
      <select id={id} name="model" value={value} aria-invalid={bad} onChange={(e) => set({ model: e.currentTarget.value })}>
        {!data?.some((m) => m.name === value) && <option value={value}>{value}</option>}
        {grouped(data ?? [], (m) => m.family).map(([family, list]) => (
          <optgroup key={family} label={family}>
            {list.map((m) => <option key={m.name} value={m.name}>{m.title}</option>)}
          </optgroup>
        ))}
      </select>
      <Hint id={`${id}e`} option="model" />
    </div>
  );
}

// Which model drafts: without a name drafts cost nothing.
function DraftPicker() {
  const { data } = useView<ModelLine[]>("models");
  return <Choice option="draft" label="Draft model" choices={[["", "none: free drafts"] as const, ...(data ?? []).map((m) => [m.name, m.title] as const)]} />;
}

export function Controls() {
  const stacks = useView<StackLine[]>("stacks").data ?? [];
  return (
    <form class="controls" aria-label="Configuration" onSubmit={(e) => e.preventDefault()}>
      <fieldset disabled={frozen !== null}>
        <legend>What runs where</legend>
        <ModelPicker />
        <MachinePicker />
        <Choice option="stack" label="Software" choices={[["auto", "auto · the machine's default"] as const, ...stacks.map((s) => [s.name, s.calibrated ? `${s.name} · calibrated` : s.name] as const)]} />
      </fieldset>
      <fieldset disabled={frozen !== null}>
        <legend>Load</legend>
        <NumberField option="batch" label="Batch" low={1} high={4096} unit="sequences" />
        <NumberField option="context" label="Context" low={128} high={131072} unit="tokens" />
        <NumberField option="prompt" label="Prompt" low={16} high={131072} unit="tokens" />
      </fieldset>
      <fieldset disabled={frozen !== null}>
        <legend>Precision</legend>
        <Choice option="weights" label="Weights" choices={kWeights} />
        <Choice option="kv" label="KV cache" choices={kKv} />
      </fieldset>
      <fieldset disabled={frozen !== null}>
        <legend>Techniques</legend>
        <div class="switches">
          <Switch option="no-flash" label="FlashAttention" />
          <Switch option="no-fusion" label="Kernel fusion" />
          <Switch option="no-graphs" label="CUDA graphs" />
          <Switch option="no-paging" label="Paged KV" />
          <Switch option="no-continuous" label="Continuous batching" />
        </div>
        <div class="grid2">
          <NumberField option="speculate" label="Draft tokens" hint="0" />
          {get("speculate") && <><NumberField option="acceptance" label="Accepted" hint="0.7" /><DraftPicker /></>}
          <NumberField option="prefix-hit" label="Prefix hit" hint="0 – 1" />
          <NumberField option="chunk" label="Prefill chunk" hint="whole" />
          <NumberField option="offload" label="Offloaded" hint="0 – 1" />
        </div>
      </fieldset>
      <fieldset disabled={frozen !== null}>
        <legend>Parallelism</legend>
        <div class="grid4">
          <NumberField option="tp" label="TP" hint="all" />
          <NumberField option="pp" label="PP" hint="1" />
          <NumberField option="dp" label="DP" hint="1" />
          <NumberField option="ep" label="EP" hint="1" />
        </div>
      </fieldset>
    </form>
  );
}
