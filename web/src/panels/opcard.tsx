// One operator: both times, with the formula and its numbers.
import { bytes, count, flopRate, flops, percent, rate, seconds } from "../format";
import type { PlacedOp, Wall } from "../types";
import { kTimed, WallTag } from "../walls";

export function OpCard({ op, left, top, width }: { op: PlacedOp; left: number; top: number; width: number }) {
  const size = Math.min(330, width - 16);
  const place = { left: `${Math.max(4, Math.min(left + 16, width - size - 4))}px`, top: `${top + 16}px`, width: `${size}px` };
  const rest = kTimed.filter((w: Wall) => w !== "compute" && w !== "memory" && (op.on_s[w] ?? 0) > 0);
  return (
    <div class="card" style={place} role="status">
      <h4>{op.phase} {op.name} <small>× {count(op.count)}, {op.math}{op.runs_as !== op.math ? ` run in ${op.runs_as}` : ""}</small></h4>
      <dl>
        <dt>compute</dt>
        <dd>{flops(op.flops)} ÷ {flopRate(op.peak)} = <b>{seconds(op.at_peak_s)}</b>, expected {seconds(op.on_s["compute"])}</dd>
        <dt>memory</dt>
        <dd>{bytes(op.bytes)} ÷ {rate(op.bandwidth)} = <b>{seconds(op.at_bandwidth_s)}</b>, expected {seconds(op.on_s["memory"])}</dd>
        {rest.map((w) => [<dt key={w}>{w}</dt>, <dd key={`${w}d`}>{seconds(op.on_s[w])}</dd>])}
        <dt>total</dt>
        <dd><b>{seconds(op.expected_s)}</b>, roof {seconds(op.roof_s)}, {percent(op.share)} of {op.phase}</dd>
      </dl>
      <p>{count(op.intensity)} FLOP per byte; wall: <WallTag wall={op.wall} />.</p>
    </div>
  );
}
