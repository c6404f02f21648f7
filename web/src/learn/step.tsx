// Stops 4 to 6: one decode step, a prompt against an answer, and tiles in flight.
import { bytes, count, digits, percent, seconds } from "../format";
import type { PlacedOp, Prediction, Roofline, Sweep, Tiles } from "../types";
import { Bars, Boxes, ByteKey, Curve, Sketch } from "./draw";
import { Motion } from "./motion";
import { decodeOps } from "./roof";
import { stop, url } from "./stop";

const heaviest = (r: Roofline) => decodeOps(r).reduce((a, b) => (b.bytes > a.bytes ? b : a));
const share = (r: Roofline, op: PlacedOp) => op.bytes / decodeOps(r).reduce((sum, o) => sum + o.bytes, 0);
const kContext = "4096";

export const oneStep = stop<{ alone: Roofline; many: Roofline }>({
  title: "One step, byte by byte",
  claim: "A step is a sequence of operators, and most of its time goes to those that move most bytes.",
  text: "Follow one layer; the others repeat it. Long blocks are reads from memory, short flashes are arithmetic. Watch how long the matrix units rest.",
  control: { label: "Batch", start: "1", choices: [["1", "1"], ["32", "32"]] },
  ask: (at) => ({ alone: url("roofline", { ...at, batch: "1", context: kContext }), many: url("roofline", { ...at, batch: "32", context: kContext }) }),
  question: () => `Each sequence has ${kContext} tokens behind it. Which operator moves most bytes in a decode step, with one sequence and with 32?`,
  fields: ({ alone }) => {
    const options = decodeOps(alone).filter((op) => share(alone, op) > 0.001).map((op) => op.name);
    return [{ label: "at batch 1", options }, { label: "at batch 32", options }];
  },
  answer: ({ alone, many }) => [heaviest(alone).name, heaviest(many).name],
  after: ({ alone, many }) => {
    const [a, b] = [heaviest(alone), heaviest(many)];
    return a.name === b.name
      ? <>{a.name} moves {percent(share(alone, a))} of the bytes at batch 1 and still {percent(share(many, b))} at batch 32: this model's KV cache is small beside its weights.</>
      : <>At batch 1, {a.name} moves {percent(share(alone, a))} of the bytes. At batch 32 the weights are still read once, but 32 KV caches are read: {b.name} moves {percent(share(many, b))}.</>;
  },
  kills: "“Attention is the expensive part.” It is at large batch and long context; for one user the matrices of the MLP are.",
  lab: "context",
  open: (at, chosen) => ["roofline", { ...at, batch: chosen, context: kContext }],
  draw: ({ alone, many }, { width, chosen, shown }, at) => {
    const r = chosen === "32" ? many : alone;
    const ops = decodeOps(r).filter((op) => share(r, op) > 0.001);
    return (
      <>
        <p class="note">Bytes of a decode step by operator, batch {chosen}</p>
        <Bars width={width} label="Bytes by operator" bars={ops.map((op) => ({
          name: op.name,
          parts: shown ? [{ kind: "w", value: op.weight_bytes }, { kind: "k", value: op.kv_bytes }, { kind: "a", value: op.act_bytes }] : null,
          text: `${bytes(op.bytes)} · ${percent(share(r, op))}`,
        }))} />
        <ByteKey />
        {shown && <Motion name="step" config={{ ...at, batch: chosen, context: kContext }} />}
      </>
    );
  },
});

const kPrompts = ["1", "32", "128", "512", "1024", "4096"];
type PromptPoint = Sweep["points"][number] & { prompt: string };
const atPrompt = (s: Sweep, prompt: string) => (s.points as PromptPoint[]).find((p) => p.prompt === prompt) as PromptPoint;
const steps = (s: Sweep, prompt: string) => atPrompt(s, prompt).ttft_s / atPrompt(s, prompt).tpot_s;

export const readAndWrite = stop<{ s: Sweep; long: Prediction }>({
  title: "Reading is cheap, writing is expensive",
  claim: "The tokens of a prompt share each weight read; the tokens of an answer cannot.",
  text: "The tokens of a prompt are known, so one pass over the weights serves all of them. Each token of an answer needs the one before it, so each needs its own pass. Same model, opposite walls.",
  control: { label: "Prompt", start: "128", choices: kPrompts.map((v) => [v, v] as const) },
  ask: (at) => ({ s: url("sweep", { ...at, batch: "1", context: "1024", prompt: kPrompts.join() }), long: url("predict", { ...at, batch: "1", context: "1024", prompt: "1024" }) }),
  question: () => "Reading a prompt of 128 tokens takes as long as writing how many tokens?",
  fields: () => [{ label: "tokens written", unit: "tokens" }],
  answer: ({ s }) => [steps(s, "128")],
  after: ({ s, long }) => <>128 tokens are read in {seconds(atPrompt(s, "128").ttft_s)}; one token is written in {seconds(atPrompt(s, "128").tpot_s)}. A prompt of 1024 tokens takes as long as writing {digits(steps(s, "1024"))}, and its wall is {long.prefill.wall}{long.prefill.wall === "compute" && ": from here on each further token costs its FLOPs"}.</>,
  kills: "“An input token costs what an output token costs.” Price lists know better.",
  lab: "prefill-decode",
  open: (at, chosen) => ["time", { ...at, batch: "1", context: String(Math.max(1024, Number(chosen))), prompt: chosen }],
  draw: ({ s }, { width, chosen, shown }) => (
    <>
      <Strip tokens={Number(chosen)} width={width} />
      {shown && <Curve width={width} label="Prefill in decode steps over the prompt" lines={[{ name: "prefill", kind: "ink", points: kPrompts.map((p) => [Number(p), steps(s, p)] as const) }]}
        xTitle="prompt tokens" yTitle="in decode steps" xFormat={count} yFormat={digits} chosen={Number(chosen)} level={1} logY height={190} />}
      {shown && <p class="note">{chosen} tokens: prefill {seconds(atPrompt(s, chosen).ttft_s)}, {digits(steps(s, chosen))} decode steps.</p>}
    </>
  ),
});

// One weight strip above the rows that it serves.
function Strip({ tokens, width }: { tokens: number; width: number }) {
  const columns = Math.floor((width - 4) / 12), drawn = Math.min(tokens, columns * 4), foot = 54 + 12 * Math.ceil(drawn / columns);
  return (
    <Sketch width={width} height={foot + 6} label={`One pass over the weights serves ${tokens} prompt tokens`}>
      <rect class="w" x="0" y="20" width={width - 4} height="14" /><text x="0" y="13">one pass over the weights</text>
      <Boxes count={drawn} columns={columns} size={12} y={40} kind={() => "token"} />
      <text x="0" y={foot}>serves {count(tokens)} {tokens === 1 ? "token" : "tokens"}{drawn < tokens ? ` (${drawn} drawn)` : ""}</text>
    </Sketch>
  );
}

// The first number of buffers with which a wall, not the wait, decides.
const kBusy = 0.95;
const enough = (t: Tiles) => t.ladder.find((row) => Math.max(row.memory_busy, row.compute_busy) >= kBusy)?.stages;

export const tilesInFlight = stop<{ t: Tiles }>({
  title: "Tiles in flight",
  claim: "Several buffers hide the latency of memory.",
  text: "A tile takes time to arrive, however high the bandwidth. With one buffer the matrix unit waits for each arrival. With more, the next tile travels while this one is multiplied.",
  control: { label: "Stages", start: "1", choices: ["1", "2", "3", "4", "6"].map((v) => [v, v] as const) },
  ask: (at) => ({ t: url("tiles", { machine: at.machine }) }),
  question: ({ t }, at) => `One unit of ${at.machine} multiplies ${t.tile.join(" × ")} tiles. How few buffers (stages) keep memory or the matrix unit busy ${percent(kBusy)} of the time?`,
  fields: () => [{ label: "stages", unit: "stages" }],
  answer: ({ t }) => {
    const stages = enough(t);
    return stages ? [stages] : "no number of stages on the ladder does";
  },
  after: ({ t }) => <>One stage keeps memory {percent(t.ladder[0]?.memory_busy)} busy: the bus rests while the unit works, and the unit rests while the tile travels. {t.needed_bytes > 0 && <>To keep {t.memory} busy, {bytes(t.needed_bytes)} must be in flight over all {count(t.units)} units (bandwidth times latency).</>}</>,
  kills: "“Only faster memory cures latency.” Bytes in flight do.",
  lab: "stages",
  open: (at, chosen) => ["tiles", { ...at, stages: chosen }],
  draw: ({ t }, { width, chosen, shown }, at) => (
    <>
      <Sketch width={width} height={74} label={`${chosen} buffers between memory and the matrix unit`}>
        <rect class="edge" x="1" y="12" width="70" height="40" /><text x="36" y="37" text-anchor="middle">{t.memory}</text>
        <Boxes count={Number(chosen)} columns={8} size={26} x={92} y={19} kind={() => "slot"} />
        <text x="92" y="66">{chosen} {chosen === "1" ? "buffer" : "buffers"} on chip</text>
        <rect class="edge" x={width - 92} y="12" width="90" height="40" /><text x={width - 47} y="37" text-anchor="middle">matrix unit</text>
      </Sketch>
      {shown && <Bars width={width} label="Share of time memory is busy" bars={t.ladder.filter((l) => l.fits).map((l) => ({ name: `${l.stages} ${l.stages === 1 ? "stage" : "stages"}`, parts: [{ kind: "wall-memory", value: l.memory_busy }], text: `memory ${percent(l.memory_busy)}` }))} />}
      {shown && <Motion name="tiles" config={{ machine: at.machine, stages: chosen }} />}
    </>
  ),
});
