// Stops 14 and 15: speculation, and which wall to spend on.
import { count, digits, percent, times } from "../format";
import type { Explanation, History, Lever, Sweep } from "../types";
import { Bars, Boxes, Curve, Sketch } from "./draw";
import { Motion } from "./motion";
import { stop, url } from "./stop";

const kBatches = ["1", "2", "4", "8", "16", "32", "64", "128", "256"];
const kDrafts = { speculate: "4", acceptance: "0.7", draft: "llama-3.2-1b" };
const rate = (s: Sweep, batch: string) => (s.points.find((p) => p.batch === batch) as Sweep["points"][number]).tokens_per_s;
interface Speculated { plain: Sweep; guessed: Sweep }
const gain = ({ plain, guessed }: Speculated, batch: string) => rate(guessed, batch) / rate(plain, batch);

export const guessAndCheck = stop<Speculated>({
  title: "Guess, then check",
  claim: "Spare arithmetic can verify several tokens for one read of the weights.",
  text: "A small model proposes a few tokens; the large one checks them all in one pass and keeps those it would have written itself. Each token kept saves a read of the weights. With a full batch there is no spare arithmetic left.",
  control: { label: "Batch", start: "1", choices: ["1", "8", "32", "128", "256"].map((v) => [v, v] as const) },
  place: (reader) => ({ ...reader, model: "llama-3-8b" }),
  ask: (at) => {
    const both = { ...at, context: "1024", batch: kBatches.join() };
    return { plain: url("sweep", both), guessed: url("sweep", { ...both, ...kDrafts }) };
  },
  question: () => "Llama 3.2 1B drafts four tokens for Llama 3 8B, and 70 % of the drafts are accepted. What does that do to tokens/s at batch 1, and at batch 128? (×1 is no change.)",
  fields: () => [{ label: "at batch 1", unit: "×" }, { label: "at batch 128", unit: "×" }],
  answer: (d) => [gain(d, "1"), gain(d, "128")],
  after: (d) => <>{times(gain(d, "1"))} at batch 1, {times(gain(d, "128"))} at batch 128{gain(d, "128") < 1 ? ": there the checks cost arithmetic that the batch needed itself, and rejected drafts are wasted" : ""}. The text does not change: what the large model would not have written is discarded.</>,
  kills: "“Speculation is free speed”, and “it changes the text”.",
  lab: "speculation",
  open: (at, chosen) => ["batch", { ...at, context: "1024", batch: chosen, ...kDrafts }],
  draw: (d, { width, chosen, shown }, at) => (
    <>
      <Sketch width={width} height={46} label="Four drafts, one check">
        <Boxes count={4} columns={4} size={26} kind={() => "slot"} /><text x="112" y="16">four drafts</text>
        <rect class="w" x="0" y="28" width="101" height="14" /><text x="112" y="41">one pass of the large model</text>
      </Sketch>
      {shown && <Curve width={width} label="Gain in tokens per second over the batch" xTitle="batch" yTitle="gain" xFormat={count} yFormat={times} chosen={Number(chosen)} level={1}
        lines={[{ name: "gain", kind: "ink", points: kBatches.map((b) => [Number(b), gain(d, b)] as const) }]} />}
      {shown && <Motion name="speculation" config={{ ...at, context: "1024", batch: chosen, ...kDrafts }} />}
    </>
  ),
});

// Three remedies of ridge explain, by how their names begin or end.
const kRemedies: [string, RegExp][] = [["B200 instead of H100", /^machine b200$/], ["weights in int4", /^weights int4$/], ["batch 3 → 24", /^batch .* 24$/]];
const lever = (x: Explanation, pattern: RegExp): Lever | undefined => x.levers.find((l) => pattern.test(l.name));
const ranked = (x: Explanation) => kRemedies.map(([name, pattern]) => ({ name, lever: lever(x, pattern) })).sort((a, b) => (b.lever?.gain ?? 0) - (a.lever?.gain ?? 0));
const kSeen = { model: "llama-3-70b", machine: "8xh100-sxm", observed: "280", "gpu-util": "0.38" };

export const yourWall = stop<{ x: Explanation; h: History }>({
  title: "Which wall is yours?",
  claim: "Name the wall before you spend.",
  text: "You have met every wall. Here is an endpoint that somebody finds slow. Choose the remedy before Ridge ranks them, then type what your own endpoint does.",
  control: { label: "Over the years", start: "ridge", choices: [["peak", "peak"], ["bandwidth", "bandwidth"], ["ridge", "ridge"]] },
  place: () => ({ model: kSeen.model, machine: kSeen.machine }),
  ask: () => ({ x: url("explain", kSeen), h: "/api/history" }),
  question: () => "Llama 3 70B on eight H100 writes 280 tok/s at 38 % utilisation. Sort the remedies by tok/s per card, the best first.",
  fields: () => kRemedies.map(([name]) => ({ label: name })),
  order: true,
  answer: ({ x }) => (ranked(x).every((r) => r.lever?.gain) ? ranked(x).map((r) => r.name) : "ridge explain does not offer these remedies any more"),
  after: ({ x }) => <>{x.sentence.replaceAll("->", "→")} {ranked(x).map((r) => `${r.name}: ${times(r.lever?.gain)}`).join("; ")}.</>,
  kills: "“The cards are busy, so buy cards.” Utilisation counts kernels that run, not the work they share.",
  lab: "history",
  open: () => ["slow", kSeen],
  draw: ({ x, h }, { width, chosen, shown }) => {
    const of = (r: History["records"][number]) => r[chosen as "ridge"] ?? r.ridge, first = h.records[0], last = h.records[h.records.length - 1];
    return (
      <>
        {shown && <Bars width={width} label="Tokens per second per card" bars={ranked(x).map((r) => ({ name: r.name, parts: [{ kind: r.lever?.next_wall ? `wall-${r.lever.next_wall}` : "ink", value: r.lever?.gain ?? 0 }], text: times(r.lever?.gain) }))} />}
        {shown && <p class="note">Bars have the colour of the wall that comes next.</p>}
        <p class="note">{chosen === "ridge" ? "FLOP/byte at the ridge" : chosen} of data-centre GPUs, relative to {first?.year}</p>
        {first && last && <Years records={h.records.map((r) => [r.year, of(r) / of(first)] as const)} width={width} />}
        <p class="note">{first && last && <>{last.name} has {digits(of(last) / of(first))} times the {chosen} of {first.name}.</>} {shown && x.observed.share_of_roof ? `The endpoint is at ${percent(x.observed.share_of_roof)} of its roof.` : ""}</p>
      </>
    );
  },
});

function Years({ records, width }: { records: (readonly [number, number])[]; width: number }) {
  return <Curve width={width} height={170} label="By year" xTitle="year" yTitle="times the first" xFormat={(v) => v.toFixed(0)} yFormat={digits} logY linearX lines={[{ name: "", kind: "ink", points: records }]} />;
}
