// Stops 7 to 10: sharing weights, keeping scores on chip, the KV cache, and its pages.
import { bytes, count, digits, memorySize, percent, seconds, times } from "../format";
import type { ModelDetails, Op, Prediction, Sweep } from "../types";
import { Bars, Boxes, Curve, Sketch } from "./draw";
import { Motion } from "./motion";
import { stop, url } from "./stop";

const kBatches = ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512"];
const atBatch = (s: Sweep, batch: string) => s.points.find((p) => p.batch === batch) as Sweep["points"][number];
const slower = (s: Sweep, batch: string) => atBatch(s, batch).tpot_s / atBatch(s, "1").tpot_s;
const more = (s: Sweep, batch: string) => atBatch(s, batch).tokens_per_s / atBatch(s, "1").tokens_per_s;

export const manyUsers = stop<{ s: Sweep }>({
  title: "One read, many users",
  claim: "A batch shares the weights.",
  text: "Sixty-four sequences can share one pass over the weights. The step hardly grows while the tokens multiply. It ends where the step reaches the ridge or the memory is full.",
  control: { label: "Batch", start: "1", choices: ["1", "8", "64", "256", "512"].map((v) => [v, v] as const) },
  ask: (at) => ({ s: url("sweep", { ...at, context: "128", batch: kBatches.join() }) }),
  question: () => "With 64 sequences of 128 tokens instead of one, how many times longer does a step take?",
  fields: () => [{ label: "step at batch 64 over batch 1", unit: "×" }],
  answer: ({ s }) => [slower(s, "64")],
  after: ({ s }) => <>The step takes {times(slower(s, "64"))} as long and yields {times(more(s, "64"))} the tokens: {count(atBatch(s, "64").tokens_per_s)} instead of {count(atBatch(s, "1").tokens_per_s)} tok/s. At batch 512 the wall is {atBatch(s, "512").fits ? atBatch(s, "512").wall : "capacity: it does not fit"}.</>,
  kills: "“64 users make it 64 times slower.”",
  lab: "batching",
  open: (at, chosen) => ["batch", { ...at, batch: chosen, context: "128" }],
  draw: ({ s }, { width, chosen, shown }) => {
    const line = (f: (batch: string) => number) => kBatches.map((b) => [Number(b), f(b)] as const);
    const drawn = Math.min(Number(chosen), 128), columns = Math.floor((width - 4) / 12), foot = 38 + 12 * Math.ceil(drawn / columns);
    return (
      <>
        <Sketch width={width} height={foot + 6} label={`${chosen} sequences share one read`}>
          <rect class="w" x="0" y="4" width={width - 4} height="14" /><Boxes count={drawn} columns={columns} size={12} y={24} kind={() => "token"} />
          <text x="0" y={foot}>one read of the weights, {count(Number(chosen))} {chosen === "1" ? "sequence" : "sequences"}{drawn < Number(chosen) ? ` (${drawn} drawn)` : ""}</text>
        </Sketch>
        {shown && <Curve width={width} label="Step time and tokens per second over the batch, relative to batch 1" xTitle="batch" yTitle="times batch 1" xFormat={count} yFormat={times} chosen={Number(chosen)} level={1} logY
          lines={[{ name: "tokens/s", kind: "dash", points: line((b) => more(s, b)) }, { name: "step time", kind: "ink", points: line((b) => slower(s, b)) }]} />}
      </>
    );
  },
});

const kLong = "8192";
const attention = (p: Prediction) => p.ops.find((op) => op.phase === "prefill" && op.kind.startsWith("attention")) as Op;
const prefill = (at: object, prompt: string, plain: boolean) => url("predict", { ...at, batch: "1", context: prompt, prompt, ...(plain ? { "no-flash": "true" } : {}) });

export const withoutTheSquare = stop<{ tiled: Prediction; plain: Prediction; movedTiled: Prediction; movedPlain: Prediction }>({
  title: "Attention without the square",
  claim: "Keep the scores on the chip and their traffic is gone.",
  text: "The plain way writes an n × n matrix of scores to memory, reads it back for the softmax, and does both again with the probabilities. The tiled way (FlashAttention) carries a running maximum and a running sum instead. The result is the same up to rounding.",
  control: { label: "Prompt", start: kLong, choices: ["1024", "2048", "4096", "8192", "16384"].map((v) => [v, v] as const) },
  ask: (at, chosen) => ({ tiled: prefill(at, kLong, false), plain: prefill(at, kLong, true), movedTiled: prefill(at, chosen, false), movedPlain: prefill(at, chosen, true) }),
  question: () => `For a prompt of ${kLong} tokens, how many times more bytes does plain attention move through device memory than tiled attention?`,
  fields: () => [{ label: "bytes, plain over tiled", unit: "×" }],
  answer: ({ tiled, plain }) => [attention(plain).bytes / attention(tiled).bytes],
  after: ({ tiled, plain }) => <>Plain attention moves {bytes(attention(plain).bytes)}, tiled {bytes(attention(tiled).bytes)}; in time that is {times(attention(plain).expected_s / attention(tiled).expected_s)}, since the arithmetic stays. Double the prompt and the plain bytes quadruple while the tiled ones only double.</>,
  kills: "“FlashAttention approximates.” It computes the same softmax in another order.",
  lab: "attention",
  open: (at, chosen) => ["time", { ...at, batch: "1", context: chosen, prompt: chosen, "no-flash": "true" }],
  draw: ({ movedTiled, movedPlain }, { width, chosen, shown }, at) => {
    const bar = (name: string, kind: string, of: (p: Prediction) => number, show: (v: number) => string, p: Prediction) => ({ name, parts: shown ? [{ kind, value: of(p) }] : null, text: show(of(p)) });
    const moved = (p: Prediction) => attention(p).bytes, time = (p: Prediction) => attention(p).expected_s;
    return (
      <>
        <p class="note">Attention of all layers, prompt {chosen}</p>
        <Bars width={width} label="Bytes" bars={[bar("plain, bytes", "a", moved, bytes, movedPlain), bar("tiled, bytes", "a", moved, bytes, movedTiled)]} />
        <Bars width={width} label="Time" bars={[bar("plain, time", "ink", time, seconds, movedPlain), bar("tiled, time", "ink", time, seconds, movedTiled)]} />
        {shown && <Motion name="attention" config={{ ...at, batch: "1", context: chosen, prompt: chosen }} />}
      </>
    );
  },
});

const kContext = 4096;
const usersToMatch = (m: ModelDetails) => m.weight_bytes / (m.kv_bytes_per_token * kContext);

export const growingCache = stop<{ m: ModelDetails; most: Prediction; full: Prediction }>({
  title: "The cache that grows",
  claim: "Each sequence brings bytes that no batch can share.",
  text: "Keeping keys and values saves computing them again, but they grow with every token. Sequences share the weights, never the caches. In time the caches are the larger read.",
  control: { label: "Users", start: "1", choices: ["1", "8", "32", "128"].map((v) => [v, v] as const) },
  ask: (at) => ({ m: url("models", { name: at.model }), most: url("predict", { ...at, batch: "1", context: String(kContext) }), full: url("predict", { ...at, batch: "256", context: String(kContext) }) }),
  question: ({ m }) => `${m.title} has ${bytes(m.weight_bytes)} of weights and keeps ${bytes(m.kv_bytes_per_token)} per token. At ${kContext} tokens each, how many users until a step reads more KV cache than weights?`,
  fields: () => [{ label: "users", unit: "users" }],
  answer: ({ m }) => [usersToMatch(m)],
  after: ({ m, most, full }) => <>{bytes(m.kv_bytes_per_token * kContext)} per user: from {count(Math.ceil(usersToMatch(m)))} users on, the caches weigh more than the weights. {most.memory.max_batch !== null && <>At most {count(most.memory.max_batch)} users fit. </>}Even 256{full.memory.fits ? "" : ", if they fitted,"} would give a step only {digits(full.decode.intensity)} FLOP/byte: attention reads each cache once for one token.</>,
  kills: "“Enough batch always reaches the ridge.” The caches grow with the batch, so their intensity does not.",
  lab: "kv-cache",
  open: (at, chosen) => ["memory", { ...at, batch: chosen, context: String(kContext) }],
  draw: ({ m }, { width, chosen, shown }, at) => {
    const users = Number(chosen), cache = m.kv_bytes_per_token * kContext * users;
    return (
      <>
        {!shown && (
          <Sketch width={width} height={72} label={`Weights once, ${chosen} caches`}>
            <rect class="w" x="0" y="4" width={width * 0.4} height="24" /><text x={width * 0.4 + 8} y="21">weights: one read for all</text>
            <Boxes count={Math.min(users, 64)} columns={Math.floor(width / 10)} size={10} y={36} kind={() => "k"} />
            <text x="0" y="68">{chosen} {users === 1 ? "cache" : "caches"}, not to scale</text>
          </Sketch>
        )}
        {shown && <Bars width={width} label={`Bytes read by a step of ${chosen} users`} bars={[
          { name: "weights", parts: [{ kind: "w", value: m.weight_bytes }], text: bytes(m.weight_bytes) },
          { name: `${chosen} ${users === 1 ? "cache" : "caches"}`, parts: [{ kind: "k", value: cache }], text: bytes(cache) },
        ]} />}
        {shown && <Motion name="kv" config={{ ...at, batch: "1", context: String(kContext) }} />}
      </>
    );
  },
});

// A model whose longest sequence is far beyond 4096 tokens, so that reserving for it costs.
const longModel = (model: string) => (model === "llama-3-8b" ? "llama-3.1-8b" : model);
const held = (at: object, reserve: boolean) => url("predict", { ...at, batch: "1", context: String(kContext), ...(reserve ? { "no-paging": "true" } : {}) });

export const pagesNotPromises = stop<{ m: ModelDetails; paged: Prediction; reserved: Prediction }>({
  title: "Pages instead of promises",
  claim: "Allocate as tokens come, and share what is equal.",
  text: "Reserving for the longest possible answer fills memory with nothing. Pages are allocated as tokens arrive. Sequences that begin alike hold the same pages until one of them writes.",
  control: { label: "Allocation", start: "pages", choices: [["pages", "pages of 16 tokens"], ["reserve", "the longest in advance"]] },
  place: (reader) => ({ ...reader, model: longModel(reader.model) }),
  ask: (at) => ({ m: url("models", { name: at.model }), paged: held(at, false), reserved: held(at, true) }),
  question: ({ m, paged }, at) => `${m.title} allows ${count(m.max_context)} tokens. ${at.machine} has ${memorySize(paged.memory.capacity_bytes)} of usable memory. How many sequences of ${kContext} tokens fit if each reserves the maximum?`,
  fields: () => [{ label: "sequences", unit: "sequences" }],
  answer: ({ reserved }, at) => (reserved.memory.max_batch !== null ? [reserved.memory.max_batch] : `the memory size of ${at.machine} is not known`),
  after: ({ m, paged, reserved }) => <>Each reservation takes {bytes(m.kv_bytes_per_token * (m.max_context ?? 0))} for a sequence that uses {bytes(m.kv_bytes_per_token * kContext)}. Reserved, {count(reserved.memory.max_batch)} fit; in pages, {count(paged.memory.max_batch)}.{paged.memory.reserved_bytes > 0 && ` Of the memory, the stack (${paged.stack}) leaves ${bytes(paged.memory.reserved_bytes)} unused.`}</>,
  kills: "“It fits, so it serves.” What is reserved and never used is a smaller batch.",
  lab: "pages",
  open: (at, chosen) => ["memory", { ...at, batch: "1", context: String(kContext), ...(chosen === "reserve" ? { "no-paging": "true" } : {}) }],
  draw: ({ m, paged, reserved }, { width, chosen, shown }, at) => {
    const used = kContext / (m.max_context ?? kContext), columns = 32, boxes = 96;
    const reserve = chosen === "reserve", most = reserve ? reserved : paged;
    return (
      <>
        <Sketch width={width} height={Math.min(15, width / columns) * 3 + 2} label={reserve ? "Reserved, mostly empty" : "Pages as tokens come"}>
          <Boxes count={boxes} columns={columns} size={Math.min(15, width / columns)} kind={(i) => (i < Math.max(1, Math.round(boxes * used)) ? "k" : reserve ? "reserved" : "free")} />
        </Sketch>
        <p class="note">{reserve ? `One sequence holds all of this and uses ${percent(used)}.` : "One sequence holds what it uses; the rest is free for others."}</p>
        {shown && <Bars width={width} label="Sequences that fit" bars={[["reserved", reserved], ["paged", paged]].map(([name, p]) => ({ name: name as string, parts: [{ kind: p === most ? "k" : "a", value: (p as Prediction).memory.max_batch ?? 0 }], text: `${count((p as Prediction).memory.max_batch)} fit` }))} />}
        {shown && <Motion name="kv" config={{ ...at, batch: "1", context: String(kContext) }} />}
      </>
    );
  },
});
