// What other weights would change: predicted for the served model, not run.
import { useState } from "preact/hooks";
import { ask, plain, type Problem } from "../api";
import { count, seconds, times } from "../format";
import type { Sweep, SweepPoint } from "../types";
import { WallTag } from "../walls";
import { store } from "./draw";
import type { Serving } from "./events";

const kContext = 256;

export function Formats({ serving }: { serving: Serving }) {
  const [told, tell] = useState<{ points: SweepPoint[]; batch: number; error: string } | null>(null);
  const load = async (open: boolean) => {
    if (!open) return;
    const batch = Math.max(1, store.running);
    const query = new URLSearchParams({ model: serving.model, machine: serving.machine ?? "this", weights: "bf16,int8,int4", batch: `${batch}`, context: `${kContext}` });
    try {
      tell({ points: ((await ask(`/api/sweep?${query}`)) as Sweep).points, batch, error: "" });
    } catch (reason) {
      tell({ points: [], batch, error: plain(reason as Problem) });
    }
  };
  const first = told?.points[0];
  return (
    <details class="figure formats" onToggle={(e) => void load(e.currentTarget.open)}>
      <summary><h3>Other weights: predicted, not run</h3></summary>
      {told?.error && <p class="note">{told.error}</p>}
      {first && (
        <>
          <table>
            <thead><tr><th>weights</th><th class="n">step</th><th class="n">tok/s</th><th class="n">gain</th><th>wall</th></tr></thead>
            <tbody>{told.points.map((p) => (
              <tr key={p.weights}><td>{p.weights}</td><td class="n">{seconds(p.tpot_s)}</td><td class="n">{count(p.tokens_per_s)}</td><td class="n">{times(p.tokens_per_s / first.tokens_per_s)}</td><td><WallTag wall={p.wall} /></td></tr>
            ))}</tbody>
          </table>
          <p class="note">Batch {told.batch}, context {kContext}, by <code>/api/sweep</code> for {serving.machine ?? "this machine"}. This model runs with {serving.weights}.</p>
        </>
      )}
    </details>
  );
}
