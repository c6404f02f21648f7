// The frame of a chart: ticks, grid lines, titles.
import type { ComponentChildren } from "preact";
import type { Scale } from "./scale";

export interface Frame {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}
export const frame = (width: number, height: number, left = 52, right = 14, top = 12, bottom = 34): Frame => ({
  width, height, left, right: width - right, top, bottom: height - bottom,
});

interface AxesProps {
  frame: Frame;
  x: Scale;
  y: Scale;
  xTitle: string;
  yTitle: string;
  xFormat: (v: number) => string;
  yFormat: (v: number) => string;
}
export function Axes({ frame: f, x, y, xTitle, yTitle, xFormat, yFormat }: AxesProps) {
  const across = x.ticks(Math.max(3, Math.floor((f.right - f.left) / 62)));
  const up = y.ticks(Math.max(3, Math.floor((f.bottom - f.top) / 34)));
  return (
    <g class="axes" aria-hidden="true">
      {across.map((v) => (
        <g key={`x${v}`}>
          <line class="grid" x1={x(v)} x2={x(v)} y1={f.top} y2={f.bottom} />
          <text x={x(v)} y={f.bottom + 14} text-anchor="middle">{xFormat(v)}</text>
        </g>
      ))}
      {up.map((v) => (
        <g key={`y${v}`}>
          <line class="grid" x1={f.left} x2={f.right} y1={y(v)} y2={y(v)} />
          <text x={f.left - 6} y={y(v) + 3.5} text-anchor="end">{yFormat(v)}</text>
        </g>
      ))}
      <path class="spine" d={`M${f.left} ${f.top}V${f.bottom}H${f.right}`} />
      <text class="title" x={f.right} y={f.bottom + 28} text-anchor="end">{xTitle}</text>
      <text class="title" x={f.left + 6} y={f.top + 9}>{yTitle}</text>
    </g>
  );
}

export function Chart({ frame: f, label, children, onMove, onLeave }: {
  frame: Frame;
  label: string;
  children: ComponentChildren;
  onMove?: (event: PointerEvent) => void;
  onLeave?: () => void;
}) {
  return (
    <svg class="chart" width={f.width} height={f.height} viewBox={`0 0 ${f.width} ${f.height}`} role="group" aria-label={label}
      onPointerMove={onMove} onPointerLeave={onLeave}>
      {children}
    </svg>
  );
}

export const path = (points: (readonly [number, number])[]) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Pushes labels apart so that none lies on another; keeps their order.
export function spread(places: number[], gap: number, low: number, high: number): number[] {
  const order = places.map((_, i) => i).sort((a, b) => (places[a] ?? 0) - (places[b] ?? 0));
  const out = [...places];
  let last = low - gap;
  for (const i of order) {
    out[i] = Math.max(out[i] ?? 0, last + gap);
    last = out[i] as number;
  }
  let next = high + gap;
  for (const i of [...order].reverse()) {
    out[i] = Math.min(out[i] ?? 0, next - gap);
    next = out[i] as number;
  }
  return out;
}
