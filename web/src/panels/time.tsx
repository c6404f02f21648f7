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

function PhaseBars({ phase, title, seen, width, scaleMax }: { phase: Phase; title: string; seen: number | null; width: number; scaleMax: number }) {
  const walls = kTimed.filter((w) => (phase.on_s[w] ?? 0) > 0);
  const step = 24;
  const f = frame(width, 80 + walls.length * step, 152, 20, 46, 26);
  const side = (v: number) => (x(v) > f.right - 110 ? ({ "text-anchor": "end", dx: -4 } as const) : ({ dx: 4 } as const));
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
            <rect x={f.left} y={y} height={14} width={Math.max(1, x(value) - f.left)} />
            <text class="value" x={f.left - 8} y={y + 11} text-anchor="end">{seconds(value)}</text>
          </g>
        );
      })}
      <g class="rule roofmark"><line x1={x(phase.roof_s)} x2={x(phase.roof_s)} y1={f.top - 32} y2={f.bottom} /><text x={x(phase.roof_s)} y={f.top - 24} {...side(phase.roof_s)}>roof {seconds(phase.roof_s)}</text></g>
      <g class="rule expected"><line x1={x(phase.expected_s)} x2={x(phase.expected_s)} y1={f.top - 14} y2={f.bottom} /><text x={x(phase.expected_s)} y={f.top - 6} {...side(phase.expected_s)}>expected {seconds(phase.expected_s)}</text></g>
      {seen !== null && <g class="rule seen"><line x1={x(seen)} x2={x(seen)} y1={f.top + 4} y2={f.bottom} /><text x={x(seen)} y={f.top + 2} dx={x(seen) > width * 0.7 ? -5 : 5} text-anchor={x(seen) > width * 0.7 ? "end" : "start"}>observed {seconds(seen)}</text></g>}
    </Chart>
  );
}

function OpBars({ ops, width }: { ops: PlacedOp[]; width: number }) {
  const narrow = width < 560;
  const row = 26;
  const f = frame(width, 44 + ops.length * row, narrow ? 108 : 170, narrow ? 62 : 190, 8, 32);
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
            <text x={f.left - 8} y={y + 15} text-anchor="end">{op.name}{narrow ? "" : ` ×${count(op.count)}`}</text>
            {kTimed.map((wall) => ({ wall, value: op.on_s[wall] ?? 0 })).filter(({ value }) => value >= x.domain[0]).map(({ wall, value }) => (
              <g key={wall} class={`lollipop wall-${wall}${op.wall === wall ? " decides" : ""}`}>
                <line x1={f.left} x2={x(value)} y1={y + 6 + kTimed.indexOf(wall) * 3.2} y2={y + 6 + kTimed.indexOf(wall) * 3.2} />
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
      <div class="two">
        <Figure name="time-decode" title={`Decode: ${seconds(p.tpot_s)} per token${tokens > 1 ? `, ${count(tokens)} tokens per step` : ""}`} json={p.decode}
          draw={(w) => <PhaseBars phase={p.decode} title="Decode" seen={itlStep} width={w} scaleMax={reach(p.decode, itlStep)} />} />
        <Figure name="time-prefill" title={`Prefill: ${seconds(p.ttft_s)} to the first token`} json={p.prefill}
          draw={(w) => <PhaseBars phase={p.prefill} title="Prefill" seen={ttft} width={w} scaleMax={reach(p.prefill, ttft)} />} />
      </div>
      <div class="toolbar">
        <div class="chips" role="group" aria-label="Phase">
          {(["decode", "prefill"] as const).map((name) => <button key={name} type="button" class="chip" aria-pressed={which === name} onClick={() => turn(name)}>{name}</button>)}
        </div>
        <div class="inline"><NumberField option="itl" label="Observed per token" hint="28ms" /><NumberField option="ttft" label="Observed first token" hint="900ms" /></div>
      </div>
      <Figure name={`operators-${which}`} title={`Operators of ${which}, all layers`} rows={ops.map(({ on_s, ...op }) => ({ ...op, ...Object.fromEntries(Object.entries(on_s as Record<Wall, number>).map(([k, v]) => [`${k}_s`, v])) }))} json={ops}
        draw={(w) => <OpBars ops={ops} width={w} />}
        note="Ceilings work at the same time, so an operator takes the longest of compute, memory and link, plus what starting its kernels costs. The roof has neither launches nor losses." />
    </section>
  );
}
