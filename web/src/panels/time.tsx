// Time: what each ceiling asks for, side by side, and what that sums to.
import { useState } from "preact/hooks";
import { plain, useView } from "../api";
import { Chart, frame } from "../axes";
import { NumberField } from "../controls";
import { Figure } from "../figure";
import { axisSeconds, count, percent, seconds } from "../format";
import { linearScale, logScale } from "../scale";
import { get } from "../state";
import type { Phase, PlacedOp, Prediction, Roofline, Wall } from "../types";
import { kTimed, kWalls, WallMark, WallTag } from "../walls";

// "28ms" as the command line reads it; only to place a mark, the API judges it.
function typedSeconds(text: string): number | null {
  const match = /^([\d.]+)\s*(s|ms|us|µs)?$/.exec(text.trim());
  return match ? Number(match[1]) * ({ ms: 1e-3, us: 1e-6, µs: 1e-6 }[match[2] ?? ""] ?? 1) : null;
}

// What each ceiling would take at full rate. Launches have no such floor: they are all loss; of the links
// only the expected time is known.
const atRoof = (ops: PlacedOp[]): Partial<Record<Wall, number>> => ({
  compute: ops.reduce((sum, op) => sum + (op.at_peak_s ?? 0), 0),
  memory: ops.reduce((sum, op) => sum + op.at_bandwidth_s, 0),
});

function PhaseBars({ phase, ops, title, seen, width, scaleMax }: { phase: Phase; ops: PlacedOp[]; title: string; seen: number | null; width: number; scaleMax: number }) {
  const walls = kTimed.filter((w) => (phase.on_s[w] ?? 0) > 0);
  const step = 24;
  const roofs = atRoof(ops);
  // Marks in the order of their times, each label left of its line and above the shorter ones: no line
  // passes through a label.
  const marks = ([["roofmark", "roof", phase.roof_s], ["expected", "expected", phase.expected_s], ["seen", "observed", seen]] as [string, string, number | null][])
    .filter((mark): mark is [string, string, number] => mark[2] !== null).sort((a, b) => a[2] - b[2]);
  const f = frame(width, 44 + marks.length * 18 + walls.length * step, 152, 20, 10 + marks.length * 18, 26);
  const x = linearScale(0, scaleMax, f.left, f.right);
  return (
    <Chart frame={f} label={`${title}: time on each ceiling`}>
      <g class="axes" aria-hidden="true">
        {x.ticks(Math.max(3, Math.floor(width / 110))).map((v) => (
          <g key={v}><line class="grid" x1={x(v)} x2={x(v)} y1={f.top} y2={f.bottom} /><text x={x(v)} y={f.bottom + 14} text-anchor="middle">{axisSeconds(v)}</text></g>
        ))}
        <path class="spine" d={`M${f.left} ${f.top}V${f.bottom}H${f.right}`} />
      </g>
      <rect class="band" x={x(phase.low_s)} width={Math.max(1, x(Math.min(scaleMax, phase.high_s)) - x(phase.low_s))} y={f.top} height={f.bottom - f.top}><title>{`expected band ${seconds(phase.low_s)} to ${seconds(phase.high_s)}`}</title></rect>
      {walls.map((wall, i) => {
        const value = phase.on_s[wall] ?? 0;
        const y = f.top + 5 + i * step;
        return (
          <g key={wall} class={`bar wall-${wall}`}>
            <g transform={`translate(${8} ${y + 7})`}><WallMark wall={wall} r={4} /></g>
            <text x={18} y={y + 11}>{kWalls[wall].label}</text>
            <rect class="loss" x={f.left} y={y} height={14} width={Math.max(1, x(value) - f.left)}><title>{`${kWalls[wall].label}: ${seconds(value)} expected`}</title></rect>
            {(roofs[wall] ?? 0) > 0 && <rect x={f.left} y={y} height={14} width={Math.max(1, x(Math.min(value, roofs[wall] ?? 0)) - f.left)}><title>{`${kWalls[wall].label}: ${seconds(roofs[wall])} at the roof`}</title></rect>}
            <text class="value" x={f.left - 8} y={y + 11} text-anchor="end">{seconds(value)}</text>
          </g>
        );
      })}
      {marks.map(([kind, name, value], i) => {
        const row = f.top - 8 - i * 18;
        return <g key={kind} class={`rule ${kind}`}><line x1={x(value)} x2={x(value)} y1={row - 9} y2={f.bottom} /><text x={x(value)} y={row} dx={-4} text-anchor="end">{name} {seconds(value)}</text></g>;
      })}
    </Chart>
  );
}

function OpBars({ ops, width }: { ops: PlacedOp[]; width: number }) {
  const narrow = width < 560;
  const row = 26;
  const f = frame(width, 44 + ops.length * row, narrow ? 108 : 170, narrow ? 62 : 190, 8, 36);
  const values = ops.flatMap((o) => kTimed.map((w) => o.on_s[w] ?? 0)).filter((v) => v > 0);
  const x = logScale(Math.max(Math.min(...values), Math.max(...values) * 1e-4), Math.max(...values) * 1.3, f.left, f.right);
  return (
    <Chart frame={f} label="Time of each operator on each ceiling">
      <g class="axes" aria-hidden="true">
        {x.ticks(Math.max(3, Math.floor((f.right - f.left) / 80))).map((v) => (
          <g key={v}><line class="grid" x1={x(v)} x2={x(v)} y1={f.top} y2={f.bottom} /><text x={x(v)} y={f.bottom + 14} text-anchor="middle">{axisSeconds(v)}</text></g>
        ))}
        <text class="title" x={f.right} y={f.bottom + 28} text-anchor="end">expected time on each ceiling, log scale</text>
      </g>
      {ops.map((op, i) => {
        const y = f.top + i * row;
        return (
          <g key={op.name} class="oprow" data-op={op.name}>
            <line class="grid" x1={f.left} x2={f.right} y1={y + row - 1} y2={y + row - 1} />
            <text x={f.left - 8} y={y + 15} text-anchor="end">{op.name}{narrow ? "" : ` ×${count(op.count)}`}</text>
            {kTimed.map((wall) => ({ wall, value: op.on_s[wall] ?? 0 })).filter(({ value }) => value >= x.domain[0]).map(({ wall, value }) => (
              <g key={wall} class={`wall-${wall}`}>
                <g transform={`translate(${x(value)} ${y + 6 + kTimed.indexOf(wall) * 3.2})`}><WallMark wall={wall} r={op.wall === wall ? 4 : 2.6} /></g>
                <title>{`${op.name}: ${kWalls[wall].label} ${seconds(value)}`}</title>
              </g>
            ))}
            <text class="value" x={f.right + 10} y={y + 15}>{seconds(op.expected_s)}{narrow ? "" : ` · ${percent(op.share)} · ${kWalls[op.wall].label}`}</text>
          </g>
        );
      })}
    </Chart>
  );
}

const kSplit = "Solid: the time at full rate. Pale: what the stack is expected to lose on top.";

export default function TimePanel() {
  const view = useView<Roofline>("roofline");
  const [which, turn] = useState<"decode" | "prefill">("decode");
  const p = view.data?.prediction as Prediction<PlacedOp> | undefined;
  if (!p) return <p class="note">{view.error ? plain(view.error) : "…"}</p>;
  const itl = typedSeconds(get("itl"));
  const ttft = typedSeconds(get("ttft"));
  const itlStep = itl === null ? null : itl * p.decode.tokens_per_step;
  const reach = (phase: Phase, seen: number | null) => Math.max(phase.high_s, seen ?? 0, ...kTimed.map((w) => phase.on_s[w] ?? 0)) * 1.08;
  const ops = p.ops.filter((op) => op.phase === which && op.expected_s > 0).sort((a, b) => b.expected_s - a.expected_s);
  const tokens = p.decode.tokens_per_step;
  return (
    <section class="panel">
      <p class="sentence">
        A decode step of batch {count(p.decode.batch)} takes {seconds(p.decode.expected_s)}; <WallTag wall={p.decode.wall} /> decides, {p.decode.next_wall} comes next.
        A prompt of {count(p.prefill.prompt)} tokens takes {seconds(p.prefill.expected_s)}; <WallTag wall={p.prefill.wall} /> decides.
      </p>
      {view.data?.techniques && <p class="sentence" data-techniques>{view.data.techniques}</p>}
      <div class="two">
        <Figure name="time-decode" title={`Decode: ${seconds(p.tpot_s)} per token${tokens > 1 ? `, ${count(tokens)} tokens per step` : ""}`} json={p.decode}
          note={kSplit} draw={(w) => <PhaseBars phase={p.decode} ops={p.ops.filter((op) => op.phase === "decode")} title="Decode" seen={itlStep} width={w} scaleMax={reach(p.decode, itlStep)} />} />
        <Figure name="time-prefill" title={`Prefill: ${seconds(p.ttft_s)} to the first token`} json={p.prefill}
          note={kSplit} draw={(w) => <PhaseBars phase={p.prefill} ops={p.ops.filter((op) => op.phase === "prefill")} title="Prefill" seen={ttft} width={w} scaleMax={reach(p.prefill, ttft)} />} />
      </div>
      <div class="toolbar">
        <div class="chips" role="group" aria-label="Phase">
          {(["decode", "prefill"] as const).map((name) => <button key={name} type="button" class="chip" aria-pressed={which === name} onClick={() => turn(name)}>{name}</button>)}
        </div>
        <div class="inline"><NumberField option="itl" label="Observed per token" hint="28 ms" /><NumberField option="ttft" label="Observed first token" hint="900 ms" /></div>
      </div>
      <Figure name={`operators-${which}`} title={`Operators of ${which}, all layers`} rows={ops.map(({ on_s, ...op }) => ({ ...op, ...Object.fromEntries(Object.entries(on_s as Record<Wall, number>).map(([k, v]) => [`${k}_s`, v])) }))} json={ops}
        draw={(w) => <OpBars ops={ops} width={w} />}
        note="Ceilings work at the same time, so an operator takes the longest of compute, memory and link, plus what starting its kernels costs. The roof has neither launches nor losses." />
    </section>
  );
}
