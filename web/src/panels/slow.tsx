// Why slow: what was seen, the wall it means, and the gain of each lever.
import { Fragment, type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { fieldErrors, plain, useView } from "../api";
import { dropped } from "../dropped";
import { NumberField } from "../controls";
import { count, percent, quantity, seconds, times } from "../format";
import { frozen } from "../frozen";
import { logScale } from "../scale";
import { config, get, observes, renamed, set } from "../state";
import type { Explanation, Lever } from "../types";
import { addStyle } from "../style";
import { WallTag } from "../walls";
import { EvidenceRoofline } from "./evidence";
import { dropTarget, Files, useFiles } from "./files";
import { ProfileFigures } from "./profile";
import css from "./slow.panel.css";

addStyle(css);

// [group, how many of its fields are always shown, fields as [option, label, hint]].
const kGroups: [string, number, [string, string, string][]][] = [
  ["Load", 4, [
    ["observed", "Output tokens/s", "280"],
    ["seen-batch", "Sequences decoding", "8"],
    ["running", "Requests running", "8"],
    ["waiting", "Requests waiting", "0"],
    ["max-running", "Max sequences", "256"],
    ["preemptions", "Preemptions", "0"],
    ["seen-output", "Output length", "256"],
  ]],
  ["Latency", 4, [
    ["itl", "Inter-token latency", "28 ms"],
    ["itl-p99", "Inter-token p99", "200 ms"],
    ["ttft", "First token", "900 ms"],
    ["queue-time", "Queue time", "2.1 s"],
    ["itl-p50", "Inter-token p50", "25 ms"],
  ]],
  ["Cache", 2, [
    ["kv-usage", "KV cache used", "0 – 1"],
    ["prompt-hit", "Prefix hits", "0 – 1"],
    ["accepted", "Acceptance length", "2.3"],
  ]],
  ["Device", 4, [
    ["gpu-util", "GPU utilisation", "0 – 1"],
    ["dram-active", "DRAM active", "0 – 1"],
    ["tensor-active", "Tensor active", "0 – 1"],
    ["power", "Power", "690 W"],
    ["power-limit", "Power limit", "700 W"],
    ["sm-clock", "SM clock", "1410 MHz"],
    ["sm-active", "SM active", "0 – 1"],
    ["cpu", "CPU busy", "0 – 1"],
    ["graph-max", "Largest CUDA graph", "256"],
  ]],
];
const kOptions = kGroups.flatMap(([, , fields]) => fields.map(([option]) => option));
const kRare = kGroups.flatMap(([, shown, fields]) => fields.slice(shown).map(([option]) => option));

function Fields({ rare }: { rare: boolean }) {
  return (
    <div class="groups">
      {kGroups.map(([title, shown, fields]) => (
        <fieldset key={title}>
          <legend>{title}</legend>
          <div class="fields">{(rare ? fields.slice(shown) : fields.slice(0, shown)).map(([option, label, hint]) => <NumberField key={option} option={option} label={label} hint={hint} />)}</div>
        </fieldset>
      ))}
    </div>
  );
}

// A case as people bring it: two numbers of a dashboard.
const kExample = { model: "llama-3-70b", machine: "8xh100-sxm", context: "4096", batch: undefined, prompt: undefined, observed: "280", "gpu-util": "0.38" };

function Form() {
  const [open] = useState(() => kRare.some((option) => config.value[option]));
  return (
    <form class="observed" aria-label="What you see" onSubmit={(e) => e.preventDefault()}>
      <Fields rare={false} />
      <details open={open}><summary>More: limits, clocks, lengths, host</summary><Fields rare /></details>
      <div class="chips">
        <button type="button" class="chip" onClick={() => set(kExample)}>Example: Llama 3 70B on 8 × H100, 280 tok/s at 38 % utilisation</button>
        {observes(config.value) && <button type="button" class="chip" onClick={() => set(Object.fromEntries(kOptions.map((name) => [name, undefined])))}>Clear</button>}
      </div>
    </form>
  );
}

const tidy = (text: string) => text.replace(/^--/, "").replace("->", "→");
const optional = <T,>(value: T | null | undefined, show: (value: T) => ComponentChildren) => (value === null || value === undefined ? null : show(value));

// [class, mark, words]: colour, shape and words each tell whether something is wrong.
function judged(x: Explanation): [string, string, string] {
  if (x.verdict === "unknown") return ["unsure", "?", "not decided"];
  if (x.verdict === "impossible") return ["unsure", "?", "a number is wrong"];
  return x.healthy ? ["healthy", "✓", "nothing is wrong"] : ["problem", "✕", "problem"];
}

function FactList({ facts }: { facts: [string, ComponentChildren][] }) {
  const known = facts.filter(([, value]) => value !== null);
  return known.length ? <dl class="facts">{known.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl> : null;
}

function Facts({ x }: { x: Explanation }) {
  const { observed: o, expected: e } = x;
  const [kind, mark, words] = judged(x);
  const what = e?.phase === "prefill" ? "prompt" : "step";
  const of = (value: number | null | undefined, show: (value: number) => string) => (o.step_s ? optional(value, show) : null);
  return (
    <>
      <FactList facts={[
        [words, <span class={kind}><span aria-hidden="true">{mark}</span> {x.verdict}</span>],
        ["confidence", x.confidence > 0 ? percent(x.confidence) : null],
        ["runner-up", optional(x.runner_up, (name) => `${name} ${percent(x.runner_up_confidence)}`)],
        ["wall", optional(x.wall, (wall) => <WallTag wall={wall} />)],
        ["next wall", optional(x.next_wall, (wall) => <WallTag wall={wall} />)],
      ]} />
      <FactList facts={[
        [`${what} observed`, of(o.step_s, seconds)],
        ["expected", optional(e, ({ expected_s, low_s, high_s }) => <span title={`band ${seconds(low_s)} – ${seconds(high_s)}`}>{seconds(expected_s)}</span>)],
        ["roof", optional(e, ({ roof_s }) => seconds(roof_s))],
        ["of the roof", of(o.share_of_roof, percent)],
        ["over expected", of(o.over_expected, times)],
        ["MBU", of(o.mbu, percent)],
        ["MFU", of(o.mfu, percent)],
        ["batch", optional(o.batch, count)],
        ["useful batch", optional(e, ({ useful_batch }) => count(useful_batch))],
      ]} />
    </>
  );
}

function Evidence({ x }: { x: Explanation }) {
  const of = (bearing: string) => x.evidence.filter((e) => e.bearing === bearing).map((e) => e.text);
  const lists: [string, string, string, string[]][] = [
    ["supports", "Evidence for it", "+", of("supports")],
    ["contradicts", "Against it, or other causes", "−", of("contradicts")],
    ["missing", "What would settle it", "?", x.missing],
  ];
  return (
    <div class="evidence">
      {lists.filter(([, , , list]) => list.length).map(([bearing, title, mark, list]) => (
        <div key={bearing}><h3>{title}</h3><ul class={bearing}>{list.map((text) => <li key={text}><span aria-hidden="true">{mark}</span> {tidy(text)}</li>)}</ul></div>
      ))}
    </div>
  );
}

const kBar = 90; // pixels

// Levers that answer the verdict come first, then the others. Not every lever can be predicted.
function Levers({ x }: { x: Explanation }) {
  const gain = (l: Lever) => (x.expected?.phase === "prefill" ? l.ttft_gain : l.gain) ?? 0;
  // On a logarithmic axis: gains go right of x1, losses left.
  const known = x.levers.map(gain).filter((g) => g > 0);
  const at = logScale(Math.min(1, ...known), Math.max(2, ...known), 0, kBar);
  const predicted = x.levers.some((l) => l.gain !== null);
  const groups: [string, Lever[]][] = [["For this verdict", x.levers.filter((l) => l.targeted)], ["Other levers", x.levers.filter((l) => !l.targeted)]];
  return (
    <div class="scroll">
      <table class="levers">
        <thead><tr><th>lever</th>{predicted && <><th class="n">tok/s per device</th><th aria-hidden="true" class="wide" /><th class="n">per token</th><th class="n">first token</th><th>next wall</th></>}</tr></thead>
        {groups.filter(([, list]) => list.length).map(([title, list]) => (
          <tbody key={title}>
            <tr><th scope="rowgroup" colSpan={6}>{title}</th></tr>
            {list.map((l) => (
              <Fragment key={l.name}>
                <tr>
                  <td>{tidy(l.name)}</td>
                  {predicted && <>
                    <td class="n" data-label="tok/s">{optional(l.gain, times)}</td>
                    <td class="wide">{l.next_wall && <svg class="gain" width={kBar} height="12" aria-hidden="true">
                      {gain(l) > 0 && <rect class={`wall-${l.next_wall}`} x={Math.min(at(1), at(gain(l)))} y="2" width={Math.abs(at(gain(l)) - at(1))} height="8" />}
                      <line x1={at(1)} x2={at(1)} y1="0" y2="12" />
                    </svg>}</td>
                    <td class="n" data-label="per token">{optional(l.tpot_s, seconds)}</td><td class="n" data-label="first token">{optional(l.ttft_gain, times)}</td><td data-label="then">{optional(l.next_wall, (wall) => <WallTag wall={wall} />)}</td>
                  </>}
                </tr>
                <tr class="how"><td colSpan={6}>{l.setting && <code>{l.setting}</code>} <small>{l.note}</small></td></tr>
              </Fragment>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

// What the answer was made from; numbers that were typed stand in the form.
function Sources({ x }: { x: Explanation }) {
  const seen = x.observed.quantities;
  const untold = ["model", "machine"].filter((name) => x.missing.some((text) => text.startsWith(`--${name}:`))).map((name) => `the ${name}`);
  const path = (file: number) => x.files[file]?.path.split("/").pop();
  return (
    <>
      {seen.length > 0 && (
        <div class="scroll">
          <table class="quantities">
            <thead><tr><th>observed</th><th class="n">value</th><th>origin</th><th>trust</th>{x.files.length > 1 && <th>file</th>}</tr></thead>
            <tbody>
              {seen.map((q) => (
                <tr key={q.name}>
                  <td>{q.name.replaceAll("_", " ")}</td><td class="n">{quantity(q.name, q.value)}</td><td><code>{q.origin}</code></td>
                  <td>{q.trust}{q.window_s ? `, ${seconds(q.window_s)}` : ""}</td>{x.files.length > 1 && <td>{path(q.file)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <ul class="files">
        {x.files.map((file) => (
          <li key={file.path}><code>{file.path}</code>: {file.kind}{file.window && `, ${file.window}`}{[...file.notes, ...(file.unknown.length ? [`${file.unknown.length} metrics of this engine are not known to Ridge`] : [])].map((note) => <small key={note}>{note}</small>)}</li>
        ))}
        {untold.length > 0 && <li>The files do not tell {untold.join(" or ")}; {frozen ? `the other panels show ${get("model")} on ${get("machine")}` : `choose ${untold.length > 1 ? "those" : "that"} of the form above`}.</li>}
        {x.identified.length > 0 && <li>From the files: {x.identified.join(", ")}</li>}
      </ul>
    </>
  );
}

function Answer({ x }: { x: Explanation }) {
  return (
    <>
      <p class={`sentence verdict ${judged(x)[0]}`} data-verdict={x.verdict}><span>{x.sentence}</span></p>
      <Facts x={x} />
      <Evidence x={x} />
      {x.levers.length > 0 && <Levers x={x} />}
      <EvidenceRoofline x={x} />
      {x.profile && <ProfileFigures profile={x.profile} />}
      {(frozen || x.files.some((file) => file.kind !== "numbers as typed")) && <Sources x={x} />}
    </>
  );
}

export default function SlowPanel() {
  const sent = dropped.value.files.length > 0;
  const given = frozen !== null || observes(config.value);
  const typed = useView<Explanation>("explain", undefined, given && !sent);
  const files = useFiles();
  const { data, error, busy } = sent ? files : typed;
  const option = error && kOptions.find((name) => renamed(name) === error.option);
  useEffect(() => {
    const others = Object.entries(fieldErrors.value).filter(([name]) => !kOptions.includes(name));
    fieldErrors.value = Object.fromEntries(option ? [...others, [option, error.message]] : others);
  }, [error]);
  return (
    <section class="panel" {...(frozen ? {} : dropTarget)}>
      {!frozen && <><Files busy={busy} /><Form /></>}
      {!given && !sent && <p class="sentence">Give files of your endpoint, or type what you see of it; one number is enough to begin.</p>}
      {(given || sent) && error && !option && <p class="note error" role="alert">{plain(error)}</p>}
      {(given || sent) && data && !error && <Answer x={data} />}
    </section>
  );
}
