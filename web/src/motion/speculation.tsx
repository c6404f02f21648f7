// Draft and verify. Options: those of a prediction (batch is what moves; speculate, acceptance, draft),
// rounds, seed.
import { useMemo } from "preact/hooks";
import { Axes, frame as chartFrame, path } from "../axes";
import { axis, count, digits, seconds, times } from "../format";
import { Player } from "../player";
import { linearScale, logScale } from "../scale";
import { addStyle } from "../style";
import type { Timeline } from "../timeline";
import type { Sweep } from "../types";
import { address, useAnswers, type MotionProps } from "./data";
import { speculationFrame, type Round, type SpeculationData } from "./speculation-frame";
import css from "./speculation.panel.css";

addStyle(css);
const kBatches = "1,2,4..256";
const left = 74; // of the bars; their names stand there

export default function SpeculationMotion({ config }: MotionProps) {
  const own = { speculate: config["speculate"] || "4", acceptance: config["acceptance"] || "0.7" };
  const { data, error } = useAnswers<[SpeculationData, Sweep, Sweep]>([
    address("/api/speculation", config, ["rounds", "seed"], own),
    address("/api/sweep", config, [], { ...own, batch: kBatches }),
    address("/api/sweep", config, [], { batch: kBatches, speculate: undefined, acceptance: undefined, draft: undefined }),
  ]);
  const timeline = useMemo(() => data && speculationTimeline(data[0]), [data]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!data || !timeline) return <p class="loading">Loading…</p>;
  return <Player name="speculation" label="Rounds of drafting and verification" timeline={timeline} draw={(now, width) => <Drawing data={data[0]} gains={gains(data[1], data[2])} now={now} width={width} />} />;
}

const gains = (with_: Sweep, without: Sweep): [number, number][] => with_.points.map((p, i) => [Number(p.batch), p.tokens_per_s / (without.points[i]?.tokens_per_s ?? NaN)]);

function speculationTimeline(data: SpeculationData): Timeline {
  const events = data.rounds.map((r, i) => ({ at: (i + 1) * data.round_s, text: `Round ${i + 1}: ${data.speculate} guessed, ${r.accepted} kept, ${r.tokens} ${r.tokens === 1 ? "token" : "tokens"} in ${seconds(data.round_s)}` }));
  events.push({ at: data.seconds, text: `${data.tokens} tokens in ${seconds(data.seconds)}; plain decoding writes ${data.plain_tokens} in that time. The expected gain is ${times(data.gain)}` });
  return { scenes: [{ seconds: data.seconds, screen: 1.3 * data.rounds.length }], events };
}

function Drawing({ data, gains: curve, now, width }: { data: SpeculationData; gains: [number, number][]; now: number; width: number }) {
  const f = speculationFrame(data, now);
  const height = 412;
  return (
    <svg class="speculation" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Round ${f.round + 1}: ${f.tokens} tokens against ${f.plain}`}>
      <RoundView data={data} now={now} width={width} />
      <Race data={data} now={now} width={width} y={150} />
      <Gains curve={curve} batch={data.batch} width={width} y={240} />
    </svg>
  );
}

// The present round, with a plain step below it on the same scale.
function RoundView({ data, now, width }: { data: SpeculationData; now: number; width: number }) {
  const f = speculationFrame(data, now);
  const narrow = width < 480;
  const longest = Math.max(data.round_s, data.step_s);
    const x = linearScale(0, longest, left, width);
  const drafting = data.draft_s * data.speculate;
  const box = x(data.draft_s) - x(0);
  return (
    <g>
      <text class="strong" x={0} y={13}>Round {f.round + 1} of {data.rounds.length}</text>
      <text class="dim" x={width} y={13} text-anchor="end">{narrow ? "" : `${data.draft ?? "a free draft"} drafts for ${data.model}, `}batch {count(data.batch)}</text>
      <text class="dim" x={0} y={42}>speculative</text><text class="dim" x={0} y={76}>plain step</text>
      <rect class="track" x={left} y={26} width={x(data.round_s) - left} height={24} />
      <rect class="track" x={left} y={60} width={x(data.step_s) - left} height={24} />
      {Array.from({ length: f.at > 0 ? Math.min(data.speculate, data.draft_s > 0 ? f.drafted + 1 : data.speculate) : 0 }, (_, i) => data.draft_s > 0 && <rect key={i} class="draft" x={x(i * data.draft_s) + 1} y={26} width={Math.max(1, Math.min(box, x(f.at) - x(i * data.draft_s)) - 2)} height={24} rx={2} />)}
      {f.at > drafting && <rect class="verify" x={x(drafting) + 1} y={26} width={Math.max(1, x(f.at) - x(drafting) - 2)} height={24} rx={2} />}
      {f.at > 0 && <rect class="verify" x={left + 1} y={60} width={Math.max(1, x(Math.min(f.at, data.step_s)) - left - 2)} height={24} rx={2} />}
      <text class="on" x={(x(drafting) + x(data.round_s)) / 2} y={42} text-anchor="middle">{f.at > drafting + data.verify_s / 2 ? (narrow ? "checks all" : "one pass checks all") : ""}</text>
      <text class="dim" x={narrow ? 0 : left} y={100}>{data.draft_s > 0 ? `${data.speculate} drafts of ${seconds(data.draft_s)}, ` : ""}check {seconds(data.verify_s)}{narrow ? ", plain" : "; a plain step"} {seconds(data.step_s)}</text>
      <Outcome data={data} round={f.verified ? f.round : f.round - 1} x={left} y={110} width={width - left} />
    </g>
  );
}

// What the round before left: drafts that were kept, the large model's own token, drafts that were
// dropped.
function Outcome({ data, round, x, y, width }: { data: SpeculationData; round: number; x: number; y: number; width: number }) {
  const kept = (data.rounds[round] as Round | undefined)?.accepted;
  if (kept === undefined) return <text class="dim" x={x} y={y + 16}>no round has ended yet</text>;
  const chip = Math.min(30, (width - 100) / (data.speculate + 2) - 3);
  const chips: [string, string][] = Array.from({ length: data.speculate }, (_, i) => (i < kept ? ["kept", "✓"] : i === kept ? ["missed", "✗"] : ["dropped", "–"]));
  chips.splice(kept + (kept < data.speculate ? 1 : 0), 0, ["own", kept < data.speculate ? "✓" : "+1"]);
  return (
    <g>
      <text class="dim" x={x} y={y + 16}>round {round + 1}</text>
      {chips.map(([kind, sign], i) => (
        <g key={i} class={`chip ${kind}`}>
          <rect x={x + 58 + i * (chip + 3)} y={y} width={chip} height={24} rx={3} />
          <text x={x + 58 + i * (chip + 3) + chip / 2} y={y + 16} text-anchor="middle">{sign}</text>
        </g>
      ))}
      {width > 420 && <text x={x + 66 + chips.length * (chip + 3)} y={y + 16}>{kept} of {data.speculate} kept, {kept + 1} {kept === 0 ? "token" : "tokens"}</text>}
    </g>
  );
}

function Race({ data, now, width, y }: { data: SpeculationData; now: number; width: number; y: number }) {
  const f = speculationFrame(data, now);
  const most = Math.max(data.tokens, data.plain_tokens, 1);
    const w = (width - left - 40) / most;
  const row = (name: string, label: string, n: number, at: number) => (
    <g key={name} data-counter={name} data-value={n}>
      <text class="dim" x={0} y={at + 15}>{label}</text>
      {Array.from({ length: n }, (_, i) => <rect key={i} class={name} x={left + i * w} y={at} width={Math.max(1, w - 1.5)} height={22} />)}
      <text class="strong" x={left + n * w + 6} y={at + 15}>{n}</text>
    </g>
  );
  return (
    <g>
      <text class="dim" x={left} y={y + 10}>tokens of one sequence so far</text>
      {row("tokens", "speculative", f.tokens, y + 18)}
      {row("plain", "plain", f.plain, y + 48)}
    </g>
  );
}

function Gains({ curve, batch, width, y }: { curve: [number, number][]; batch: number; width: number; y: number }) {
  const f = chartFrame(width, 170, 40, 14, 22, 34);
  const x = logScale(1, 256, f.left, f.right);
  const known = curve.filter(([, g]) => Number.isFinite(g));
  const high = Math.max(1.1, ...known.map(([, g]) => g)) * 1.08, low = Math.min(0.9, ...known.map(([, g]) => g)) * 0.95;
  const up = linearScale(low, high, f.bottom, f.top);
  const here = known.reduce((best, p) => (Math.abs(Math.log(p[0] / batch)) < Math.abs(Math.log(best[0] / batch)) ? p : best), known[0] ?? [1, 1]);
  return (
    <g transform={`translate(0 ${y})`}>
      <Axes frame={f} x={x} y={up} xTitle="batch" yTitle="gain in tokens per second" xFormat={axis} yFormat={digits} />
      <line class="even" x1={f.left} x2={f.right} y1={up(1)} y2={up(1)} />
      <path class="gain" d={path(known.map(([b, g]) => [x(b), up(g)]))} />
      <circle class="here" cx={x(here[0])} cy={up(here[1])} r={5} />
      <text x={Math.min(f.right - 110, x(here[0]) + 9)} y={up(here[1]) + 22}>{times(here[1])} at batch {count(here[0])}</text>
    </g>
  );
}
