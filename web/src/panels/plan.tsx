// Plan: which machines meet latency targets for a traffic, what they cost, and what breaks first.
import { useEffect, useState } from "preact/hooks";
import { plain, useView } from "../api";
import { Axes, Chart, frame, path, spread } from "../axes";
import { NumberField } from "../controls";
import { Figure } from "../figure";
import { axis, axisSeconds, count, percent, seconds, times } from "../format";
import { logDomain, logScale } from "../scale";
import { get, planned, set, type Config } from "../state";
import { addStyle } from "../style";
import css from "./plan.panel.css";

addStyle(css);

interface Tail { value: number; low: number; high: number }
interface Service { ttft_s: { tail: Tail }; itl_s: { tail: Tail }; e2e_s: { tail: Tail }; goodput: number | null; requests: number; output_tokens_per_s: number }
interface Candidate {
  model: string; machine: string; stack: string; tp: number; pp: number; ep: number; weights: string | null; machines: number; replicas: number;
  meets: boolean; on_front: boolean; dollars_per_hour: number | null; dollars_per_mtok: number | null; watts: number | null;
  ttft_s: number | null; itl_s: number | null; e2e_s: number | null; percentile: number; reason: string; max_num_batched_tokens: number;
}
interface PlanAnswer {
  traffic: { requests: number; duration_s: number; requests_per_s: number; clients: number | null; mean_prompt: number; mean_output: number };
  headroom: number; candidates: Candidate[];
  best: {
    service: Service; launch: string; breaks: { factor: number; found: boolean; target: string; wall: string } | null;
    sensitivity: { change: string; machines: number | null; dollars_per_hour: number | null; service: Service }[];
    break_even_prices: { machine: string; dollars_per_device_hour: number | null }[];
  } | null;
}

const kMetrics = { ttft_s: "TTFT", itl_s: "ITL", e2e_s: "whole answer" } as const;
type Metric = keyof typeof kMetrics;

const layout = (c: Candidate) => [`tp ${c.tp}`, ...(c.pp > 1 ? [`pp ${c.pp}`] : []), ...(c.ep > 1 ? [`ep ${c.ep}`] : []), ...(c.weights ? [c.weights] : [])].join(", ");
const dollars = (v: number | null) => (v === null ? "?" : `$${v.toFixed(2)}`);
const called = (c: Candidate) => `${c.machines} × ${c.machine}, ${layout(c)}`;

// "28ms" as the command line reads it; only to place a line.
function typedTarget(text: string): number | null {
  const match = /^([\d.]+)\s*(s|ms|us)?$/.exec(text.trim());
  return match ? Number(match[1]) * ({ ms: 1e-3, us: 1e-6 }[match[2] ?? ""] ?? 1) : null;
}

// Cost against latency. Configurations that nothing beats in both are joined: the front of this picture.
function Scatter({ answer, metric, width }: { answer: PlanAnswer; metric: Metric; width: number }) {
  const points = answer.candidates.filter((c) => c.machines > 0 && c.dollars_per_hour !== null && c[metric] !== null);
  if (points.length === 0) return <p class="note">No candidate was simulated with a known price.</p>;
  const narrow = width < 620;
  const f = frame(width, narrow ? 320 : 400, 62, narrow ? 14 : 30, 14, 40);
  const cost = (c: Candidate) => c.dollars_per_hour as number;
  const wait = (c: Candidate) => c[metric] as number;
  const target = typedTarget(get(`plan-${metric.slice(0, -2)}`));
  const x = logScale(...logDomain(points.map(cost), 1.5), f.left, f.right);
  const y = logScale(...logDomain([...points.map(wait), ...(target ? [target] : [])], 1.5), f.bottom, f.top);
  const sorted = points.filter((c) => c.meets).sort((a, b) => cost(a) - cost(b) || wait(a) - wait(b));
  const front = sorted.filter((c, i) => sorted.slice(0, i).every((other) => wait(other) > wait(c)));
  const named = narrow ? front.slice(0, 1) : front;
  const tops = spread(named.map((c) => y(wait(c)) - 14), 14, f.top + 8, f.bottom - 8);
  return (
    <Chart frame={f} label={`Cost per hour against ${kMetrics[metric]}`}>
      <Axes frame={f} x={x} y={y} xTitle="$ per hour" yTitle={`p${answer.candidates[0]?.percentile} ${kMetrics[metric]}`} xFormat={axis} yFormat={axisSeconds} />
      {target && <g class="target"><line x1={f.left} x2={f.right} y1={y(target)} y2={y(target)} /><text x={f.right - 4} y={y(target) - 4} text-anchor="end">target {seconds(target)}</text></g>}
      <path class="front" d={path(front.map((c) => [x(cost(c)), y(wait(c))] as const))} />
      {points.map((c, i) => (
        <g key={i} class={`plan-point${c === answer.candidates[0] && c.meets ? " best" : ""}`} transform={`translate(${x(cost(c))} ${y(wait(c))})`} data-plan={c.machine} data-cost={cost(c)}>
          {c === answer.candidates[0] && c.meets && <circle r={9} />}
          <circle r={4.5} class={c.meets ? "mark-meets" : "mark-misses"} />
          <title>{`${called(c)}: ${dollars(cost(c))}/h, ${kMetrics[metric]} ${seconds(wait(c))}${c.meets ? "" : `; ${c.reason}`}`}</title>
        </g>
      ))}
      {named.map((c, i) => {
        const left = x(cost(c)) > f.right - 190;
        return <text key={i} class="point-label" x={x(cost(c)) + (left ? -9 : 9)} y={tops[i]} text-anchor={left ? "end" : "start"}>{called(c)}</text>;
      })}
    </Chart>
  );
}

function Best({ answer }: { answer: PlanAnswer }) {
  const [first] = answer.candidates;
  const { best } = answer;
  if (!best || !first) return <p class="sentence" data-plan-best="none">No candidate meets the targets. The table says what each lacks.</p>;
  const s = best.service;
  const tail = (name: string, t: Tail) => <div><dt>p{first.percentile} {name}</dt><dd title={`95 % confidence: ${seconds(t.low)} – ${seconds(t.high)}`}>{seconds(t.value)}</dd></div>;
  return (
    <>
      <p class="sentence" data-plan-best={first.machine}>
        Cheapest: <b>{called(first)}</b> with {first.stack}, {dollars(first.dollars_per_hour)} per hour
        {first.dollars_per_mtok !== null && <>, {dollars(first.dollars_per_mtok)} per million output tokens</>}.{" "}
        {best.breaks && (best.breaks.found
          ? <>It takes {times(best.breaks.factor)} the load; beyond, {best.breaks.target} breaks first: {best.breaks.wall}.</>
          : <>Nothing breaks up to {times(best.breaks.factor)} the load.</>)}
      </p>
      <dl class="facts">
        {tail("TTFT", s.ttft_s.tail)}{tail("ITL", s.itl_s.tail)}{tail("whole answer", s.e2e_s.tail)}
        {s.goodput !== null && <div><dt>meet all targets</dt><dd>{percent(s.goodput)}</dd></div>}
        <div><dt>output</dt><dd>{count(s.output_tokens_per_s)} tok/s</dd></div>
        {first.watts !== null && <div><dt>power at most</dt><dd>{count(first.watts / 1000)} kW</dd></div>}
      </dl>
      <div><h3>On each replica</h3><code class="plan-launch" data-plan-launch>{best.launch}</code></div>
      <div class="two">
        <div class="scroll">
          <table class="numbers">
            <thead><tr><th>if</th><th class="n">needs</th><th class="n">$ per hour</th><th class="n">TTFT as it is</th><th class="n">ITL as it is</th></tr></thead>
            <tbody>{best.sensitivity.map((row) => <tr key={row.change}><td>{row.change}</td><td class="n">{row.machines === null ? "more" : `${row.machines} ×`}</td><td class="n">{dollars(row.dollars_per_hour)}</td><td class="n">{seconds(row.service.ttft_s.tail.value)}</td><td class="n">{seconds(row.service.itl_s.tail.value)}</td></tr>)}</tbody>
          </table>
        </div>
        <ul class="note">{[...new Map(best.break_even_prices.filter((p) => p.machine !== first.machine && p.dollars_per_device_hour !== null).reverse().map((p) => [p.machine, p])).values()].reverse()
          .map((p) => <li key={p.machine}>{p.machine} would cost the same at {dollars(p.dollars_per_device_hour)} per device and hour.</li>)}</ul>
      </div>
    </>
  );
}

function Candidates({ answer }: { answer: PlanAnswer }) {
  return (
    <div class="scroll">
      <table class="plan-table">
        <thead><tr><th>machine</th><th>replica</th><th class="n">needs</th><th class="n">$ per hour</th><th class="n">TTFT</th><th class="n">ITL</th><th class="n">whole answer</th><th>verdict</th></tr></thead>
        <tbody>{answer.candidates.map((c, i) => (
          <tr key={i} class={i === 0 && c.meets ? "here" : ""}>
            <td>{c.machine}</td><td>{layout(c)}</td><td class="n">{c.machines ? `${c.machines} ×` : "–"}</td><td class="n">{c.machines ? dollars(c.dollars_per_hour) : "–"}</td>
            {(["ttft_s", "itl_s", "e2e_s"] as const).map((m) => <td key={m} class="n">{c[m] === null ? "–" : seconds(c[m])}</td>)}
            <td>{i === 0 && c.meets ? "cheapest" : `${c.on_front ? "faster, " : ""}${c.reason}`}</td>
          </tr>
        ))}</tbody>
      </table>
    </div>
  );
}

function Form({ ask, busy }: { ask: () => void; busy: boolean }) {
  const text = (option: string, label: string, hint: string) => (
    <div class="field wide-text"><label for={option}>{label}</label><input id={option} name={option} value={get(option)} placeholder={hint} spellcheck={false} autocomplete="off" onInput={(e) => set({ [option]: e.currentTarget.value.trim() })} /></div>
  );
  return (
    <form class="plan-form inline" aria-label="What is to be served" onSubmit={(e) => { e.preventDefault(); ask(); }}>
      <fieldset><legend>Traffic</legend>
        <NumberField option="plan-rate" label="Requests/s" />
        <NumberField option="plan-clients" label="or clients" hint="64" />
        <NumberField option="plan-prompt" label="Prompt" hint="lognormal:600,0.7" />
        <NumberField option="plan-output" label="Answer" hint="50..400" />
        <NumberField option="plan-burstiness" label="Burstiness" hint="1" />
      </fieldset>
      <fieldset><legend>Targets</legend>
        <NumberField option="plan-ttft" label="First token" hint="500 ms" />
        <NumberField option="plan-itl" label="Per token" hint="40 ms" />
        <NumberField option="plan-e2e" label="Whole answer" hint="10 s" />
        <NumberField option="plan-percentile" label="Percentile" hint="99" />
        <NumberField option="plan-headroom" label="Headroom, %" hint="20" />
      </fieldset>
      <fieldset><legend>Machines to choose from</legend>
        {text("plan-machine", "Names, comma-separated; NAME=2.5 sets a price per device and hour", "all priced machines")}
        {text("plan-weights", "Weight formats", "bf16,fp8")}
      </fieldset>
      <button class="plan-go" disabled={busy}>{busy ? "Searching…" : "Find the cheapest"}</button>
    </form>
  );
}

export default function PlanPanel() {
  // A search takes seconds and all cores: it runs when it is asked for, with what is typed then.
  const [asked, ask] = useState<Config>(planned);
  const [metric, measure] = useState<Metric>("ttft_s");
  const [since, start] = useState(0); // seconds
  const { data, error, busy } = useView<PlanAnswer>("plan", asked);
  useEffect(() => {
    start(0);
    if (!busy) return;
    const timer = setInterval(() => start((s) => s + 1), 1000);
    return () => clearInterval(timer);
  }, [busy]);
  return (
    <section class="panel">
      <Form ask={() => ask(planned())} busy={busy} />
      <p class="note" role="status">{busy ? `Every candidate is simulated with the same requests${since > 1 ? `: ${since} s, at most 30` : ""}…` : ""}</p>
      {error && <p class="note error" role="alert">{plain(error)}</p>}
      {data && !error && (
        <>
          <Best answer={data} />
          <Figure name="plan" title={`Cost against latency: ${data.traffic.clients ? `${count(data.traffic.clients)} clients` : `${count(data.traffic.requests_per_s)} requests/s`}, prompts of ${count(Math.round(data.traffic.mean_prompt))} tokens, answers of ${count(Math.round(data.traffic.mean_output))}`}
            rows={data.candidates} json={data}
            tools={<span class="chips" role="group" aria-label="Latency">{(Object.keys(kMetrics) as Metric[]).map((m) => <button key={m} type="button" class="chip" aria-pressed={metric === m} onClick={() => measure(m)}>{kMetrics[m]}</button>)}</span>}
            draw={(w) => <Scatter answer={data} metric={metric} width={w} />}
            note={`Filled: meets every target with ${percent(data.headroom)} more load. Hollow: misses one. The line joins those that nothing beats in cost and this latency; the ring is the cheapest.`} />
          <Candidates answer={data} />
        </>
      )}
    </section>
  );
}
