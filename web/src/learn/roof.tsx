// Stops 1 to 3: what a token waits for, where bytes live, and the roof.
import { Axes, Chart, frame, path } from "../axes";
import { axis, bytes, count, digits, flopRate, memorySize, percent, seconds } from "../format";
import { logScale } from "../scale";
import type { Level, ModelDetails, Op, Pyramid, Roofline } from "../types";
import { WallMark } from "../walls";
import { Bars, Sketch } from "./draw";
import { stop, url } from "./stop";

export const decodeOps = (r: Roofline) => r.prediction.ops.filter((op) => op.phase === "decode");
export const total = <O extends Op>(ops: O[], of: (op: O) => number | null) => ops.reduce((sum, op) => sum + (of(op) ?? 0), 0);

const memoryTime = (r: Roofline) => total(decodeOps(r), (op) => op.at_bandwidth_s);
const computeTime = (r: Roofline) => total(decodeOps(r), (op) => op.at_peak_s);

export const oneToken = stop<{ r: Roofline }>({
  title: "One token, how fast?",
  claim: "A token waits for weights, not for multiplication.",
  text: "To write one token, the processor multiplies by every weight once. The multiplications take microseconds; fetching the weights takes milliseconds. How far apart are the two?",
  control: { label: "Double", start: "none", choices: [["none", "nothing"], ["bandwidth", "bandwidth"], ["peak", "FLOP/s"]] },
  ask: (at) => ({ r: url("roofline", { ...at, batch: "1", context: "128" }) }),
  question: () => "At batch 1, how many times longer does a token wait for memory than for arithmetic?",
  fields: () => [{ label: "memory time over arithmetic time", unit: "×" }],
  answer: ({ r }, at) => {
    const compute = computeTime(r);
    return compute > 0 ? [memoryTime(r) / compute] : `the matrix peak of ${at.machine} is not known`;
  },
  after: ({ r }) => <>Reading takes {seconds(memoryTime(r))}, multiplying {seconds(computeTime(r))}. Double the FLOP/s and the token still takes {seconds(memoryTime(r))} at best; double the bandwidth and it takes {seconds(memoryTime(r) / 2)}.</>,
  kills: "“More TFLOP/s make chat faster.” At batch 1 only bandwidth does.",
  lab: "decode",
  open: (at) => ["time", { ...at, batch: "1", context: "128" }],
  draw: ({ r }, { width, chosen, shown }) => {
    const memory = memoryTime(r) / (chosen === "bandwidth" ? 2 : 1), compute = computeTime(r) / (chosen === "peak" ? 2 : 1);
    const bars = [
      { name: "memory", parts: [{ kind: "wall-memory", value: memory }], text: seconds(memory) },
      { name: "arithmetic", parts: shown ? [{ kind: "wall-compute", value: compute }] : null, text: seconds(compute) },
    ];
    return (
      <>
        <p class="note">Time of one token at full rate, linear</p>
        <Bars bars={bars} width={width} label="Time of one token" />
        {shown && <><p class="note">The same, logarithmic: only so the short bar can be read</p><Bars bars={bars} width={width} label="Time of one token, logarithmic" log /></>}
        {shown && <p class="note">Floor of a token: {seconds(Math.max(memory, compute))}</p>}
      </>
    );
  },
});

const near = (levels: Level[]) => levels.filter((l) => l.scope === "unit" || l.scope === "device");
const whole = (l: Level) => (l.capacity ? l.capacity * (l.instances ?? 1) : null);
// The largest on-chip level, as Machine::cache() has it: the last before device memory.
const lastCache = (p: Pyramid) => near(p.machine.levels).slice(0, -1).filter((l) => l.scope === "device").pop() ?? near(p.machine.levels).slice(0, -1).pop();

export const whereBytesLive = stop<{ p: Pyramid; m: ModelDetails; poured: ModelDetails }>({
  title: "Where bytes live",
  claim: "Fast memory is too small for a model, so the weights stream in at every step.",
  text: "Memory near the arithmetic is fast and small; memory far away is slow and large. No level on the chip can hold the model. So every step begins at the far end.",
  control: { label: "Pour in", start: "llama-3-8b", choices: [["smollm2-135m", "SmolLM2 135M"], ["llama-3.2-1b", "Llama 3.2 1B"], ["llama-3-8b", "Llama 3 8B"], ["llama-3-70b", "Llama 3 70B"]] },
  ask: (at, chosen) => ({ p: url("pyramid", { ...at }), m: url("models", { name: at.model }), poured: url("models", { name: chosen }) }),
  question: ({ p, m }, at) => `${m.title} has ${bytes(m.weight_bytes)} of weights. Which share of them can the last cache (${lastCache(p)?.name ?? "?"}) of ${at.machine} hold?`,
  fields: () => [{ label: "share of the weights", unit: "%" }],
  answer: ({ p, m }, at) => {
    const level = lastCache(p), size = level && whole(level);
    return size ? [(size / m.weight_bytes) * 100] : `the cache size of ${at.machine} is not known`;
  },
  after: ({ p, m }) => {
    const level = lastCache(p);
    return <>{level?.name} holds {memorySize(level && whole(level))} of {bytes(m.weight_bytes)}. And a step reads the weights in the same order each time: whatever the cache kept is evicted before it is needed again.</>;
  },
  kills: "“The cache keeps the hot weights.” All weights of a dense model are equally hot, and all are read in every step.",
  lab: "memory",
  open: (at) => ["pyramid", { ...at }],
  draw: ({ p, poured }, { width, shown }) => {
    const levels = near(p.machine.levels).filter((l) => l.read_bandwidth);
    const row = 48, most = Math.max(poured.weight_bytes, ...levels.map((l) => whole(l) ?? 0)), least = 1e5;
    const wide = (v: number) => (Math.max(0.02, Math.log10(v / least) / Math.log10(most / least))) * (width - 20);
    return (
      <svg class="chart" width={width} height={(levels.length + 1) * row - 14} role="img" aria-label={levels.map((l) => `${l.name} ${shown ? memorySize(whole(l)) : ""}`).join(", ")}>
        {levels.map((l, i) => {
          const size = whole(l), w = size && shown ? wide(size) : (width - 20) * (0.3 + (0.6 * i) / levels.length), before = levels[i - 1]?.read_bandwidth;
          return (
            <g key={l.name} transform={`translate(0 ${i * row})`} class="lbar">
              <rect class={shown ? "stone" : "hidden"} x={(width - w) / 2} y={2} width={w} height={28} />
              <text x={width / 2} y={20} text-anchor="middle">{l.name}{shown ? ` · ${memorySize(size)}` : ""}</text>
              {before && <text class="value" x={width - 2} y={-4} text-anchor="end">÷ {digits(before / (l.read_bandwidth as number))} bandwidth</text>}
            </g>
          );
        })}
        <g transform={`translate(0 ${levels.length * row})`} class="lbar">
          <rect class="w" x={(width - (shown ? wide(poured.weight_bytes) : width - 20)) / 2} y={2} width={shown ? wide(poured.weight_bytes) : width - 20} height={28} />
          <text class="on" x={width / 2} y={20} text-anchor="middle">weights of {poured.title} · {bytes(poured.weight_bytes)}</text>
        </g>
      </svg>
    );
  },
});

interface Product {
  m: number; k: number; n: number; dtype: string; flops: number; bytes: number; intensity: number; peak: number; bandwidth: number;
  ridge: number; wall: "memory" | "compute"; share_of_peak: number; rows_at_ridge: number | null;
}
const rows = (m: number) => `${count(m)} ${m === 1 ? "row" : "rows"}`;
const kSide = { op: "matmul", n: "4096", k: "4096" };

export const theRoof = stop<{ one: Product; moved: Product }>({
  title: "FLOPs per byte, and the roof",
  claim: "How often each byte is used decides which ceiling binds.",
  text: "Divide the arithmetic of an operator by the bytes it moves: its arithmetic intensity. If the quotient is small it waits for memory, if it is large for arithmetic. The intensity at which both take equally long is the ridge.",
  control: { label: "Rows (tokens)", start: "1", choices: ["1", "8", "64", "256", "1024"].map((v) => [v, v] as const) },
  ask: (at, chosen) => ({ one: url("work", { ...kSide, m: "1", machine: at.machine }), moved: url("work", { ...kSide, m: chosen, machine: at.machine }) }),
  question: ({ one }, at) => `A matrix of 4096 × 4096 weights in ${one.dtype} multiplies some rows of activations. The ridge of ${at.machine} is ${digits(one.ridge)} FLOP/byte. How many rows until the product reaches it?`,
  fields: () => [{ label: "rows", unit: "rows" }],
  answer: ({ one }) => (one.rows_at_ridge ? [one.rows_at_ridge] : "no number of rows reaches this ridge"),
  after: ({ one }) => <>Each row uses every weight once, so the intensity is close to the number of rows; the activations' own bytes explain the rest. With one row, {percent(one.share_of_peak)} of the peak is all that the roof allows.</>,
  kills: "“100 % utilised means that the arithmetic is busy.” A kernel that waits for memory counts as busy too.",
  lab: "roofline",
  open: (at) => ["roofline", { ...at }],
  draw: ({ one, moved }, { width, shown }) => {
    const f = frame(width, 230, 54, 16);
    const x = logScale(0.5, Math.max(4096, one.ridge * 4), f.left, f.right);
    const y = logScale(one.bandwidth * 0.5, one.peak * 2.2, f.bottom, f.top);
    const at = (i: number) => Math.min(one.peak, i * one.bandwidth);
    return (
      <>
        <Chart frame={f} label={`The roof of ${one.dtype}: ridge at ${digits(one.ridge)} FLOP per byte`}>
          <Axes frame={f} x={x} y={y} xTitle="FLOP per byte" yTitle="FLOP/s" xFormat={axis} yFormat={axis} />
          <path class="roof" d={path([[x(0.5), y(at(0.5))], [x(one.ridge), y(one.peak)], [f.right, y(one.peak)]])} />
          <line class="chosen-line" x1={x(one.ridge)} x2={x(one.ridge)} y1={y(one.peak)} y2={f.bottom} />
          <text x={x(one.ridge) - 5} y={f.bottom - 6} text-anchor="end">ridge</text>
          {shown && (
            <g class={`wall-${moved.wall}`} transform={`translate(${x(moved.intensity)} ${y(at(moved.intensity))})`}>
              <WallMark wall={moved.wall} r={7} />
              <text x={x(moved.intensity) > f.right - 90 ? -12 : 12} y={18} text-anchor={x(moved.intensity) > f.right - 90 ? "end" : "start"}>{rows(moved.m)}: {flopRate(at(moved.intensity))}</text>
            </g>
          )}
        </Chart>
        <Reuse rows={moved.m} width={width} />
        {shown && <p class="note">{rows(moved.m)}: {digits(moved.intensity)} FLOP/byte, {moved.wall}-bound, at most {percent(moved.share_of_peak)} of the peak.</p>}
      </>
    );
  },
});

// The weight matrix, darker the more often each weight is used.
function Reuse({ rows, width }: { rows: number; width: number }) {
  const dark = 0.12 + (0.88 * Math.log2(rows + 1)) / Math.log2(1025);
  return (
    <Sketch width={width} height={46} label={`Each weight is used ${rows} times`}>
      <rect class="w" x="0" y="2" width="42" height="42" fill-opacity={dark} /><rect class="edge" x="0" y="2" width="42" height="42" />
      <text x="54" y="28">each weight read once, used {count(rows)} {rows === 1 ? "time" : "times"}</text>
    </Sketch>
  );
}

