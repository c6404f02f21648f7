// What other weights would change: predicted for the served model at the batch and context that run
// now, or ran last.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, plain, type Problem } from "../api";
import { count, seconds, times } from "../format";
import type { Sweep, SweepPoint } from "../types";
import { WallTag } from "../walls";
import { store, useBeat } from "./draw";
import type { Serving } from "./events";
import { runningLoad, type RunningLoad } from "./store";

const kSettle = 300; // ms without a change before it is asked for

export function Formats({ serving }: { serving: Serving }) {
  const [open, unfold] = useState(false);
  const [told, tell] = useState<{ points: SweepPoint[]; at: RunningLoad; error: string } | null>(null);
  const last = useRef<RunningLoad>({ batch: 1, context: 256 });
  useBeat(2);
  last.current = runningLoad(store, serving.max_context) ?? last.current;
  const { batch, context } = last.current;
  const machine = serving.machine ?? "this";
  useEffect(() => {
    if (!open) return;
    let current = true;
    const at = { batch, context };
    const timer = setTimeout(() => {
      const query = new URLSearchParams({ model: serving.model, machine, weights: "bf16,int8,int4", batch: `${batch}`, context: `${context}` });
      ask(`/api/sweep?${query}`).then(
        (sweep) => current && tell({ points: (sweep as Sweep).points, at, error: "" }),
        (reason) => current && tell({ points: [], at, error: plain(reason as Problem) }));
    }, kSettle);
    return () => { current = false; clearTimeout(timer); };
  }, [open, batch, context, serving.model, machine]);
  const first = told?.points[0];
  return (
    <details class="figure formats" data-ran-batch={batch} data-ran-context={context} onToggle={(e) => unfold(e.currentTarget.open)}>
      <summary><h3>Other weights: predicted, not run</h3></summary>
      {told?.error && <p class="note">{told.error}</p>}
      {first && (
        <>
          <div class="scroll">
            <table data-batch={told.at.batch} data-context={told.at.context}>
              <thead><tr><th>weights</th><th class="n">step</th><th class="n">tok/s</th><th class="n">gain</th><th>wall</th></tr></thead>
              <tbody>{told.points.map((p) => (
                <tr key={p.weights}><td>{p.weights}</td><td class="n">{seconds(p.tpot_s)}</td><td class="n">{count(p.tokens_per_s)}</td><td class="n">{times(p.tokens_per_s / first.tokens_per_s)}</td><td><WallTag wall={p.wall} /></td></tr>
              ))}</tbody>
            </table>
          </div>
          <p class="note">Batch {told.at.batch}, context {told.at.context}, by <code>/api/sweep</code> for {serving.machine ?? "this machine"}. This model runs with {serving.weights}.</p>
        </>
      )}
    </details>
  );
}
