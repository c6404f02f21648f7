// Pyramid: the levels of memory, what they hold and how fast, and the die they sit on.
import { useState } from "preact/hooks";
import { plain, useView } from "../api";
import { Chart, frame } from "../axes";
import { Figure } from "../figure";
import { axisBytes, axisSeconds, bytes, count, digits, memorySize, percent, rate, seconds, times } from "../format";
import { logDomain, logScale } from "../scale";
import type { Level, Machine, Pyramid } from "../types";
import { Die } from "./die";

// Bandwidth in the colour of the wall that it is: the host link and the network are walls of their own.
const kBars = { unit: "wall-memory", device: "wall-memory", host: "wall-host-link", network: "wall-interconnect" };
const total = (level: Level) => (level.capacity ? level.capacity * (level.instances ?? 1) : null);

function Levels({ data, width, chosen, choose }: { data: Pyramid; width: number; chosen: string; choose: (name: string) => void }) {
  const levels = data.machine.levels;
  const row = 58;
  const narrow = width < 620;
  const f = frame(width, 34 + levels.length * row + 22, 74, 8, 30, 22);
  const columns = narrow ? 2 : 3;
  const gap = 26;
  const each = (f.right - f.left - gap * (columns - 1)) / columns;
  const spans = (i: number): [number, number] => [f.left + i * (each + gap), f.left + i * (each + gap) + each];
  const capacities = levels.map((l) => total(l) ?? 0).filter((v) => v > 0);
  const half = each / 2;
  const size = logScale(...logDomain([Math.min(...capacities) / 30, ...capacities], 1), 4, half);
  const speeds = logScale(...logDomain([Math.min(...levels.map((l) => l.read_bandwidth ?? Infinity)) / 4, ...levels.map((l) => l.read_bandwidth ?? 0)], 1), spans(1)[0], spans(1)[1]);
  const waits = logScale(...logDomain([1e-9, ...levels.map((l) => l.latency ?? 0)], 1.3), spans(2)[0], spans(2)[1]);
  const centre = spans(0)[0] + half;
  const held = (name: string) => data.residents.filter((r) => r.level === name).reduce((sum, r) => sum + r.bytes, 0);
  return (
    <Chart frame={f} label="Memory levels: capacity, bandwidth and latency, log scales">
      <text class="heading" x={centre} y={14} text-anchor="middle">capacity</text>
      <text class="heading" x={spans(1)[0]} y={14}>bandwidth</text>
      {!narrow && <text class="heading" x={spans(2)[0]} y={14}>latency of a dependent load</text>}
      <g class="axes" aria-hidden="true">
        {speeds.ticks(narrow ? 2 : 5).map((v) => <g key={v}><line class="grid" x1={speeds(v)} x2={speeds(v)} y1={f.top - 6} y2={f.bottom} /><text x={speeds(v)} y={f.bottom + 14} text-anchor="middle">{axisBytes(v, "B/s")}</text></g>)}
        {!narrow && waits.ticks(5).map((v) => <g key={v}><line class="grid" x1={waits(v)} x2={waits(v)} y1={f.top - 6} y2={f.bottom} /><text x={waits(v)} y={f.bottom + 14} text-anchor="middle">{axisSeconds(v)}</text></g>)}
      </g>
      {levels.map((level, i) => {
        const y = f.top + i * row;
        const whole = total(level);
        const w = whole ? size(whole) : 0;
        const below = levels[i + 1];
        const next = below && total(below) ? size(total(below) as number) : w;
        const slope = Math.min(next, w + 26);
        const wider = below && whole && total(below) ? (total(below) as number) / whole : null;
        const slower = below?.read_bandwidth && level.read_bandwidth ? below.read_bandwidth / level.read_bandwidth : null;
        return (
          <g key={level.name} class={`level${chosen === level.name ? " chosen" : ""}`} tabindex={0} role="button" aria-pressed={chosen === level.name} data-level={level.name}
            aria-label={`${level.name}: ${memorySize(whole)}, ${rate(level.read_bandwidth)}, ${seconds(level.latency)}`}
            onClick={() => choose(level.name)} onKeyDown={(e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), choose(level.name))}>
            <rect class="hit" x={0} y={y - 4} width={width} height={row} />
            <text class="name" x={f.left - 10} y={y + 20} text-anchor="end">{level.name}</text>
            {whole ? (
              <>
                <path class="stone" d={`M${centre - w} ${y + 2}H${centre + w}L${centre + slope} ${y + 34}H${centre - slope}Z`} />
                <text class="in" x={centre} y={y + 22} text-anchor="middle">{memorySize(whole)}</text>
                {held(level.name) > 0 && <circle class="lives" cx={centre + Math.max(w, slope) + 9} cy={y + 18} r={3.5}><title>part of the model lives here</title></circle>}
              </>
            ) : <text class="unknown" x={centre} y={y + 22} text-anchor="middle">size unknown</text>}
            {wider && <text class="factor" x={centre} y={y + 49} text-anchor="middle">{wider < 1 ? `÷${digits(1 / wider)}` : times(wider)}</text>}
            {slower && <text class="factor" x={spans(1)[0] + 2} y={y + 49}>{slower < 1 ? `÷${digits(1 / slower)}` : times(slower)}</text>}
            {level.read_bandwidth && <g class={`speed ${kBars[level.scope]}`}><rect x={spans(1)[0]} y={y + 10} width={Math.max(2, speeds(level.read_bandwidth) - spans(1)[0])} height={12} /><text x={spans(1)[0] + 2} y={y + 34}>{rate(level.read_bandwidth)}</text></g>}
            {!narrow && level.latency && <g class="wait"><circle cx={waits(level.latency)} cy={y + 16} r={4.5} /><text x={waits(level.latency)} y={y + 34} text-anchor={waits(level.latency) > width - 40 ? "end" : "middle"}>{seconds(level.latency)}</text></g>}
          </g>
        );
      })}
    </Chart>
  );
}

function sourceOf(machine: Machine, path: string) {
  let best = "";
  for (const key of Object.keys(machine.provenance)) {
    if ((key === "" || path === key || path.startsWith(`${key}.`)) && key.length >= best.length) best = key;
  }
  return machine.provenance[best];
}

function Fact({ machine, level, field, label, text }: { machine: Machine; level: Level; field: string; label: string; text: string }) {
  const from = text === "?" ? undefined : sourceOf(machine, `levels.${level.name}.${field}`);
  return <><dt>{label}</dt><dd><b>{text}</b>{from && <small><span class={`origin ${from.origin}`}>{from.origin}</span> {from.source}{from.date ? `, ${from.date}` : ""}</small>}</dd></>;
}

function Detail({ data, level }: { data: Pyramid; level: Level }) {
  const residents = data.residents.filter((r) => r.level === level.name);
  const whole = total(level);
  return (
    <div class="detail" data-detail={level.name}>
      <h3>{level.name} <small>{level.scope === "unit" ? `one in each of ${count(level.instances)} units` : level.scope === "device" ? "shared by the device" : `the ${level.scope}'s`}</small></h3>
      <dl>
        <Fact machine={data.machine} level={level} field="capacity" label="capacity" text={whole ? `${memorySize(whole)}${(level.instances ?? 1) > 1 ? ` (${memorySize(level.capacity)} each)` : ""}` : "?"} />
        <Fact machine={data.machine} level={level} field="read_bandwidth" label="bandwidth" text={rate(level.read_bandwidth)} />
        <Fact machine={data.machine} level={level} field="latency" label="latency" text={seconds(level.latency)} />
      </dl>
      <h4>What of {data.fits.model} is here</h4>
      {residents.length === 0 && <p class="note">Nothing stays here; data only passes through.</p>}
      <ul class="residents">
        {residents.map((r) => (
          <li key={r.name}>
            <span>{r.name}</span>
            <svg class="meter" width="120" height="8" aria-hidden="true"><rect class="track" width="120" height="8" /><rect width={r.capacity ? Math.min(120, Math.max(1, (120 * r.bytes) / r.capacity)) : 0} height="8" /></svg>
            <b>{bytes(r.bytes)}</b> {r.capacity ? <span class="dim">{percent(r.bytes / r.capacity)}</span> : null}
            <small>{r.note}</small>
          </li>
        ))}
      </ul>
      <h4>How many would fit</h4>
      <p class="fits">{data.fits.pieces.map((p) => <span key={p.name}><b>{p.count[level.name] === null || p.count[level.name] === undefined ? "?" : count(p.count[level.name])}</b> {p.name}{p.count[level.name] === 1 ? "" : "s"} <small>of {bytes(p.bytes)}</small></span>)}</p>
    </div>
  );
}

export default function PyramidPanel() {
  const { data, error } = useView<Pyramid>("pyramid");
  const [picked, pick] = useState("");
  if (!data) return <p class="note">{error ? plain(error) : "…"}</p>;
  const levels = data.machine.levels;
  const memory = [...levels].reverse().find((l) => l.scope === "device");
  const chosen = levels.find((l) => l.name === picked) ?? memory;
  const inner = levels.find((l) => l.read_bandwidth);
  return (
    <section class="panel">
      <p class="sentence">
        {data.machine.title}: memory far from the arithmetic is larger and slower than memory beside it.
        {inner?.read_bandwidth && memory?.read_bandwidth ? ` From ${inner.name} to ${memory.name} bandwidth falls ${count(inner.read_bandwidth / memory.read_bandwidth)} times${total(inner) && total(memory) ? ` while capacity grows ${count((total(memory) as number) / (total(inner) as number))} times` : ""}.` : ""}
      </p>
      <Figure name="pyramid" title={`The memory of ${data.machine.name}`} rows={levels} json={data} draw={(w) => <Levels data={data} width={w} chosen={chosen?.name ?? ""} choose={pick} />}
        note="Log scales. Between two levels: the factor from the inner to the outer. Bandwidth is that of the whole device. A dot marks levels that hold part of the model. Choose a level for its sources and contents." />
      <div class="two">
        {chosen && <Detail data={data} level={chosen} />}
        <Figure name="die" title="The die, schematically" draw={(w) => <Die data={data} width={w} chosen={chosen?.name ?? ""} choose={pick} />}
          note="One square is one compute unit with its registers and L1. Device memory is filled as this model fills it." />
      </div>
    </section>
  );
}
