// One decode step, operator by operator. Options: those of a prediction (batch is what moves).
import { Player } from "../player";
import { bytes, flops, percent, seconds } from "../format";
import type { Roofline } from "../types";
import type { Timeline } from "../timeline";
import { address, useAnswers, type MotionProps } from "./data";
import { stepFrame, stepPlan, type StepPlan } from "./step-frame";
import { useMemo } from "preact/hooks";

export default function StepMotion({ config }: MotionProps) {
  const { data, error } = useAnswers<[Roofline, { layers: number }]>([
    address("/api/roofline", config, []),
    address("/api/models", { name: config["model"] ?? "llama-3-8b" }, ["name"], {}, []),
  ]);
  const plan = useMemo(() => {
    if (!data) return null;
    const { ops, decode } = data[0].prediction;
    return stepPlan(ops.filter((op) => op.phase === "decode"), data[1].layers, decode.expected_s);
  }, [data]);
  const timeline = useMemo(() => plan && stepTimeline(plan), [plan]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!plan || !timeline) return <p class="loading">Loading…</p>;
  return <Player name="step" label="One decode step" timeline={timeline} draw={(now, width) => <Drawing plan={plan} now={now} width={width} />} />;
}

// A share near the whole keeps a digit: 99.6 % is not 100 %.
const nearly = (share: number) => (share > 0.99 && share < 0.9995 ? `${(share * 100).toFixed(1)} %` : percent(share));

function stepTimeline(plan: StepPlan): Timeline {
  const first = plan.blocks.find((b) => b.layer === 1)?.from ?? 0;
  const reads = (b: StepPlan["blocks"][number]) => `reads ${bytes(b.bytes)}, ${seconds(b.to - b.from)}, unit busy ${percent(b.busy / (b.to - b.from))}`;
  const events = plan.blocks.map((b) => ({ at: b.from, text: b.layer > 0 ? `Layer ${b.layer + 1} ${reads(b)}` : b.bytes > 0 ? `${b.name} ${reads(b)}` : `${b.name}, ${seconds(b.to - b.from)}` }));
  return {
    scenes: first > 0 ? [{ seconds: first, screen: 8 }, { seconds: plan.seconds - first, screen: 4 }] : [{ seconds: plan.seconds, screen: 8 }],
    events: [...events, { at: plan.seconds, text: `The token is there after ${seconds(plan.seconds)}: ${bytes(plan.bytes)} read, the matrix unit idle ${nearly(1 - plan.busy / plan.seconds)} of the time` }],
  };
}

const kParts = [["w", "weights"], ["k", "KV cache"], ["a", "activations"]] as const;

function Drawing({ plan, now, width }: { plan: StepPlan; now: number; width: number }) {
  const f = stepFrame(plan, now);
  const first = plan.blocks.find((b) => b.layer === 1)?.from ?? plan.seconds;
  const zoomed = now < first;
  const end = zoomed ? first : plan.seconds;
  const left = width < 480 ? 0 : 92;
  const x = (t: number) => left + (Math.min(t, end) / end) * (width - left);
  const shown = plan.blocks.filter((b) => b.from < end);
  const memory = 76, unit = 128, grid = width < 480 ? 206 : 196;
  // A square is 1/2000 of the bytes of the step. Columns fill from the left.
  const rows = Math.ceil(2000 / Math.floor(width / Math.max(4.6, Math.min(8, width / 100))));
  const side = width / Math.ceil(2000 / rows);
  const place = (share: number) => Math.min(2000, Math.round(share * 2000));
  const column = (dot: number) => Math.floor(dot / rows) * side;
  const done = place(f.bytes / plan.bytes);
  const height = grid + rows * side + 4;
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={f.text}>
      <Counter x={0} label="read from memory" value={bytes(f.bytes)} total={f.bytes} name="bytes" />
      <Counter x={width * 0.36} label="arithmetic" value={flops(f.flops)} total={f.flops} name="flops" />
      <Counter x={width * 0.7} label="matrix unit idle" value={nearly(f.idle)} total={f.idle} name="idle" />
      <text class="dim" x={left} y={memory - 18}>{zoomed ? "the first layer" : `all ${plan.layers} layers and the head`}{left === 0 && ": memory, and the matrix unit below"}</text>
      {left > 0 && <><text x={0} y={memory + 16}>memory</text><text x={0} y={unit + 14}>matrix unit</text></>}
      <rect class="track" x={left} y={memory - 8} width={width - left} height={40} />
      <rect class="track" x={left} y={unit} width={width - left} height={20} />
      {shown.map((b, i) => {
        const [a, z] = [x(b.from), x(Math.min(b.to, now))];
        const whole = x(b.to) - a;
        let y = memory - 8;
        const parts = b.bytes > 0 ? ([["w", b.w], ["k", b.k], ["a", b.a]] as const) : [];
        return (
          <g key={i}>
            <rect class="ghost" x={a} y={memory - 8} width={Math.max(0.5, whole)} height={40} stroke-opacity={0.4} />
            {now > b.from && parts.map(([kind, part]) => {
              const h = (40 * part) / b.bytes;
              y += h;
              return <rect key={kind} class={kind} x={a} y={y - h} width={Math.max(0.3, z - a - (whole > 6 ? 1 : 0))} height={h} />;
            })}
            {now > b.from && <rect class="compute" x={a} y={unit} width={Math.max(0.6, Math.min(z - a, whole * (b.busy / (b.to - b.from || 1))))} height={20} />}
            {zoomed && whole > b.name.length * 6.4 + 6 && <text class={now > b.from ? "on" : "dim"} x={a + 4} y={memory + 17}>{b.name}</text>}
          </g>
        );
      })}
      <line class="playhead" x1={x(now)} x2={x(now)} y1={memory - 12} y2={unit + 24} />
      <text class="dim" x={0} y={grid - 9}>a square is {bytes(plan.bytes / 2000)}, in the order it is read</text>
      <clipPath id="step-done"><rect x={0} y={grid} width={column(done)} height={rows * side} /><rect x={column(done)} y={grid} width={side} height={(done % rows) * side} /></clipPath>
      {[0.16, 1].map((opacity) => (
        <g key={opacity} fill-opacity={opacity} clip-path={opacity === 1 ? "url(#step-done)" : undefined}>
          <Squares plan={plan} rows={rows} side={side} y={grid} />
        </g>
      ))}
      <g transform={`translate(${width < 480 ? 0 : width - 250} ${width < 480 ? unit + 37 : grid - 10})`}>
        {kParts.map(([kind, label], i) => <g key={kind}><rect class={kind} x={i * 84} y={-9} width={10} height={10} /><text class="dim" x={i * 84 + 14}>{label}</text></g>)}
      </g>
    </svg>
  );
}

function Counter({ x, label, value, total, name }: { x: number; label: string; value: string; total: number; name: string }) {
  return <g data-counter={name} data-value={total}><text class="dim" x={x} y={12}>{label}</text><text class="big" x={x} y={32}>{value}</text></g>;
}

// Runs of one colour within a column are one rectangle.
function Squares({ plan, rows, side, y }: { plan: StepPlan; rows: number; side: number; y: number }) {
  return useMemo(() => {
    const path: Record<string, string> = { w: "", k: "", a: "" };
    const cell = (side - 1).toFixed(2);
    let dot = 0, passed = 0;
    for (const b of plan.blocks) {
      for (const [kind, part] of [["w", b.w], ["k", b.k], ["a", b.a]] as const) {
        passed += part;
        const end = Math.round((passed / plan.bytes) * 2000);
        for (; dot < end; ++dot) path[kind] += `M${(Math.floor(dot / rows) * side).toFixed(2)} ${(y + (dot % rows) * side).toFixed(2)}h${cell}v${cell}h-${cell}z`;
      }
    }
    return <>{Object.entries(path).map(([kind, d]) => <path key={kind} class={kind} d={d} />)}</>;
  }, [plan, rows, side, y]);
}
