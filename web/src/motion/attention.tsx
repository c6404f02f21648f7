// Attention with stored scores against tiles. Options: those of a prediction (prompt is what moves), n,
// block, seed.
import { useMemo } from "preact/hooks";
import { bytes, count, digits, flops, seconds, times } from "../format";
import { Player } from "../player";
import { addStyle } from "../style";
import type { Timeline } from "../timeline";
import { kSide, kTile, kTiles, plainFrame, tiledFrame, type AttentionData, type Form } from "./attention-frame";
import css from "./attention.panel.css";
import { address, useAnswers, type MotionProps } from "./data";
import { RowFilm } from "./attention-row";

addStyle(css);

export default function AttentionMotion({ config }: MotionProps) {
  const { data: answers, error } = useAnswers<[AttentionData]>([address("/api/attention", config, ["n", "block", "seed"])]);
  const data = answers?.[0];
  const timeline = useMemo(() => data && attentionTimeline(data), [data]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!data || !timeline) return <p class="loading">Loading…</p>;
  return (
    <>
      <Player name="attention" label="Attention with stored scores, and in tiles" timeline={timeline} draw={(now, width) => <Drawing data={data} now={now} width={width} />} />
      <RowFilm row={data.row} />
    </>
  );
}

function attentionTimeline({ plain, tiled, prompt }: AttentionData): Timeline {
  let at = 0;
  const events = plain.moves.map((m) => {
    const start = at;
    at += (plain.expected_s * m.bytes) / plain.bytes;
    return { at: start, text: `Stored: ${m.name}, ${bytes(m.bytes)}` };
  });
  kTiles.forEach(([q, k], i) => {
    const written = q === k ? "; write O of these queries" : "";
    events.push({ at: (tiled.expected_s * i) / kTiles.length, text: `Tiled: query block ${q + 1}, key block ${k + 1}: load K and V, score, update maximum and sum, rescale${written}` });
  });
  events.push({ at: tiled.expected_s, text: `Tiled: done after ${seconds(tiled.expected_s)}, ${bytes(tiled.bytes)} through memory` });
  events.push({ at: plain.expected_s, text: `Stored: done after ${seconds(plain.expected_s)}, ${bytes(plain.bytes)} through memory for ${count(prompt)} tokens, ${times(plain.bytes / tiled.bytes)} the bytes and ${times(plain.expected_s / tiled.expected_s)} the time` });
  return { scenes: [{ seconds: Math.max(plain.expected_s, tiled.expected_s), screen: 10 }], events: events.sort((a, b) => a.at - b.at) };
}

const kGrid = 176;
const cell = kGrid / kSide;

function Drawing({ data, now, width }: { data: AttentionData; now: number; width: number }) {
  const wide = width >= 620;
  const pane = wide ? (width - 24) / 2 : width;
  const tall = 262 + data.plain.moves.length * 17;
  const low = wide ? tall : 262 + data.tiled.moves.length * 17;
  const height = wide ? tall : tall + low + 10;
  return (
    <svg class="attention" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Attention over ${data.prompt} tokens at ${seconds(now)}`}>
      <defs><pattern id="masked" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" y2="5" /></pattern></defs>
      <Stored data={data} now={now} width={pane} />
      <g transform={wide ? `translate(${pane + 24} 0)` : `translate(0 ${tall + 10})`}><Tiled data={data} now={now} width={pane} /></g>
    </svg>
  );
}

function Head({ title, form, now, moved, width, name }: { title: string; form: Form; now: number; moved: number; width: number; name: string }) {
  return (
    <g data-counter={name} data-value={moved}>
      <text class="strong" x={0} y={13}>{title}</text>
      <text class="dim" x={width} y={13} text-anchor="end">{now >= form.expected_s ? `done, ${seconds(form.expected_s)}` : `${seconds(now)} of ${seconds(form.expected_s)}`}</text>
      <text class="big" x={kGrid + 34} y={44}>{bytes(moved)}</text>
      <text class="dim" x={kGrid + 34} y={60}>through memory</text>
    </g>
  );
}

// Bars of both panes have one scale, so that they can be compared.
function Causes({ form, moved, most, width, y, on }: { form: Form; moved: number[]; most: number; width: number; y: number; on: (name: string) => boolean }) {
  const left = 104, right = 66;
  return (
    <>
      {form.moves.map((m, i) => (
        <g key={m.name} transform={`translate(0 ${y + i * 17})`}>
          <text class={on(m.name) ? "strong" : "dim"} x={0} y={11}>{m.name}</text>
          <rect class="track" x={left} y={2} width={width - left - right} height={11} />
          <rect class={/ [KV]$|V$/.test(m.name) ? "k" : "a"} x={left} y={2} width={((moved[i] ?? 0) / most) * (width - left - right)} height={11} />
          <text x={width} y={11} text-anchor="end">{bytes(moved[i] ?? 0)}</text>
        </g>
      ))}
    </>
  );
}

const onChip = (form: Form) => `${flops(form.flops)}; ${bytes(form.chip_bytes)} between cache and units`;
const most = (data: AttentionData) => Math.max(...data.plain.moves.map((m) => m.bytes), ...data.tiled.moves.map((m) => m.bytes));

function Stored({ data, now, width }: { data: AttentionData; now: number; width: number }) {
  const f = plainFrame(data.plain, now);
  const name = data.plain.moves[f.move]?.name ?? "";
  const index = (move: string) => data.plain.moves.findIndex((m) => m.name === move);
  const rows = (move: string) => Math.round(((f.moved[index(move)] ?? 0) / (data.plain.moves[index(move)]?.bytes || 1)) * kSide);
  const s = rows("write S"), p = rows("write P"), o = rows("write O");
  const reads = name === "read S" || name === "read P" ? Math.min(kSide - 1, Math.floor(f.part * kSide)) : -1;
  return (
    <g>
      <Head title="Scores stored in memory" form={data.plain} now={now} moved={f.bytes} width={width} name="plain" />
      <g transform="translate(0 28)">
        <rect class="ghost" width={kGrid} height={kGrid} />
        <rect class="score" width={kGrid} height={s * cell} />
        <rect class="probability" width={kGrid} height={p * cell} />
        <path class="masked" d={`M${cell} 0H${kGrid}V${kGrid - cell}z`} fill="url(#masked)" />
        {reads >= 0 && <rect class="reading" y={reads * cell} width={kGrid} height={cell} />}
        <rect class="ghost" x={kGrid + 8} width={10} height={kGrid} /><rect class="written" x={kGrid + 8} width={10} height={o * cell} />
        <text class="dim" x={kGrid + 34} y={64}>{p > 0 ? "P, probabilities" : s > 0 ? "S, scores" : "nothing yet"}</text>
        <text class="dim" x={kGrid + 34} y={80}>{count(data.prompt)} × {count(data.prompt)}</text>
        <text class="dim" x={kGrid + 34} y={96}>hatched: masked,</text>
        <text class="dim" x={kGrid + 34} y={112}>still computed</text>
        <text class="dim" x={kGrid + 22} y={kGrid - 2}>O</text>
        <text class="dim" x={0} y={kGrid + 15}>rows are queries, columns keys</text>
      </g>
      <Causes form={data.plain} moved={f.moved} most={most(data)} width={width} y={228} on={(n) => n === name && now < data.plain.expected_s} />
      <text class="dim" x={0} y={228 + data.plain.moves.length * 17 + 16}>{onChip(data.plain)}</text>
    </g>
  );
}

function Tiled({ data, now, width }: { data: AttentionData; now: number; width: number }) {
  const f = tiledFrame(data.tiled, now);
  const size = kTile * cell;
  const at = now < data.tiled.expected_s ? kTiles[f.tile] : undefined;
  return (
    <g>
      <Head title="In tiles, scores stay on chip" form={data.tiled} now={Math.min(now, data.tiled.expected_s)} moved={f.bytes} width={width} name="tiled" />
      <g transform="translate(0 28)">
        <rect class="ghost" width={kGrid} height={kGrid} />
        {f.tiles.map(([q, k]) => <rect key={`${q} ${k}`} class="passed" x={k * size + 1} y={q * size + 1} width={size - 2} height={size - 2} />)}
        {at && <rect class="current" x={at[1] * size + 1} y={at[0] * size + 1} width={size - 2} height={size - 2} />}
        {at && <rect class="reading" y={at[0] * size} width={kGrid} height={size} />}
        {at && <text class="on" x={at[1] * size + size / 2} y={at[0] * size + size / 2 + 4} text-anchor="middle">S, P</text>}
        <rect class="ghost" x={kGrid + 8} width={10} height={kGrid} /><rect class="written" x={kGrid + 8} width={10} height={f.rows * size} />
        <text class="dim" x={kGrid + 34} y={64}>carried per row:</text>
        <text x={kGrid + 34} y={80}>maximum m, sum l</text>
        <text class="dim" x={kGrid + 34} y={96}>masked tiles</text>
        <text class="dim" x={kGrid + 34} y={112}>are skipped</text>
        {now >= data.plain.expected_s && <><text class="big" x={kGrid + 34} y={140}>{count(Math.round(data.plain.bytes / data.tiled.bytes))} times fewer bytes</text><text class="big" x={kGrid + 34} y={160}>{digits(data.plain.expected_s / data.tiled.expected_s)} times faster</text></>}
        <text class="dim" x={kGrid + 22} y={kGrid - 2}>O</text>
        <text class="dim" x={0} y={kGrid + 15}>a tile lives on chip, then is gone</text>
      </g>
      <Causes form={data.tiled} moved={f.moved} most={most(data)} width={width} y={228} on={() => false} />
      <text class="dim" x={0} y={228 + data.tiled.moves.length * 17 + 16}>{onChip(data.tiled)}</text>
    </g>
  );
}
