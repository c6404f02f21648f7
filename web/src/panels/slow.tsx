// Why slow: the observation, the wall it means, and the gain of each lever.
import { useEffect } from "preact/hooks";
import { fieldErrors, plain, useView } from "../api";
import { NumberField } from "../controls";
import { count, percent, seconds, times } from "../format";
import { frozen } from "../frozen";
import { config, set } from "../state";
import type { Explanation } from "../types";
import { WallTag } from "../walls";

const kFields: [string, string, string][] = [
  ["observed", "Output tokens/s", "280"],
  ["seen-batch", "Running sequences", "8"],
  ["itl", "Inter-token latency", "28ms"],
  ["ttft", "First token", "900ms"],
  ["gpu-util", "GPU utilisation", "0 – 1"],
  ["dram-active", "DRAM active", "0 – 1"],
  ["tensor-active", "Tensor active", "0 – 1"],
  ["kv-usage", "KV cache used", "0 – 1"],
  ["waiting", "Waiting requests", "0"],
  ["power", "Power per device", "690W"],
];
const kBearings = [
  ["supports", "Evidence for it", "+"],
  ["contradicts", "Against it, or other causes", "−"],
  ["missing", "Not observed; would decide it", "?"],
] as const;

function Answer({ x }: { x: Explanation }) {
  const gain = (l: Explanation["levers"][number]) => (config.value["observed"] || config.value["itl"] ? l.gain : l.ttft_gain);
  const best = Math.max(1, ...x.levers.map(gain));
  return (
    <>
      <p class="sentence verdict" data-verdict={x.verdict}>{x.sentence}</p>
      <dl class="facts">
        <div><dt>wall</dt><dd><WallTag wall={x.wall} /></dd></div>
        <div><dt>next wall</dt><dd><WallTag wall={x.next_wall} /></dd></div>
        <div><dt>step</dt><dd>{seconds(x.observed.step_s)}</dd></div>
        <div><dt>of the roof</dt><dd>{percent(x.observed.share_of_roof)}</dd></div>
        <div><dt>over expected</dt><dd>{times(x.observed.over_expected)}</dd></div>
        <div><dt>MBU</dt><dd>{percent(x.observed.mbu)}</dd></div>
        <div><dt>MFU</dt><dd>{percent(x.observed.mfu)}</dd></div>
        <div><dt>useful batch</dt><dd>{count(x.useful_batch)}</dd></div>
      </dl>
      <div class="evidence">
        {kBearings.map(([bearing, title, mark]) => {
          const list = x.evidence.filter((e) => e.bearing === bearing);
          return list.length ? (
            <div key={bearing}><h3>{title}</h3><ul class={bearing}>{list.map((e) => <li key={e.text}><span aria-hidden="true">{mark}</span> {e.text.replace(/^--/, "").replace(" -> ", " → ")}</li>)}</ul></div>
          ) : null;
        })}
      </div>
      <h3>Levers, by predicted gain</h3>
      <div class="scroll">
        <table class="levers">
          <thead><tr><th>lever</th><th class="n">tok/s per device</th><th aria-hidden="true" class="wide" /><th class="n">per token</th><th class="n">first token</th><th>next wall</th><th>why</th></tr></thead>
          <tbody>
            {x.levers.map((l) => (
              <tr key={l.name}>
                <td>{l.name.replace("->", "→")}</td><td class="n">{times(l.gain)}</td>
                <td class="wide"><svg class="meter" width="90" height="8" aria-hidden="true"><rect class="track" width="90" height="8" /><rect class={`wall-${l.next_wall}`} width={Math.max(1, (90 * Math.log2(1 + gain(l))) / Math.log2(1 + best))} height="8" /></svg></td>
                <td class="n">{seconds(l.tpot_s)}</td><td class="n">{times(l.ttft_gain)}</td><td><WallTag wall={l.next_wall} /></td><td class="why">{l.note}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export function SlowPanel() {
  const given = kFields.some(([name]) => ["observed", "itl", "ttft"].includes(name) && config.value[name]);
  const view = useView<Explanation>("explain", undefined, given || frozen !== null);
  const problem = view.error;
  useEffect(() => {
    const option = problem?.option === "batch" ? "seen-batch" : problem?.option;
    if (problem && option && kFields.some(([name]) => name === option)) fieldErrors.value = { ...fieldErrors.value, [option]: problem.message };
  }, [problem]);
  return (
    <section class="panel">
      <form class="observed" aria-label="What you see" onSubmit={(e) => e.preventDefault()}>
        <fieldset disabled={frozen !== null}>
          <legend>What you see</legend>
          <div class="fields">{kFields.map(([name, label, hint]) => <NumberField key={name} option={name} label={label} hint={hint} />)}</div>
        </fieldset>
      </form>
      {!given && !frozen && (
        <p class="sentence">
          Type what your endpoint does: tokens per second, time per token or time to first token. For example{" "}
          <button type="button" class="link" onClick={() => set({ observed: "600", "seen-batch": "8", "gpu-util": "0.4" })}>600 tok/s from 8 sequences at 40 % utilisation</button>.
        </p>
      )}
      {problem && (given || frozen) && <p class="note error" role="alert">{plain(problem)}</p>}
      {given && view.data && !problem && <Answer x={view.data} />}
      {frozen && view.data && !given && <Answer x={view.data} />}
    </section>
  );
}
