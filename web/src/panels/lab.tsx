// The lab: each claim of the field as an experiment. Predicted first, then measured on this machine.
import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../api";
import { Axes, Chart, frame, path, type Frame } from "../axes";
import { Figure } from "../figure";
import { axis, bytes, digits, percent, seconds } from "../format";
import { frozen } from "../frozen";
import { kNoAnswer, post, request } from "../request";
import { linearScale, logDomain, logScale, type Scale } from "../scale";
import { addStyle } from "../style";
import css from "./lab.panel.css";

interface Point { x: number; measured: number; label?: string; predicted?: number; low?: number; high?: number; inside?: boolean; error?: number; doubt?: string }
interface Series { name: string; points: Point[] }
interface AxisSpec { label: string; log: boolean; categories?: boolean }
interface Agreement { points: number; inside: number; left_out: number; share: number; share_of_all?: number; median_error?: number; p90_error?: number }
interface Experiment {
  name: string; topic: string; question: string; claim: string; source: string; next: string; command: string; cpu: boolean; about_s: number; memory_bytes?: number;
  verdict?: string; reason?: string; sentence?: string; x?: AxisSpec; y?: AxisSpec; series?: Series[]; checks?: { what: string; holds: boolean }[];
  notes?: string[]; agreement?: Agreement; date?: string; device?: string; quick?: boolean;
}
interface Lab {
  device?: string; backend?: string; devices?: string[]; date?: string; ceilings?: string; quick?: boolean; interrupted?: boolean; agreement?: Agreement; conditions?: string[]; experiments: Experiment[];
  running?: { name: string; step: string } | null; why_not?: string; failure?: string;
}

const kTopics: [string, string][] = [["machine", "The machine"], ["model", "The model"], ["kernels", "Kernels"], ["formats", "Formats"], ["serving", "Serving"]];

// A shape for each series, so that colour is not the only difference.
const shapes = [
  (x: number, y: number) => `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
  (x: number, y: number) => `M${x - 3.6} ${y - 3.6}h7.2v7.2h-7.2Z`,
  (x: number, y: number) => `M${x} ${y - 5}l5 5l-5 5l-5 -5Z`,
  (x: number, y: number) => `M${x} ${y - 4.6}l4.6 8h-9.2Z`,
  (x: number, y: number) => `M${x} ${y + 4.6}l4.6 -8h-9.2Z`,
];
const shape = (series: number, x: number, y: number) => (shapes[series % shapes.length] as (x: number, y: number) => string)(x, y);
const kSeriesColours = 4;

const isBanded = (p: Point): p is Point & { predicted: number; low: number; high: number } => p.predicted !== undefined && p.low !== undefined && p.high !== undefined;

function scaleOf(spec: AxisSpec, values: number[], from: number, to: number): Scale {
  if (spec.log && values.some((v) => v > 0)) return logScale(...logDomain(values), from, to);
  const low = Math.min(0, ...values), high = Math.max(...values, 1e-9);
  return linearScale(low, high + (high - low) * 0.06, from, to);
}

// Categories: a row for each name, values to the right, no line between rows.
function rowsPlot(e: Experiment, series: Series[], width: number) {
  const points = series.flatMap((s) => s.points);
  const names = [...new Set(points.map((p) => p.label ?? digits(p.x)))];
  const ySpec = e.y ?? { label: "", log: false };
  const left = Math.min(width * 0.45, 12 + 6.6 * Math.max(...names.map((n) => n.length)));
  const kRow = 26;
  const f: Frame = frame(width, 52 + kRow * names.length, left, 16, 8, 38);
  const values = points.flatMap((p) => (isBanded(p) ? [p.low, p.high, p.measured] : [p.measured])).filter((v) => v > 0 || !ySpec.log);
  const x = scaleOf(ySpec, values, f.left, f.right);
  const y = linearScale(names.length - 0.5, -0.5, f.bottom, f.top);
  const across = (v: number) => x(Math.max(v, x.domain[0]));
  return (
    <Chart frame={f} label={`${e.question} ${ySpec.label}: predicted and measured`}>
      <Axes frame={f} x={x} y={y} xTitle={ySpec.label} yTitle="" xFormat={axis} yFormat={() => ""} />
      {names.map((name, i) => <text key={name} class="tick" x={f.left - 8} y={y(i) + 4} text-anchor="end">{name}</text>)}
      {series.map((s, i) => (
        <g key={s.name} class={`s${i % kSeriesColours}`}>
          {s.points.map((p) => {
            const name = p.label ?? digits(p.x), at = y(names.indexOf(name));
            return (
              <g key={name}>
                {isBanded(p) && <rect class="range" x={across(p.low)} width={Math.max(1, across(p.high) - across(p.low))} y={at - 9} height={18} />}
                {isBanded(p) && <path class="predicted" d={`M${across(p.predicted)} ${at - 10}v20`} />}
                <path class={`measured${p.doubt ? " doubtful" : ""}`} d={shape(i, across(p.measured), at)}><title>{described(s, p)}</title></path>
              </g>
            );
          })}
        </g>
      ))}
    </Chart>
  );
}

const described = (s: Series, p: Point) => `${s.name}, ${p.label ?? digits(p.x)}: ${digits(p.measured)}${isBanded(p) ? `, predicted ${digits(p.predicted)} (${digits(p.low)} – ${digits(p.high)})` : ""}${p.doubt ? `; doubtful: ${p.doubt}` : ""}`;

function SeriesMarks({ series, index, x, y }: { series: Series; index: number; x: Scale; y: Scale }) {
  const floor = y.domain[0];
  const up = (v: number) => y(Math.max(v, floor));
  const banded = series.points.filter(isBanded);
  const [first] = banded;
  return (
    <g class={`s${index % kSeriesColours}`}>
      {banded.length === 1
        ? banded.map((p) => (
          <g key={p.x}>
            <rect class="range" x={x(p.x) - 11} width={22} y={up(p.high)} height={Math.max(1, up(p.low) - up(p.high))} />
            <path class="predicted" d={`M${x(p.x) - 11} ${up(p.predicted)}h22`} />
          </g>
        ))
        : first && (
          <>
            <path class="range" d={`${path([...banded.map((p) => [x(p.x), up(p.high)] as const), ...[...banded].reverse().map((p) => [x(p.x), up(p.low)] as const)])}Z`} />
            <path class="predicted" d={path(banded.map((p) => [x(p.x), up(p.predicted)] as const))} />
          </>
        )}
      {series.points.map((p) => (
        <path key={p.x} class={`measured${p.doubt ? " doubtful" : ""}`} d={shape(index, x(p.x), up(p.measured))}>
          <title>{described(series, p)}</title>
        </path>
      ))}
    </g>
  );
}

function plot(e: Experiment, series: Series[], width: number) {
  const xSpec = e.x ?? { label: "", log: false }, ySpec = e.y ?? { label: "", log: false };
  if (xSpec.categories) return rowsPlot(e, series, width);
  const f: Frame = frame(width, 260, 52, 16, 14, 38);
  const points = series.flatMap((s) => s.points);
  const xs = points.map((p) => p.x);
  const ys = points.flatMap((p) => (isBanded(p) ? [p.low, p.high, p.measured] : [p.measured])).filter((v) => v > 0 || !ySpec.log);
  const years = !xSpec.log && Math.min(...xs) > 1900;
  const x = years ? linearScale(Math.min(...xs) - 0.5, Math.max(...xs) + 0.5, f.left, f.right) : scaleOf(xSpec, xs, f.left, f.right);
  const y = scaleOf(ySpec, ys, f.bottom, f.top + 14);
  return (
    <Chart frame={f} label={`${e.question} ${ySpec.label} by ${xSpec.label}: predicted and measured`}>
      <Axes frame={f} x={x} y={y} xTitle={xSpec.label} yTitle={ySpec.label} xFormat={years ? String : axis} yFormat={axis} />
      {series.map((s, i) => <SeriesMarks key={s.name} series={s} index={i} x={x} y={y} />)}
    </Chart>
  );
}

function PointsTable({ e, series }: { e: Experiment; series: Series[] }) {
  return (
    <details>
      <summary>As a table</summary>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead><tr><th>{e.x?.label}</th><th>series</th><th class="n">predicted</th><th class="n">band</th><th class="n">{e.y?.label} measured</th><th class="n">error</th><th /></tr></thead>
          <tbody>
            {series.flatMap((s) => s.points.map((p) => (
              <tr key={`${s.name} ${p.x}`}>
                <td>{p.label ?? digits(p.x)}</td><td>{s.name}</td>
                <td class="n">{p.predicted === undefined ? "" : digits(p.predicted)}</td>
                <td class="n">{isBanded(p) ? `${digits(p.low)} – ${digits(p.high)}` : ""}</td>
                <td class="n">{digits(p.measured)}</td>
                <td class="n">{p.error === undefined ? "" : percent(p.error)}</td>
                <td class={p.doubt || p.inside !== false ? "" : "outside"}>{p.doubt ? `doubtful: ${p.doubt}` : p.inside === undefined ? "" : p.inside ? "inside" : "outside"}</td>
              </tr>
            )))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

const errors = (a: Agreement) => (a.points > 0 && a.median_error !== undefined ? `, error ${percent(a.median_error)} (median), ${percent(a.p90_error)} (90th percentile)` : "");
const leftOut = (a: Agreement) => (a.left_out ? `; ${a.left_out} doubtful points left out${a.share_of_all === undefined ? "" : ` (${percent(a.share_of_all)} inside with them as outside)`}` : "");

function Results({ e }: { e: Experiment }) {
  const series = e.series ?? [];
  const a = e.agreement;
  return (
    <>
      <p data-sentence>{e.sentence}{e.reason ? ` (${e.reason}.)` : ""}</p>
      {series.length > 0 && (
        <>
          <Figure name={`lab-${e.name}`} title="Predicted and measured" json={e} rows={series.flatMap((s) => s.points.map((p) => ({ series: s.name, ...p })))} draw={(w) => plot(e, series, w)} />
          <ul class="legend" aria-hidden="true">
            {series.map((s, i) => <li key={s.name} class={`s${i % kSeriesColours}`}><svg width="14" height="12"><path class="measured" d={shape(i, 7, 6)} /></svg><span>{s.name}</span></li>)}
          </ul>
          <PointsTable e={e} series={series} />
        </>
      )}
      {a && a.points + a.left_out > 0 && <p class="note">{a.inside} of {a.points} points inside their band{errors(a)}{leftOut(a)}.</p>}
      <ul class="facts-list">
        {e.checks?.map((c) => <li key={c.what} class={c.holds ? "" : "outside"}>{c.what}: {c.holds ? "holds" : "does not hold"}</li>)}
        {e.notes?.map((n) => <li key={n}>{n}</li>)}
        {e.memory_bytes !== undefined && <li>It announces to hold at most {bytes(e.memory_bytes)} of memory.</li>}
        {e.date && <li>Run from this page on {e.date}, {e.device}{e.quick ? ", tiny sizes" : ""}.</li>}
      </ul>
    </>
  );
}

function Card({ e, lab, start, stop }: { e: Experiment; lab: Lab; start: (name: string) => void; stop: () => void }) {
  const wide = typeof matchMedia !== "undefined" && matchMedia("(min-width: 900px)").matches;
  const [open, fold] = useState(wide && e.verdict !== undefined);
  const running = lab.running?.name === e.name;
  const verdict = e.verdict ?? "none";
  return (
    <details class="trial" open={open} onToggle={(event) => event.target === event.currentTarget && fold(event.currentTarget.open)} data-experiment={e.name}>
      <summary><span class={`verdict ${verdict}`}>{e.verdict ?? "not run"}</span><h3>{e.question}</h3></summary>
      {open && (
        <>
          <p class="claim">{e.claim}</p>
          {e.verdict !== undefined && <Results e={e} />}
          <p class="row"><span class="note">Run it:</span> <code>{e.command}</code>
            {!frozen && e.cpu && (running
              ? <button type="button" name="stop" onClick={stop}>Stop</button>
              : <button type="button" name="run" disabled={!!lab.running || !!lab.why_not} onClick={() => start(e.name)} aria-label={`Run ${e.name} here, about ${seconds(e.about_s)}`}>Run here</button>)}
          </p>
          <p class="row"><span class="note">Next:</span> <code>{e.next}</code></p>
        </>
      )}
    </details>
  );
}

const kDevices: Record<string, string> = { cpu: "CPU", cuda: "GPU" };

function Devices({ lab, choose }: { lab: Lab; choose: (device: string) => void }) {
  if ((lab.devices?.length ?? 0) < 2) return null;
  return (
    <p class="row" role="group" aria-label="Results of">
      {lab.devices?.map((d) => <button key={d} type="button" name={`device-${d}`} aria-pressed={d === (lab.backend ?? "cpu")} onClick={() => choose(d)}>{kDevices[d] ?? d}</button>)}
    </p>
  );
}

function Summary({ lab }: { lab: Lab }) {
  const count = (verdict: string) => lab.experiments.filter((e) => e.verdict === verdict).length;
  const a = lab.agreement;
  if (!lab.experiments.some((e) => e.verdict)) {
    return <p class="sentence">Each claim of the field as an experiment: predicted first, then measured on this machine. There are no results yet{lab.why_not ? "." : <>: <code>ridge lab all</code> runs everything in about two minutes, or run one below.</>}</p>;
  }
  return (
    <>
      <p class="sentence">
        {count("confirmed")} claims confirmed, {count("refuted")} refuted, {count("open")} open{lab.device ? ` on ${lab.device}, ${lab.date}` : ""}
        {a && a.points > 0 ? `. ${a.inside} of ${a.points} points (${percent(a.share)}) lie inside the band that was fixed before they were measured${errors(a)}` : ""}
        {a ? leftOut(a) : ""}.{lab.interrupted ? " The run was interrupted: experiments that did not end are missing." : ""}
      </p>
      <p class="note">Dashed: predicted. Shaded: its band. Filled marks: measured. Hollow marks: measured while the machine was disturbed.
        {lab.ceilings ? ` Predictions rest on ${lab.ceilings}.` : ""}{lab.conditions?.map((c) => ` Disturbed: ${c}.`)}</p>
    </>
  );
}

const kPollMs = 1000;

export default function LabPanel() {
  addStyle(css);
  const [lab, show] = useState<Lab | null>(frozen ? (frozen.views["lab"] as Lab) : null);
  const [problem, fail] = useState("");
  const [device, choose] = useState("");
  const load = async () => {
    try {
      const response = await request(device ? `/api/lab?device=${device}` : "/api/lab");
      const body = (await response.json()) as Lab & { error?: Problem };
      if (body.error) fail(body.error.message);
      else { show(body); fail(body.failure ?? ""); }
    } catch {
      fail(kNoAnswer);
    }
  };
  const act = async (url: string) => {
    const body = (await (await post(url, {})).json()) as { error?: Problem };
    await load();
    if (body.error) fail(body.error.message);
  };
  useEffect(() => { if (!frozen) void load(); }, [device]);
  const running = lab?.running;
  useEffect(() => {
    if (!running) return;
    const timer = setTimeout(() => void load(), kPollMs);
    return () => clearTimeout(timer);
  }, [lab]);
  if (!lab) return <p class="note">{problem || "…"}</p>;
  return (
    <section class="panel lab">
      {!frozen && <Devices lab={lab} choose={choose} />}
      <Summary lab={lab} />
      {!frozen && lab.why_not && <p class="note">{lab.why_not}</p>}
      {problem && <p class="error banner" role="alert">{problem}</p>}
      <p class="note" role="status" data-running={running?.name ?? ""}>{running ? `Running ${running.name}: ${running.step}` : ""}</p>
      {kTopics.map(([topic, title]) => (
        <div key={topic}>
          <h2>{title}</h2>
          <div class="trials">
            {lab.experiments.filter((e) => e.topic === topic).map((e) => (
              <Card key={`${e.name} ${e.verdict ? 1 : 0}`} e={e} lab={lab} start={(name) => { choose(""); void act(`/api/lab/run?name=${name}`); }} stop={() => void act("/api/lab/stop")} />
            ))}
          </div>
        </div>
      ))}
    </section>
  );
}
