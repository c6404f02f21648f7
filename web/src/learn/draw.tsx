// Drawings that several stops share. Data marks are solid, a guess is a dashed ring, and what a stop
// still hides is a hatched box with a question mark.
import type { ComponentChildren } from "preact";
import { Axes, Chart, frame, path } from "../axes";
import { linearScale, logDomain, logScale, type Scale } from "../scale";

export interface Bar {
  name: string;
  parts: { kind: string; value: number }[] | null; // null: not told yet
  text: string;
}
// Horizontal bars of stacked parts; kinds are classes: w, k, a (bytes), wall-memory and so on (walls), ink.
export function Bars({ bars, width, label, log = false }: { bars: Bar[]; width: number; label: string; log?: boolean }) {
  const left = Math.min(Math.max(...bars.map((bar) => bar.name.length)) * 7.4 + 12, width * 0.46), row = 30;
  const room = Math.max(1, width - left - 92); // for the bars; the text of a value stands right of them
  const sums = bars.map((bar) => (bar.parts ?? []).reduce((sum, part) => sum + part.value, 0));
  const most = Math.max(...sums, 1e-30);
  const least = Math.min(...sums.filter((s) => s > 0));
  const length = (value: number) =>
    log ? ((Math.log10(value / least) + 1) / (Math.log10(most / least) + 1)) * room : (value / most) * room;
  return (
    <svg class="chart" width={width} height={bars.length * row + 4} role="img" aria-label={`${label}: ${bars.map((b) => `${b.name} ${b.parts ? b.text : "not told yet"}`).join("; ")}`}>
      {bars.map((bar, i) => {
        let x = left;
        return (
          <g key={bar.name} transform={`translate(0 ${i * row + 4})`} class="lbar">
            <text x={left - 8} y={17} text-anchor="end">{bar.name}</text>
            {bar.parts === null && <><rect class="hidden" x={left} width={room} height={24} /><text x={left + 8} y={17}>?</text></>}
            {bar.parts?.map((part, j) => {
              const w = log ? length(sums[i] as number) * (part.value / ((sums[i] as number) || 1)) : length(part.value);
              const at = x;
              x += w;
              return <rect key={j} class={part.kind} x={at} width={Math.max(w, part.value > 0 ? 1 : 0)} height={24} />;
            })}
            {bar.parts && <text class="value" x={x + 6} y={17}>{bar.text}</text>}
          </g>
        );
      })}
    </svg>
  );
}

export interface Line {
  name: string;
  kind: string;
  points: (readonly [number, number])[];
}
// Lines over a logarithmic axis, the chosen place marked.
export function Curve({ lines, width, label, xTitle, yTitle, xFormat, yFormat, chosen, level, logY = false, linearX = false, height = 220 }: {
  lines: Line[]; width: number; label: string; xTitle: string; yTitle: string; xFormat: (v: number) => string; yFormat: (v: number) => string;
  chosen?: number; level?: number; logY?: boolean; linearX?: boolean; height?: number;
}) {
  const f = frame(width, height, 50, 16);
  const xs = lines.flatMap((l) => l.points.map(([x]) => x));
  const ys = [...lines.flatMap((l) => l.points.map(([, y]) => y)), ...(level === undefined ? [] : [level])];
  const x = (linearX ? linearScale : logScale)(Math.min(...xs), Math.max(...xs), f.left, f.right);
  const y: Scale = logY ? logScale(...logDomain(ys), f.bottom, f.top) : linearScale(0, Math.max(...ys) * 1.3, f.bottom, f.top);
  return (
    <Chart frame={f} label={label}>
      <Axes frame={f} x={x} y={y} xTitle={xTitle} yTitle={yTitle} xFormat={xFormat} yFormat={yFormat} />
      {level !== undefined && <line class="level-line" x1={f.left} x2={f.right} y1={y(level)} y2={y(level)} />}
      {chosen !== undefined && <line class="chosen-line" x1={x(chosen)} x2={x(chosen)} y1={f.top} y2={f.bottom} />}
      {lines.map((l) => {
        const at = l.points.find(([v]) => v === chosen);
        const last = l.points[l.points.length - 1];
        return (
          <g key={l.name} class={`lline ${l.kind}`}>
            <path d={path(l.points.map(([a, b]) => [x(a), y(b)] as const))} />
            {at && <circle cx={x(at[0])} cy={y(at[1])} r="5" />}
            {at && <text class="at" x={x(at[0])} y={y(at[1]) - 10} text-anchor={x(at[0]) > f.right - 40 ? "end" : x(at[0]) < f.left + 40 ? "start" : "middle"}>{yFormat(at[1])}</text>}
            {last && lines.length > 1 && <text x={f.right} y={y(last[1]) - 6} text-anchor="end">{l.name}</text>}
          </g>
        );
      })}
    </Chart>
  );
}

// Both numbers on one axis: the guess a dashed ring, the answer solid.
export function GuessScale({ guess, guessed, answer, answered, width }: { guess: number; guessed: string; answer: number; answered: string; width: number }) {
  const low = Math.min(guess, answer) / 2, high = Math.max(guess, answer) * 2;
  const x = logScale(low, high, 24, width - 24);
  const anchor = (at: number) => (at < 70 ? "start" : at > width - 70 ? "end" : "middle");
  return (
    <svg class="chart guess-scale" width={width} height={74} role="img" aria-label={`Your guess ${guessed}, the answer ${answered}`}>
      <line class="track" x1="12" x2={width - 12} y1="38" y2="38" />
      {x.ticks(4).map((v) => <line key={v} class="track" x1={x(v)} x2={x(v)} y1="34" y2="42" />)}
      <line class="between" x1={x(guess)} x2={x(answer)} y1="38" y2="38" />
      <circle class="answer" cx={x(answer)} cy="38" r="6" />
      <circle class="ring" cx={x(guess)} cy="38" r="10" />
      <text x={x(guess)} y="18" text-anchor={anchor(x(guess))}>you {guessed}</text>
      <text class="answer" x={x(answer)} y="66" text-anchor={anchor(x(answer))}>{answered}</text>
    </svg>
  );
}

// Small squares in rows: tokens, seats, bits, cards.
export function Boxes({ count, columns, size = 14, kind, x = 0, y = 0 }: { count: number; columns: number; size?: number; kind: (i: number) => string; x?: number; y?: number }) {
  return <>{Array.from({ length: count }, (_, i) => <rect key={i} class={kind(i)} x={x + (i % columns) * size} y={y + Math.floor(i / columns) * size} width={size - 3} height={size - 3} rx="2" />)}</>;
}

export function Sketch({ width, height, label, children }: { width: number; height: number; label: string; children: ComponentChildren }) {
  return <svg class="chart sketch" width={width} height={height} role="img" aria-label={label}>{children}</svg>;
}

// Text with a legend of byte kinds.
export const ByteKey = () => (
  <p class="note key"><i class="w" /> weights <i class="k" /> KV cache <i class="a" /> activations</p>
);
