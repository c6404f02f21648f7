// Where every tile is at one moment, and when it was where.
import { Chart, frame } from "../axes";
import { axisSeconds, binary } from "../format";
import { linearScale } from "../scale";
import type { Tiles, TileStep } from "../types";

const kRows = 16;

function zoneAt(step: TileStep, now: number): ["queue" | "memory" | "cache" | "waiting" | "computing" | "done", number] {
  const part = (a: number, b: number) => (b > a ? Math.min(1, Math.max(0, (now - a) / (b - a))) : 1);
  if (now < step.issued_s) return ["queue", 0];
  if (now < step.from_memory_s) return ["memory", part(step.started_s, step.from_memory_s)];
  if (now < step.in_shared_s) return ["cache", part(step.from_memory_s, step.in_shared_s)];
  if (now < step.computing_s) return ["waiting", 0];
  if (now < step.done_s) return ["computing", part(step.computing_s, step.done_s)];
  return ["done", 1];
}

export function Flow({ data, width, now }: { data: Tiles; width: number; now: number }) {
  const f = frame(width, 190, 8, 8, 26, 22);
  const names = [data.memory, data.cache ?? "cache", `shared memory, ${data.stages} ${data.stages === 1 ? "buffer" : "buffers"}`, "matrix unit"];
  const shares = [0.27, 0.2, 0.33, 0.2];
  const narrow = width < 560;
  let at = f.left;
  const zones = shares.map((share, i) => {
    const w = (f.right - f.left) * share;
    const zone = { x: at, w: w - 10, name: names[i] as string };
    at += w;
    return zone;
  });
  const [memory, cache, shared, unit] = zones as [typeof zones[0], typeof zones[0], typeof zones[0], typeof zones[0]];
  const middle = (f.top + f.bottom) / 2;
  const size = Math.max(1, Math.min(20, (shared.w - 8) / data.stages - 3));
  const slot = (i: number) => shared.x + 6 + (i % data.stages) * ((shared.w - 8) / data.stages);
  const steps = data.steps.slice(0, 64).map((step, i) => ({ step, i, zone: zoneAt(step, now) }));
  const busy = steps.find(({ zone }) => zone[0] === "computing");
  const finished = steps.filter(({ zone }) => zone[0] === "done").length;
  const lane = (i: number) => middle - size / 2 + ((i % data.stages) - (data.stages - 1) / 2) * Math.min(size + 3, 90 / data.stages);
  return (
    <Chart frame={f} label="Tiles moving from memory through the cache and shared memory to the matrix unit">
      {zones.map((zone, i) => (
        <g key={zone.name} class={`place${i === 3 ? (busy ? " busy" : " idle") : ""}`}>
          <rect x={zone.x} y={f.top} width={zone.w} height={f.bottom - f.top} rx={3} />
          <text x={zone.x + 2} y={f.top - 8}>{narrow && i === 2 ? "shared" : zone.name}</text>
          {i < 3 && <path class="arrow" d={`M${zone.x + zone.w + 1} ${middle}h7m-3 -3l3 3l-3 3`} />}
        </g>
      ))}
      {Array.from({ length: data.stages }, (_, i) => <rect key={i} class="slot" x={slot(i)} y={middle - size / 2} width={size} height={size} />)}
      {steps.map(({ i, zone: [kind, part] }) => {
        if (kind === "queue" || kind === "done") return null;
        const [x, y] =
          kind === "memory" ? [memory.x + 6 + part * (memory.w - size - 8), lane(i)]
          : kind === "cache" ? [cache.x + 4 + part * (cache.w - size - 8), lane(i)]
          : kind === "waiting" ? [slot(i), middle - size / 2]
          : [unit.x + unit.w / 2 - size / 2, middle - size / 2];
        return (
          <g key={i} class={`tile ${kind}`} transform={`translate(${x.toFixed(1)} ${y.toFixed(1)})`}>
            <rect width={size} height={size} />
            {size > 13 && <text x={size / 2} y={size / 2 + 4} text-anchor="middle">{i + 1}</text>}
          </g>
        );
      })}
      {!busy && finished < data.steps.length && <text class="bubble" x={unit.x + unit.w / 2} y={middle + 4} text-anchor="middle">waiting</text>}
      <text class="dim" x={f.left} y={f.bottom + 16}>{binary(data.stage_bytes)} per stage</text>
      <text class="dim" x={f.right} y={f.bottom + 16} text-anchor="end">{finished} of {data.steps.length} steps done</text>
    </Chart>
  );
}

export function Gantt({ data, width, now }: { data: Tiles; width: number; now: number }) {
  const rows = data.steps.slice(0, kRows);
  const row = 14;
  const f = frame(width, rows.length * row + 40, 30, 10, 8, 26);
  const x = linearScale(0, data.seconds, f.left, f.right);
  return (
    <Chart frame={f} label="Gantt chart of the steps: loading, passing the cache, waiting, computing">
      <g class="axes" aria-hidden="true">
        {x.ticks(Math.max(3, Math.floor(width / 120))).map((v) => <g key={v}><line class="grid" x1={x(v)} x2={x(v)} y1={f.top} y2={f.bottom} /><text x={x(v)} y={f.bottom + 14} text-anchor="middle">{axisSeconds(v)}</text></g>)}
      </g>
      {rows.map((step, i) => {
        const y = f.top + i * row;
        const bar = (kind: string, a: number, b: number) => b > a && <rect class={`zone-bar ${kind}`} x={x(a)} y={y + 2} width={Math.max(0.5, x(b) - x(a))} height={row - 4} />;
        return (
          <g key={i}>
            <text class="rowname" x={f.left - 6} y={y + 11} text-anchor="end">{i + 1}</text>
            {bar("queued", step.issued_s, step.started_s)}
            {bar("memory", step.started_s, step.from_memory_s)}
            {bar("cache", step.from_memory_s, step.in_shared_s)}
            {bar("waiting", step.in_shared_s, step.computing_s)}
            {bar("computing", step.computing_s, step.done_s)}
          </g>
        );
      })}
      <line class="playhead" x1={x(now)} x2={x(now)} y1={f.top} y2={f.bottom} />
    </Chart>
  );
}
