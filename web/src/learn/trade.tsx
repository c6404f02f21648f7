// Stops 11 to 13: fewer bits, what the roof cannot see, and full seats.
import { bytes, count, percent, seconds, times } from "../format";
import type { PlacedOp, Prediction, Roofline, Sweep, Wall } from "../types";
import { kWalls, wallColour } from "../walls";
import { Bars, Boxes, ByteKey, Sketch } from "./draw";
import { Motion } from "./motion";
import { decodeOps, total } from "./roof";
import { stop, url } from "./stop";

const kFormats = ["bf16", "fp8", "int4"];
const inFormat = (s: Sweep, weights: string) => s.points.find((p) => p.weights === weights) as Sweep["points"][number];
const gain = (s: Sweep, weights: string) => inFormat(s, "bf16").tpot_s / inFormat(s, weights).tpot_s;

export const fewerBits = stop<{ s: Sweep; r: Roofline }>({
  title: "Fewer bits",
  claim: "Narrow weights save bytes; they save arithmetic only where the matrix units multiply in that format.",
  text: "Weights in four bits are about a quarter of the traffic; their scales, the KV cache and what stays in sixteen bits remain. Decode gains from fewer bytes. A prompt is bound by arithmetic, and int4 weights are unpacked to sixteen bits before they are multiplied.",
  control: { label: "Weights", start: "bf16", choices: kFormats.map((v) => [v, v] as const) },
  ask: (at, chosen) => ({ s: url("sweep", { ...at, batch: "1", context: "2048", weights: kFormats.join() }), r: url("roofline", { ...at, batch: "1", context: "2048", weights: chosen }) }),
  question: () => "Weights go from 16 bits to int4. How many times faster does decode become, at batch 1 and context 2048?",
  fields: () => [{ label: "decode speed-up", unit: "×" }],
  answer: ({ s }) => [gain(s, "int4")],
  after: ({ s }) => <>The roof allows {times(inFormat(s, "int4").roof_tokens_per_s / inFormat(s, "bf16").roof_tokens_per_s)}; {times(gain(s, "int4"))} is expected, because what is not a read of weights stays (caches, kernel launches, the host), and kernels that unpack four bits reach less of the bandwidth. The prompt becomes {times(inFormat(s, "bf16").ttft_s / inFormat(s, "int4").ttft_s)} as fast with int4 and {times(inFormat(s, "bf16").ttft_s / inFormat(s, "fp8").ttft_s)} with fp8.</>,
  kills: "“A quarter of the bits is four times the speed.”",
  lab: "weights-bits",
  open: (at, chosen) => ["time", { ...at, batch: "1", context: "2048", weights: chosen }],
  draw: ({ s, r }, { width, chosen, shown }) => {
    const ops = decodeOps(r), part = (of: (op: PlacedOp) => number) => total(ops, of);
    const bits = chosen === "bf16" ? 16 : chosen === "fp8" ? 8 : 4;
    return (
      <>
        <Sketch width={width} height={44} label={`${bits} bits a weight`}>
          <Boxes count={16} columns={16} size={16} kind={(i) => (i < bits ? "w" : "free")} /><text x="0" y="38">{chosen}: {bits} bits a weight{chosen === "int4" ? ", and a shared scale" : ""}</text>
        </Sketch>
        {shown && <Bars width={width} label="Bytes of a decode step" bars={[{ name: chosen, parts: [{ kind: "w", value: part((op) => op.weight_bytes) }, { kind: "k", value: part((op) => op.kv_bytes) }, { kind: "a", value: part((op) => op.act_bytes) }], text: bytes(part((op) => op.bytes)) }]} />}
        {shown && <ByteKey />}
        {shown && <Bars width={width} label="Time per token" bars={kFormats.map((f) => ({ name: `${f} token`, parts: [{ kind: f === chosen ? "ink" : "pale", value: inFormat(s, f).tpot_s }], text: seconds(inFormat(s, f).tpot_s) }))} />}
        {shown && <Bars width={width} label="Time of a prompt" bars={kFormats.map((f) => ({ name: `${f} prompt`, parts: [{ kind: f === chosen ? "ink" : "pale", value: inFormat(s, f).ttft_s }], text: seconds(inFormat(s, f).ttft_s) }))} />}
      </>
    );
  },
});

const kCards = ["1", "2", "4", "8"];
type CardPoint = Sweep["points"][number] & { tp: string };
const onCards = (s: Sweep, tp: string) => (s.points as CardPoint[]).find((p) => p.tp === tp) as CardPoint;
const scaled = (s: Sweep, tp: string) => onCards(s, "1").tpot_s / onCards(s, tp).tpot_s;
const small = (off: object) => url("predict", { model: "llama-3.2-1b", machine: "h200", batch: "1", context: "512", ...off });

export const unseenByTheRoof = stop<{ s: Sweep; r: Roofline; fast: Prediction; slow: Prediction }>({
  title: "What the roof cannot see",
  claim: "Time also passes between kernels and between cards.",
  text: "A perfect kernel can sit in a slow program. Each kernel costs time to start, and tensor-parallel cards exchange their partial sums twice a layer. In a small step the pauses are the step.",
  control: { label: "Cards", start: "1", choices: kCards.map((v) => [v, v] as const) },
  place: () => ({ model: "llama-3-8b", machine: "8xh200" }),
  ask: (at, chosen) => ({
    s: url("sweep", { ...at, batch: "1", tp: kCards.join() }), r: url("roofline", { ...at, batch: "1", tp: chosen }),
    fast: small({}), slow: small({ "no-graphs": "true", "no-fusion": "true" }),
  }),
  question: () => "Llama 3 8B at batch 1 moves from one H200 to eight (tensor parallel). How many times faster is a token?",
  fields: () => [{ label: "speed-up of eight cards", unit: "×" }],
  answer: ({ s }) => [scaled(s, "8")],
  after: ({ s, fast, slow }) => <>Eight cards read an eighth of the weights each, and still a token takes {seconds(onCards(s, "8").tpot_s)} instead of {seconds(onCards(s, "1").tpot_s)}: the wall is now {onCards(s, "8").wall}. On one card the same kind of loss: Llama 3.2 1B without CUDA graphs and fusion takes {times(slow.tpot_s / fast.tpot_s)} the time, with the same bytes of weights.</>,
  kills: "“Eight cards are eight times as fast.”",
  lab: "launch",
  open: (at, chosen) => ["time", { ...at, batch: "1", tp: chosen }],
  draw: ({ s, r }, { width, chosen, shown }) => {
    const layer = decodeOps(r).filter((op) => op.count > 1), whole = total(layer, (op) => op.expected_s / op.count);
    let x = 0;
    return (
      <>
        <Sketch width={width} height={52} label={`${chosen} cards`}><Boxes count={Number(chosen)} columns={8} size={Math.min(44, width / 8)} kind={() => "token"} /></Sketch>
        {shown && (
          <>
            <p class="note">One layer on {chosen} {chosen === "1" ? "card" : "cards"}, {seconds(whole)}; each operator in the colour of its wall</p>
            <svg class="chart" width={width} height={52} role="img" aria-label={layer.map((op) => `${op.name} ${seconds(op.expected_s / op.count)} ${op.wall}`).join("; ")}>
              {layer.map((op) => {
                const w = (op.expected_s / op.count / whole) * (width - 2), at = x;
                x += w;
                return <g key={op.name}><rect x={at} y="2" width={Math.max(1, w - 1)} height="28" fill={wallColour(op.wall as Wall)} />{w > op.name.length * 7 && <text x={at + 2} y="46">{op.name}</text>}</g>;
              })}
            </svg>
            <p class="note key">{[...new Set(layer.map((op) => op.wall))].map((wall) => <span key={wall}><i class={`wall-${wall}`} /> {kWalls[wall].label} </span>)}</p>
            <Bars width={width} label="Speed-up over one card" bars={kCards.map((c) => ({ name: `${c} ${c === "1" ? "card" : "cards"}`, parts: [{ kind: c === chosen ? "ink" : "pale", value: scaled(s, c) }], text: times(scaled(s, c)) }))} />
          </>
        )}
      </>
    );
  },
});

const kSeats = "32", kPrompt = "4096", kChunk = "512";
const served = (at: object, more: object) => url("predict", { ...at, batch: kSeats, context: kPrompt, prompt: kPrompt, ...more });

export const fullSeats = stop<{ refilled: Prediction; fixed: Prediction; chunked: Prediction }>({
  title: "Keep the seats full",
  claim: "A batch is worth its occupied seats.",
  text: "If a batch starts and ends together, everyone waits for the longest answer. Continuous batching refills each seat as it empties. Long prompts are fed in chunks, so that nobody's answer stalls behind them.",
  control: { label: "Policy", start: "refill", choices: [["refill", "refill each seat"], ["together", "all leave together"]] },
  ask: (at) => ({ refilled: served(at, {}), fixed: served(at, { "no-continuous": "true" }), chunked: served(at, { chunk: kChunk }) }),
  question: () => `${kSeats} requests start together, their lengths are drawn from an exponential distribution, and no seat is refilled. Which share of the seats does useful work?`,
  fields: () => [{ label: "useful share of the seats", unit: "%" }],
  answer: ({ refilled, fixed }) => [(fixed.decode.tokens_per_s / refilled.decode.tokens_per_s) * 100],
  after: ({ refilled, fixed, chunked }) => <>{count(fixed.decode.tokens_per_s)} instead of {count(refilled.decode.tokens_per_s)} tok/s, from the same steps: the longest of {kSeats} answers is that much longer than the mean one. And a prompt of {kPrompt} tokens stops everybody for {seconds(refilled.prefill.expected_s + refilled.decode.expected_s)}; in chunks of {kChunk} the longest pause is {seconds(chunked.mixed?.expected_s)}.</>,
  kills: "“Batch size is throughput.” Occupied seats are.",
  lab: "continuous-batching",
  open: (at, chosen) => ["batch", { ...at, batch: kSeats, context: kPrompt, prompt: kPrompt, ...(chosen === "together" ? { "no-continuous": "true" } : {}) }],
  draw: ({ refilled, fixed }, { width, chosen, shown }, at) => {
    const useful = fixed.decode.tokens_per_s / refilled.decode.tokens_per_s;
    return (
      <>
        <Sketch width={width} height={58} label={`${kSeats} seats`}>
          <Boxes count={32} columns={16} size={Math.min(20, width / 16)} kind={(i) => (!shown || chosen === "refill" || i < useful * 32 ? "token" : "free")} />
          <text x="0" y="54">{!shown ? `${kSeats} seats at the start` : chosen === "together" ? `on average ${percent(useful)} of the seats generate` : "every seat generates"}</text>
        </Sketch>
        {shown && <Bars width={width} label="Tokens per second" bars={[["refilled", refilled], ["all leave together", fixed]].map(([name, p]) => ({ name: name as string, parts: [{ kind: (p === fixed) === (chosen === "together") ? "ink" : "pale", value: (p as Prediction).decode.tokens_per_s }], text: `${count((p as Prediction).decode.tokens_per_s)} tok/s` }))} />}
        {shown && <Motion name="batching" config={{ ...at, chunk: kChunk }} />}
      </>
    );
  },
});
