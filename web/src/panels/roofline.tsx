// Roofline: how fast an operator can go, by how much it computes for every byte it moves.
import { useState } from "preact/hooks";
import { plain, useView } from "../api";
import { Axes, Chart, frame, path, spread, type Frame } from "../axes";
import { Figure } from "../figure";
import { axis, flopRate, rate } from "../format";
import { frozen } from "../frozen";
import { logScale, roundNicely, type Scale } from "../scale";
import { config, get, kRequest, set } from "../state";
import type { Landmark, PlacedOp, Roofline, RoofMachine } from "../types";
import { kWalls, WallMark, WallTag } from "../walls";
import type { Wall } from "../types";
import { OpCard } from "./opcard";

const kShownShare = 0.002; // smaller dots would only hide the others
const kLabelShare = 0.08;

function toggled(option: string, shown: string[], name: string) {
  const next = shown.includes(name) ? shown.filter((n) => n !== name) : [...shown, name];
  set({ [option]: next.join(",") || "none" });
}

function Toggles({ option, label, all, shown }: { option: string; label: string; all: string[]; shown: string[] }) {
  return (
    <div class="chips" role="group" aria-label={label}>
      <span class="label">{label}</span>
      {all.map((name) => (
        <button key={name} type="button" class="chip" aria-pressed={shown.includes(name)} onClick={() => toggled(option, shown, name)}>{name}</button>
      ))}
    </div>
  );
}

const listed = (option: string, otherwise: string[]) => {
  const text = config.value[option];
  return text === undefined ? otherwise : text.split(",").filter((n) => n && n !== "none");
};

// What moves a dot: the batch of decode (with shift the context), the prompt of prefill.
const mover = (op: { phase: string }, shift: boolean) => (op.phase === "prefill" ? "prompt" : shift ? "context" : "batch");
const kMost = 1e6;
const place = (option: string, value: number) => set({ [option]: String(Math.min(kMost, Math.max(1, roundNicely(value)))) });

// A dot is a slider: arrows double and halve, Home and End go to the ends.
function onDotKey(op: { phase: string }, event: KeyboardEvent) {
  const option = mover(op, event.shiftKey);
  const now = Number(get(option)) || 1;
  const next = { ArrowRight: now * 2, ArrowUp: now * 2, ArrowLeft: now / 2, ArrowDown: now / 2, Home: 1, End: 4096 }[event.key];
  if (next === undefined || frozen) return;
  event.preventDefault();
  place(option, next);
}

function dragger(op: { phase: string }) {
  return (down: PointerEvent) => {
    if (frozen) return;
    const option = mover(op, down.shiftKey);
    const start = Number(get(option)) || 1;
    const target = down.currentTarget as SVGElement;
    target.setPointerCapture(down.pointerId);
    const move = (event: PointerEvent) =>
      place(option, start * 2 ** ((event.clientX - down.clientX) / 56));
    const up = () => {
      target.removeEventListener("pointermove", move);
      target.removeEventListener("pointerup", up);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", up);
  };
}

// The names of the larger dots, right of them. Dots at about the same height share a column of names, the
// rightmost dot's on top, so that no leader crosses another.
function dotLabels(ops: PlacedOp[], x: Scale, y: Scale, f: Frame): { op: PlacedOp; left: number; top: number }[] {
  const kGap = 14;
  const band = (op: PlacedOp) => Math.round(y(op.flops_per_s) / kGap);
  const list = [...ops].sort((a, b) => band(a) - band(b) || b.intensity - a.intensity);
  const tops = spread(list.map((op, i) => band(op) * kGap + i * 0.01), kGap, f.top + 8, f.bottom - 30);
  const edge = (op: PlacedOp) => x(op.intensity) + 8 * Math.sqrt(op.share) + 12;
  const columns: number[] = [];
  list.forEach((_, i) => columns.push(i > 0 && (tops[i] as number) - (tops[i - 1] as number) < kGap + 1 ? (columns[i - 1] as number) : i));
  return list.map((op, i) => ({
    op, top: tops[i] as number,
    left: Math.max(...list.filter((_, j) => columns[j] === columns[i]).map(edge)),
  }));
}

interface Line { key: string; label: string; points: [number, number][]; kind: string }

function roofLines(machine: RoofMachine, dtypes: string[], levels: string[], x0: number, x1: number, first: boolean): Line[] {
  const lines: Line[] = [];
  const roofs = machine.roofs.filter((r) => dtypes.includes(r.dtype));
  const top = Math.max(...roofs.map((r) => r.peak), 0);
  for (const level of machine.levels.filter((l) => levels.includes(l.name))) {
    const bend = Math.min(x1, top / level.bandwidth);
    if (bend <= x0) continue;
    lines.push({
      key: level.name,
      label: `${level.name} ${rate(level.bandwidth)}${level.measured ? ", measured" : ""}`,
      points: [[x0, x0 * level.bandwidth], [bend, bend * level.bandwidth]],
      kind: `slope${level.memory ? " memory" : ""}`,
    });
  }
  const slope = machine.levels.find((l) => l.memory && levels.includes(l.name)) ?? machine.levels.find((l) => levels.includes(l.name));
  for (const roof of roofs) {
    const from = slope ? Math.max(x0, roof.peak / slope.bandwidth) : x0;
    lines.push({ key: roof.dtype, label: `${first ? "" : `${machine.name} `}${roof.dtype} ${flopRate(roof.peak)}`, points: [[from, roof.peak], [x1, roof.peak]], kind: "peak" });
    if (roof.sustained && first) {
      const at = slope ? Math.max(x0, roof.sustained / slope.bandwidth) : x0;
      lines.push({ key: `${roof.dtype}s`, label: `${roof.dtype} ${flopRate(roof.sustained)}, measured`, points: [[at, roof.sustained], [x1, roof.sustained]], kind: "peak sustained" });
    }
  }
  return lines;
}

function Plot({ data, before, width, dtypes, levels }: { data: Roofline; before: Roofline | null; width: number; dtypes: string[]; levels: string[] }) {
  const [near, point] = useState<PlacedOp | null>(null);
  const narrow = width < 620;
  const f = frame(width, narrow ? 380 : Math.min(560, Math.max(420, width * 0.5)), 58, narrow ? 12 : 184, 12, 40);
  const ops = data.prediction.ops.filter((op) => op.flops > 0 && op.share >= kShownShare);
  const [x0, x1] = [0.05, 2e4];
  const primary = data.machines[0] as RoofMachine;
  const lines = data.machines.map((m, i) =>
    roofLines(m, i === 0 ? dtypes : [m.roofs.find((r) => r.dtype === "bf16")?.dtype ?? m.roofs[0]?.dtype ?? ""], i === 0 ? levels : m.levels.filter((l) => l.memory).map((l) => l.name), x0, x1, i === 0));
  const tops = lines.flat().filter((l) => l.kind.startsWith("peak")).map((l) => l.points[0]?.[1] ?? 0);
  const high = Math.max(...tops, ...ops.map((o) => o.flops_per_s)) * 2.2;
  const low = Math.max(high * 1e-6, Math.min(...ops.map((o) => o.flops_per_s), high * 1e-3) * 0.45);
  const x = logScale(x0, x1, f.left, f.right);
  const y = logScale(low, high, f.bottom, f.top);
  const clip = (points: [number, number][]) => {
    // Slopes enter from below: start where they meet the frame.
    const [[ax, ay], [bx, by]] = points as [[number, number], [number, number]];
    if (ay >= low || by <= low) return points;
    const t = Math.log(low / ay) / Math.log(by / ay);
    return [[ax * (bx / ax) ** t, low], [bx, by]] as [number, number][];
  };
  const flat = lines.flatMap((list, i) => list.filter((l) => l.kind.startsWith("peak")).map((l) => ({ ...l, other: i > 0 })));
  // On a phone the names of flat roofs stand left of every slope, where nothing else is.
  const steepest = Math.max(...lines.flat().filter((l) => l.kind.startsWith("slope")).map((l) => (l.points[0]?.[1] ?? 0) / x0), 1);
  const places = spread(flat.map((l) => y(l.points[1]?.[1] ?? low)), 13, f.top + 4, f.bottom);
  const ridges = primary.roofs.filter((r) => dtypes.includes(r.dtype) && r.ridge && levels.includes(primary.levels.find((l) => l.memory)?.name ?? ""));
  const labels = narrow ? [] : (["decode", "prefill"] as const).flatMap((phase) => dotLabels(ops.filter((o) => o.phase === phase && o.share >= kLabelShare), x, y, f));
  // A landmark's name goes above its left neighbour's where both would touch.
  const lifts = new Map<string, number>();
  [...data.landmarks].sort((a, b) => a.intensity - b.intensity).reduce<Landmark | null>((left, mark) => {
    const close = left && x(mark.intensity) - x(left.intensity) < 74;
    lifts.set(mark.name, close && lifts.get(left.name) === 0 ? 13 : 0);
    return mark;
  }, null);
  const ghosts = new Map((before?.prediction.ops ?? []).map((op) => [`${op.phase}/${op.name}`, op]));
  const onMove = (event: PointerEvent) => {
    if (event.pointerType === "touch" || event.buttons) return;
    const box = (event.currentTarget as SVGSVGElement).getBoundingClientRect();
    let best: PlacedOp | null = null;
    let distance = 26;
    for (const op of ops) {
      const d = Math.hypot(x(op.intensity) - (event.clientX - box.left), y(op.flops_per_s) - (event.clientY - box.top));
      if (d < distance) [best, distance] = [op, d];
    }
    point(best);
  };
  return (
    <>
      <Chart frame={f} label="Roofline: operations per second over operations per byte" onMove={onMove} onLeave={() => point(null)}>
        <Axes frame={f} x={x} y={y} xTitle="FLOP per byte of device memory" yTitle="FLOP/s per device" xFormat={axis} yFormat={axis} />
        {ridges.map((r, i) => (
          <g key={r.dtype} class="ridge">
            <line x1={x(r.ridge ?? 1)} x2={x(r.ridge ?? 1)} y1={y(r.peak)} y2={f.bottom} />
            <text x={x(r.ridge ?? 1) + 4} y={y(r.peak) - 6 - (narrow ? i * 12 : 0)}>ridge {Math.round(r.ridge ?? 0)}</text>
          </g>
        ))}
        {lines.map((list, i) => list.map((line) => (
          <path key={`${i}${line.key}`} class={`roof ${line.kind}${i > 0 ? ` other other${i}` : ""}`} d={path(clip(line.points).map(([a, b]) => [x(a), y(b)] as const))}>
            <title>{line.label}</title>
          </path>
        )))}
        {lines[0]?.filter((l) => l.kind.startsWith(narrow ? "slope memory" : "slope")).map((line) => {
          const [[ax, ay], [bx, by]] = clip(line.points) as [[number, number], [number, number]];
          const at = Math.sqrt(ax * Math.min(bx, ax * 60));
          const angle = (Math.atan2(y(by) - y(ay), x(bx) - x(ax)) * 180) / Math.PI;
          return <text key={line.key} class="roof-label" transform={`translate(${x(at) - 4} ${y(at * (by / bx)) - 6}) rotate(${angle})`} text-anchor="middle">{line.label}</text>;
        })}
        {flat.map((line, i) => <text key={i} class={`roof-label${line.other ? " other" : ""}`} x={narrow ? x((line.points[0]?.[1] ?? 1) / steepest) - 8 : f.right + 6} y={(places[i] ?? 0) + 3.5} text-anchor={narrow ? "end" : "start"}>{line.label}</text>)}
        {data.landmarks.map((mark: Landmark) => (
          <g key={mark.name} class="landmark" transform={`translate(${x(mark.intensity)} ${f.bottom})`}>
            <path d="M0 0l-3.5 6h7Z" />
            {(!narrow || mark.flops_per_s !== undefined) && <text x={0} y={-4 - (lifts.get(mark.name) ?? 0)} text-anchor="middle">{mark.name}</text>}
          </g>
        ))}
        {ops.map((op) => {
          const old = ghosts.get(`${op.phase}/${op.name}`);
          return old && old.flops > 0 && Math.hypot(x(old.intensity) - x(op.intensity), y(old.flops_per_s) - y(op.flops_per_s)) > 3 ? (
            <g key={`g${op.phase}${op.name}`} class="ghost">
              <line x1={x(old.intensity)} y1={y(old.flops_per_s)} x2={x(op.intensity)} y2={y(op.flops_per_s)} />
              <g transform={`translate(${x(old.intensity)} ${y(old.flops_per_s)})`}><WallMark wall={old.wall} r={4} hollow /></g>
            </g>
          ) : null;
        })}
        {[...ops].sort((a, b) => b.share - a.share).map((op) => (
          <g key={`${op.phase}/${op.name}`} class={`dot ${op.phase}${near === op ? " near" : ""}`} style={{ transform: `translate(${x(op.intensity).toFixed(1)}px,${y(op.flops_per_s).toFixed(1)}px)` }}
            tabindex={0} role="slider" data-op={`${op.phase} ${op.name}`} aria-label={`${op.phase} ${op.name}, ${mover(op, false)}`} aria-disabled={frozen !== null}
            aria-valuemin={1} aria-valuemax={kMost} aria-valuenow={Number(get(mover(op, false))) || 1}
            aria-valuetext={`${mover(op, false)} ${get(mover(op, false))}: ${axis(op.intensity)} FLOP per byte, ${flopRate(op.flops_per_s)}, ${kWalls[op.wall].label} decides`}
            onFocus={() => point(op)} onBlur={() => point(null)} onKeyDown={(event) => onDotKey(op, event)} onPointerDown={dragger(op)}>
            <WallMark wall={op.wall} r={3 + 8 * Math.sqrt(op.share)} hollow={op.phase === "prefill"} />
          </g>
        ))}
        {labels.map(({ op, left, top }) => {
          const [dx, dy] = [x(op.intensity), y(op.flops_per_s)];
          return (
            <g key={`l${op.phase}${op.name}`}>
              {(Math.abs(top - dy) > 8 || left - dx > 40) && <line class="leader" x1={dx} y1={dy} x2={left - 2} y2={top} />}
              <text class="dot-label" x={left} y={top + 3.5}>{op.name}</text>
            </g>
          );
        })}
      </Chart>
      {near && <OpCard op={near} left={x(near.intensity)} top={y(near.flops_per_s)} width={width} />}
    </>
  );
}

export default function RooflinePanel() {
  const view = useView<Roofline>("roofline");
  const pinned = config.value["pin"];
  const pin = pinned ? Object.fromEntries(new URLSearchParams(pinned)) : null;
  const before = useView<Roofline>("roofline", pin ?? undefined, pin !== null);
  const data = view.data;
  const [wide] = useState(() => matchMedia("(min-width: 900px)").matches);
  if (!data) return <p class="note">{view.error ? plain(view.error) : "…"}</p>;
  const machine = data.machines[0] as RoofMachine;
  const used = [...new Set(data.prediction.ops.filter((o) => o.kind.includes("matmul")).map((o) => o.runs_as))];
  const memory = machine.levels.find((l) => l.memory)?.name ?? "";
  const allLevels = machine.levels.map((l) => l.name).filter((n) => n !== "registers");
  const dtypes = listed("roofs", used).filter((d) => machine.roofs.some((r) => r.dtype === d));
  const levels = listed("levels", [memory, allLevels[allLevels.indexOf(memory) - 1] ?? memory]);
  const walls = [...new Set(data.prediction.ops.filter((o) => o.flops > 0).map((o) => o.wall))] as Wall[];
  return (
    <section class="panel">
      <p class="sentence" data-sentence>{data.sentence}</p>
      {data.techniques && <p class="sentence" data-techniques>{data.techniques}</p>}
      <details class="fold" open={wide}>
      <summary>Roofs, levels, machines to compare</summary>
      <div class="toolbar">
        <Toggles option="roofs" label="Roofs" all={machine.roofs.map((r) => r.dtype)} shown={dtypes} />
        <Toggles option="levels" label="Levels" all={allLevels} shown={levels} />
        <Toggles option="compare" label="Compare" all={["a100-sxm-80gb", "h100-sxm", "h200", "b200", "mi300x", "rtx-4090"].filter((n) => n !== machine.name)} shown={listed("compare", [])} />
        <div class="chips">
          <button type="button" class="chip" aria-pressed={pin !== null} disabled={frozen !== null}
            onClick={() => set({ pin: pin ? undefined : new URLSearchParams(kRequest.filter((n) => config.value[n]).map((n) => [n, config.value[n] as string])).toString() })}>
            {pin ? "Clear the pinned comparison" : "Pin for comparison"}
          </button>
        </div>
      </div>
      </details>
      <Figure name="roofline" title={`${data.prediction.model} on ${data.prediction.machine}`} rows={data.prediction.ops.map(({ on_s: _, ...op }) => op)} json={data}
        draw={(width) => <Plot data={data} before={pin ? before.data : null} width={width} dtypes={dtypes} levels={levels} />}
        note={<>
          A dot's colour and shape tell its wall: {walls.map((w, i) => <span key={w}>{i > 0 && ", "}<WallTag wall={w} /></span>)}. Filled: decode; hollow: prefill. Its size is the share of the phase's time. Roofs are the datasheet's unless they say measured.
          Drag a decode dot, or press arrow keys on it, to change the batch (with shift: the context), a prefill dot to change the prompt. Pin this configuration, then change it, to compare the two.
        </>} />
    </section>
  );
}
