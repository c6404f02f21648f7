// The roofline of the engine that runs: its newest steps as a dot, predicted and measured.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../api";
import { Axes, Chart, frame, path } from "../axes";
import { useWidth } from "../figure";
import { axis, bytes, flopRate, percent, rate } from "../format";
import { logDomain, logScale } from "../scale";
import type { Roofline, RoofMachine } from "../types";
import { WallMark, kWalls } from "../walls";
import { store, useBeat } from "./draw";
import type { LiveRoof, Serving } from "./events";
import { kWindow, type Sums } from "./store";

const kDot = 0.5; // s of steps in a dot

const place = (s: Sums, seconds: number) => ({ x: s.flops / s.bytes, y: s.flops / seconds });

// Where the dot was each half second of the window.
function trail(): { x: number; y: number }[] {
  const { entries } = store;
  if (entries.count === 0) return [];
  const to = entries.at("end_s", entries.count - 1) - kDot;
  const points = [];
  for (let from = to - kWindow; from < to; from += kDot) {
    const sums = store.sum(entries.from("end_s", from), entries.from("end_s", from + kDot));
    if (sums.steps && sums.bytes) points.push(place(sums, sums.measured_s));
  }
  return points;
}

function useMachine(name: string): RoofMachine | null {
  const [machine, show] = useState<RoofMachine | null>(null);
  useEffect(() => {
    ask(`/api/roofline?machine=${encodeURIComponent(name)}`).then((data) => show((data as Roofline).machines[0] ?? null), () => {});
  }, [name]);
  return machine;
}

interface Ceilings { level: NonNullable<Serving["streams_from"]>; peak: number; roofs: LiveRoof[] }

const kKinds: Record<LiveRoof["kind"], string> = { datasheet: "Datasheet", measured: "Measured", predicted: "Predicted" };
function told({ kind, bytes_per_s, flops_per_s }: LiveRoof): string {
  const parts = [...(bytes_per_s ? [rate(bytes_per_s)] : []), ...(flops_per_s ? [flopRate(flops_per_s)] : [])];
  return `${kKinds[kind]}: ${parts.join(", ") || "not known"}`;
}

export function Roof({ serving }: { serving: Serving }) {
  const { machine, streams_from: level, peak_flops_per_s: peak } = serving;
  if (!machine || !level || !peak) return <p class="note">This machine is unknown, so it has no roof here: <code>ridge measure</code> finds it.</p>;
  return <KnownRoof serving={serving} name={machine} level={level} peak={peak} roofs={serving.roofs} />;
}

function KnownRoof({ serving, name, level, peak, roofs }: Ceilings & { serving: Serving; name: string }) {
  useBeat(2);
  const machine = useMachine(name);
  const [box, width] = useWidth();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const now = store.recent(kDot);
  const dot = now.bytes ? place(now, now.measured_s) : null;
  const hollow = now.bytes && now.predicted_s ? place(now, now.predicted_s) : null;
  const others = (machine?.levels ?? []).filter((l) => l.name !== level.level && l.name !== "registers");
  const old = still ? [] : trail();
  const attainable = dot && Math.min(peak, dot.x * level.bytes_per_s);
  return (
    <>
      <div class="drawing" ref={box}>{width > 0 && <Plot {...{ width, level, peak, roofs, others, old, dot, hollow }} />}</div>
      <ul class="roof-key">{roofs.map((r) => <li key={r.kind} data-roof-kind={r.kind} data-bytes-per-s={r.bytes_per_s} data-flops-per-s={r.flops_per_s}><i class={`roof-line ${r.kind}`} />{told(r)}</li>)}</ul>
      <p class="sentence small" data-dot={dot ? JSON.stringify({ ...now, intensity: dot.x, flops_per_s: dot.y, predicted_flops_per_s: hollow?.y ?? null }) : undefined}>
        {dot && attainable
          ? <>{axis(Number(dot.x.toPrecision(3)))} FLOP per byte, {flopRate(dot.y)} = {percent(dot.y / attainable)} of the {attainable < peak ? `${level.level} roof` : "peak"} there; {rate(now.bytes / now.measured_s)}.</>
          : "The dot appears with the first step."}
      </p>
      <p class="note">
        {bytes(serving.weight_bytes)} of weights stream from <b>{level.level}</b> each step ({rate(level.bytes_per_s)}, {level.measured ? "measured" : "datasheet"}).
        {/^L\d$/.test(level.level) && <> They stay in the cache, so its roof holds, not the memory's. <code>ridge serve llama-3.2-1b --weights random:1</code> is large enough to feel DRAM.</>}
        {" "}Filled dot: measured. Hollow dot: predicted. The predicted roof is what a decode step is expected to reach.{still ? "" : " Grey: the last 30 s."}
      </p>
    </>
  );
}

interface PlotProps extends Ceilings {
  width: number; others: RoofMachine["levels"]; old: { x: number; y: number }[];
  dot: { x: number; y: number } | null; hollow: { x: number; y: number } | null;
}
function Plot({ width, level, peak, roofs, others, old, dot, hollow }: PlotProps) {
  const f = frame(width, 260, 44, 10, 10, 32);
  const ridge = peak / level.bytes_per_s;
  const seen = [...old, ...(dot ? [dot] : []), ...(hollow ? [hollow] : [])];
  const [x0, x1] = logDomain([0.2, ridge * 4, ...others.map((l) => peak / l.bandwidth), ...seen.map((p) => p.x)]);
  const [y0, y1] = logDomain([peak, ...roofs.flatMap((r) => r.flops_per_s ?? []), 0.2 * level.bytes_per_s, ...seen.map((p) => p.y)], 1.6);
  const x = logScale(x0, x1, f.left, f.right), y = logScale(y0, y1, f.bottom, f.top);
  const roof = (bandwidth: number) => {
    const low = Math.max(x0, y0 / bandwidth), bend = Math.min(x1, peak / bandwidth);
    return path([[x(low), y(low * bandwidth)], [x(bend), y(bend * bandwidth)], [x(x1), y(Math.min(peak, x1 * bandwidth))]]);
  };
  // Right of the slope there is room; each label at a height of its own.
  const name = (bandwidth: number, text: string, height: number) => {
    const at = Math.min(peak, y0 * (y1 / y0) ** height) / bandwidth;
    return <text class={`roof-label${bandwidth === level.bytes_per_s ? " strong" : " other"}`} x={x(Math.max(x0, at)) + 9} y={y(Math.max(x0, at) * bandwidth) + 9}>{text}</text>;
  };
  const { wall } = store;
  // A source that knows one of the two numbers draws that part alone, up to the other one's bend.
  const line = (r: LiveRoof) => {
    const bandwidth = r.bytes_per_s, top = r.flops_per_s;
    const bend = (top ?? peak) / (bandwidth ?? level.bytes_per_s);
    const low = bandwidth && Math.max(x0, y0 / bandwidth);
    return path([
      ...(bandwidth && low ? [[x(low), y(low * bandwidth)], [x(Math.min(x1, bend)), y(Math.min(x1, bend) * bandwidth)]] as const : []),
      ...(top && bend < x1 ? [[x(Math.max(x0, bend)), y(top)], [x(x1), y(top)]] as const : []),
    ]);
  };
  return (
    <Chart frame={f} label="Roofline of the running engine">
      <Axes frame={f} x={x} y={y} xTitle="FLOP per byte" yTitle="FLOP/s" xFormat={axis} yFormat={axis} />
      {others.map((l, i) => <g key={l.name}><path class="roof other" d={roof(l.bandwidth)} />{name(l.bandwidth, `${l.name} ${rate(l.bandwidth)}`, 0.12 + 0.13 * i)}</g>)}
      {roofs.map((r) => <path key={r.kind} class={`roof live-roof ${r.kind}`} d={line(r)} data-roof={level.level} />)}
      {name(level.bytes_per_s, `${level.level} ${rate(level.bytes_per_s)}${level.measured ? " measured" : ""}`, 0.5)}
      <text class="roof-label" x={f.right} y={y(peak) - 5} text-anchor="end">{flopRate(peak)}</text>
      {old.map((p, i) => <circle key={i} class="trail" cx={x(p.x)} cy={y(p.y)} r={2.2} opacity={0.15 + (0.6 * i) / old.length} />)}
      {hollow && <g class="livedot" transform={`translate(${x(hollow.x).toFixed(1)} ${y(hollow.y).toFixed(1)})`}><WallMark wall={wall} r={7} hollow /></g>}
      {dot && <g class="livedot" role="img" aria-label={`Newest steps: ${axis(Number(dot.x.toPrecision(3)))} FLOP per byte, ${flopRate(dot.y)}, ${kWalls[wall].label} decides`} transform={`translate(${x(dot.x).toFixed(1)} ${y(dot.y).toFixed(1)})`}><WallMark wall={wall} r={6} /></g>}
    </Chart>
  );
}
