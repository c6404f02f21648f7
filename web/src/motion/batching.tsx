// Static above continuous batching. Options: those of a prediction (chunk), policy, seats, requests,
// kv-tokens, seed.
import { useMemo } from "preact/hooks";
import { axisSeconds, count, percent, seconds } from "../format";
import { Player } from "../player";
import { linearScale } from "../scale";
import { addStyle } from "../style";
import type { Timeline } from "../timeline";
import { letter, pieces, scheduleFrame, type Piece, type ScheduleData, type ScheduleRun } from "./batching-frame";
import css from "./batching.panel.css";
import { address, useAnswers, type MotionProps } from "./data";

addStyle(css);

export default function BatchingMotion({ config }: MotionProps) {
  const { data: answers, error } = useAnswers<[ScheduleData]>([address("/api/schedule", config, ["policy", "seats", "requests", "kv-tokens", "seed"])]);
  const data = answers?.[0];
  const timeline = useMemo(() => data && batchingTimeline(data), [data]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!data || !timeline) return <p class="loading">Loading…</p>;
  return <Player name="batching" label="Requests on the seats of a batch" timeline={timeline} draw={(now, width) => <Drawing data={data} now={now} width={width} />} />;
}

const kTitles: Record<string, string> = { static: "Static: all leave together", continuous: "Continuous: a free seat is taken at once", chunked: "Continuous, prompts in chunks" };
const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

function batchingTimeline(data: ScheduleData): Timeline {
  const events = data.runs.flatMap((run) => {
    const name = capital(run.policy);
    return [
      ...run.requests.map((r, i) => {
        const asked = data.requests[i];
        const again = r.preemptions > 0 ? `, preempted ${r.preemptions} times` : "";
        return { at: r.end_s, text: `${name}: request ${letter(i)}, ${count(asked?.prompt)} prompt tokens, ends with ${r.tokens} tokens; first after ${seconds(r.first_token_s - (asked?.arrival_s ?? 0))}, longest pause ${seconds(r.longest_pause_s)}${again}` };
      }),
      { at: run.seconds, text: `${name}: ${count(run.tokens)} tokens in ${seconds(run.seconds)}, ${count(run.tokens_per_s)} tok/s, ${percent(run.useful_seats)} of the seats used` },
    ];
  });
  return { scenes: [{ seconds: Math.max(...data.runs.map((r) => r.seconds)), screen: 14 }], events: events.sort((a, b) => a.at - b.at) };
}

function Drawing({ data, now, width }: { data: ScheduleData; now: number; width: number }) {
  const seat = width < 480 ? 15 : 18;
  const each = 62 + data.seats * seat;
  const height = 20 + each * data.runs.length + 18;
  const x = linearScale(0, Math.max(...data.runs.map((r) => r.seconds)), 0, width);
  return (
    <svg class="batching" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={data.runs.map((run) => `${run.policy}: ${scheduleFrame(data, run, now).done} of ${data.requests.length} requests done`).join("; ")}>
      <defs>
        <pattern id="prefill" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" /><line class="hatch" y2="5" /></pattern>
        <clipPath id="batching-past"><rect width={x(now)} height={height} /></clipPath>
      </defs>
      <g transform="translate(0 12)">
        <rect y={-9} width={14} height={10} fill="url(#prefill)" /><text class="dim" x={18}>reads its prompt</text>
        <rect class="decode" x={128} y={-9} width={14} height={10} /><text class="dim" x={146}>writes; a line a token</text>
        {width > 480 && <><rect class="track" x={286} y={-9} width={14} height={10} /><text class="dim" x={304}>empty seat</text></>}
      </g>
      {data.runs.map((run, i) => <Run key={run.policy} data={data} run={run} now={now} x={x} y={20 + i * each} seat={seat} width={width} />)}
      <line class="playhead" x1={x(now)} x2={x(now)} y1={24} y2={height - 20} />
      {x.ticks(width < 480 ? 3 : 6).map((t) => <text key={t} class="dim" x={Math.min(width - 24, x(t))} y={height - 3} text-anchor={t === 0 ? "start" : "middle"}>{axisSeconds(t)}</text>)}
    </svg>
  );
}

function Run({ data, run, now, x, y, seat, width }: { data: ScheduleData; run: ScheduleRun; now: number; x: (t: number) => number; y: number; seat: number; width: number }) {
  const f = scheduleFrame(data, run, now);
  const over = now >= run.seconds;
  const top = y + 40;
  const bars = useMemo(() => <Bars list={pieces(run)} x={x} top={top} seat={seat} />, [run, width, top, seat]);
  const told = over
    ? [`${count(run.tokens_per_s)} tok/s`, `first token ${seconds(run.first_token_s)}`, `longest pause ${seconds(run.longest_pause_s)}`, ...(run.redone_tokens > 0 ? [`${count(run.redone_tokens)} tokens redone`] : [])]
    : [`${f.tokens} tokens`, f.waiting.length ? `waiting: ${f.waiting.map(letter).join(" ")}` : "nobody waits"];
  return (
    <g>
      <g data-counter={`tokens-${run.policy}`} data-value={f.tokens}><text class="strong" x={0} y={y + 14}>{kTitles[run.policy]}</text></g>
      <g data-counter={`useful-${run.policy}`} data-value={f.useful}><text x={width} y={y + (width < 480 ? 31 : 14)} text-anchor="end">{percent(f.useful)} of seats used</text></g>
      <text class="dim" x={0} y={y + 31}>{(width < 480 ? told.slice(0, 2) : told).join(" · ")}</text>
      {Array.from({ length: data.seats }, (_, i) => <rect key={i} class="track" x={0} y={top + i * seat} width={x(run.seconds)} height={seat - 2} />)}
      <g opacity={0.13}>{bars}</g>
      <g clip-path="url(#batching-past)">{bars}</g>
    </g>
  );
}

function Bars({ list, x, top, seat }: { list: Piece[]; x: (t: number) => number; top: number; seat: number }) {
  return (
    <>
      {list.map((p, i) => {
        const [a, z] = [x(p.from), x(p.to)];
        const y = top + p.seat * seat;
        return (
          <g key={i}>
            <rect class={p.prompt ? "" : "decode"} fill={p.prompt ? "url(#prefill)" : undefined} x={a} y={y} width={Math.max(0.6, z - a)} height={seat - 2} />
            {!p.prompt && <path class="ticks" d={p.draws.map((t) => `M${x(t).toFixed(1)} ${y}v${seat - 2}`).join("")} />}
            {z - a > 15 && <text class="name" x={a + 4} y={y + seat - 5}>{letter(p.request)}</text>}
          </g>
        );
      })}
    </>
  );
}
