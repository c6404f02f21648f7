// One row of attention computed in blocks: what is carried, and that it ends where the whole row does.
import { useMemo } from "preact/hooks";
import { digits } from "../format";
import { Player } from "../player";
import type { Timeline } from "../timeline";
import type { RowTrace } from "./attention-frame";

export function RowFilm({ row }: { row: RowTrace }) {
  const timeline = useMemo(() => rowTimeline(row), [row]);
  return <Player name="attention-row" label="One query row, block by block" timeline={timeline} pace="one block a second and a half on the screen" clock={(t) => `${Math.min(row.blocks.length, Math.floor(t + 1e-9))} blocks`} draw={(now, width) => <Drawing row={row} now={now} width={width} />} />;
}

const small = (v: number) => v.toExponential(1).replace("e", " × 10^").replace("+", "");

function rowTimeline(row: RowTrace): Timeline {
  const events = row.blocks.map((b, i) => ({ at: i + 1, text: `Keys ${b.first + 1} to ${b.first + b.keys}: maximum ${digits(b.m)}, what was summed before times ${digits(b.rescale)}, sum ${digits(b.l)}` }));
  events.push({ at: row.blocks.length + 1, text: `Equal up to rounding: whole row and blocks differ by ${small(row.difference)} at most, the engine's kernel by ${small(row.engine_difference)}; rounding allows ${small(row.bound)}` });
  return { scenes: [{ seconds: row.blocks.length + 1, screen: 1.5 * (row.blocks.length + 1) }], events };
}

function Drawing({ row, now, width }: { row: RowTrace; now: number; width: number }) {
  const done = Math.min(row.blocks.length, Math.floor(now + 1e-9));
  const block = row.blocks[done - 1];
  const low = Math.min(...row.scores), high = Math.max(...row.scores);
  const top = 30, base = 120;
  const y = (s: number) => base - ((s - low) / (high - low || 1)) * (base - top);
  const step = width / row.n;
  const seen = block ? block.first + block.keys : 0;
  const here = block?.first ?? 0;
  const out = block?.output ?? row.plain.map(() => 0);
  const size = Math.max(...row.plain.map(Math.abs), ...row.blocks.flatMap((b) => b.output.map(Math.abs)));
  const across = Math.min(width, 420) / row.head_dim;
  const zero = 186;
  return (
    <svg class="row-film" width={width} height={236} viewBox={`0 0 ${width} 236`} role="img" aria-label={`${done} of ${row.blocks.length} blocks`}>
      <text class="strong" x={0} y={13}>One query, {row.n} keys</text>
      <text class="dim" x={width} y={13} text-anchor="end">{block ? `m ${digits(block.m)}   l ${digits(block.l)}` : "m −∞   l 0"}</text>
      {row.scores.map((s, i) => <rect key={i} class={`score-bar${i < seen ? (i >= here ? " here" : " seen") : ""}`} x={i * step} y={y(s)} width={Math.max(1, step - 1)} height={base + 4 - y(s)} />)}
      {block && <><line class="max" x1={0} x2={seen * step} y1={y(block.m)} y2={y(block.m)} /><text x={Math.min(width - 80, seen * step + 4)} y={y(block.m) + 4}>maximum</text></>}
      <text class="dim" x={0} y={base + 22}>scores, {row.block} keys a block</text>
      {row.plain.map((v, i) => <rect key={i} class="final" x={i * across + 1} y={zero - Math.max(0, (v / size) * 34)} width={across - 4} height={Math.max(1, Math.abs(v / size) * 34)} />)}
      {out.map((v, i) => <rect key={i} class="out" x={i * across + 3} y={zero - Math.max(0, (v / size) * 34)} width={across - 8} height={Math.abs(v / size) * 34} />)}
      <text class="dim" x={0} y={zero + 46}>output so far; outlined, the whole row's softmax</text>
      {now >= row.blocks.length + 1 && width > 560 && <text x={width} y={zero} text-anchor="end">largest difference {small(row.difference)}, rounding allows {small(row.bound)}</text>}
    </svg>
  );
}
