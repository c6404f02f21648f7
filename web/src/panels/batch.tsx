// Batch and context: speed per user against throughput per device, up to the memory limit.
import { plain, useView } from "../api";
import { Axes, Chart, frame, path, spread } from "../axes";
import { NumberField } from "../controls";
import { Figure } from "../figure";
import { axis, axisSeconds, count, seconds } from "../format";
import { logDomain, logScale } from "../scale";
import type { Endpoint, ModelDetails, Prediction, Sweep, SweepPoint, Users } from "../types";
import { kWalls, WallMark, WallTag } from "../walls";

type Pick = (p: SweepPoint) => number;
const perDevice: Pick = (p) => p.tokens_per_s_per_device;
const perUser: Pick = (p) => p.tokens_per_s_per_user;
// The sweep ends with the largest batch that fits, whose label is "max".
const batchOf = (p: SweepPoint) => (p.batch === "max" ? (p.max_batch ?? 0) : Number(p.batch));
const formats = (sweep: Sweep) => sweep.axes.find((a) => a.name === "weights")?.labels ?? [];
const tip = (p: SweepPoint) => `batch ${count(batchOf(p))}, ${p.weights ?? ""}: ${count(p.tokens_per_s_per_device)} tok/s per device, ${count(p.tokens_per_s_per_user)} per user, ${seconds(p.tpot_s)} per token, ${kWalls[p.wall].label}${p.fits ? "" : ", does not fit"}`;

function Curves({ sweep, width, pick, title, now, target }: { sweep: Sweep; width: number; pick: Pick; title: string; now: Prediction | null; target?: number | undefined }) {
  const f = frame(width, 300, 52, 58);
  const fitting = sweep.points.filter((p) => p.fits);
  const shown = fitting.length ? fitting : sweep.points;
  const x = logScale(...logDomain(sweep.points.map(batchOf), 1), f.left, f.right);
  const y = logScale(...logDomain([...shown.map(pick), ...(target ? [target] : [])], 1.5), f.bottom, f.top);
  const names = formats(sweep);
  const lines = names.map((name) => sweep.points.filter((p) => p.weights === name && p.fits && batchOf(p) > 0).sort((a, b) => batchOf(a) - batchOf(b)));
  const ends = spread(lines.map((l) => (l.length ? y(pick(l.at(-1) as SweepPoint)) : f.bottom)), 13, f.top, f.bottom);
  // Each precision leaves the cache another room; beyond the largest nothing fits.
  const most = names.map((name) => sweep.points.find((p) => p.weights === name)?.max_batch ?? null);
  const last = Math.max(0, ...most.map((m) => m ?? 0));
  const cliff = last >= x.domain[0] && last < x.domain[1] ? x(last) : null;
  const here = now && now.memory.fits ? ([x(now.decode.batch), y(pick === perDevice ? now.decode.tokens_per_s_per_device : now.decode.tokens_per_s_per_user)] as const) : null;
  return (
    <Chart frame={f} label={title}>
      <Axes frame={f} x={x} y={y} xTitle="batch" yTitle={title} xFormat={axis} yFormat={axis} />
      {cliff !== null && (
        <g class="cliff"><rect x={cliff} y={f.top} width={Math.max(0, f.right - cliff)} height={f.bottom - f.top} /><line x1={cliff} x2={cliff} y1={f.top} y2={f.bottom} /><text x={cliff - 4} y={f.bottom - 6} text-anchor="end">memory full</text></g>
      )}
      {target && <g class="target"><line x1={f.left} x2={f.right} y1={y(target)} y2={y(target)} /><text x={f.left + 4} y={y(target) - 4}>target {seconds(1 / target)} per token</text></g>}
      {lines.map((line, i) => line.length > 0 && (
        <g key={names[i]} class={`precision p${i}`}>
          <path d={path(line.map((p) => [x(batchOf(p)), y(pick(p))] as const))} />
          {line.map((p) => <g key={p.batch} transform={`translate(${x(batchOf(p))} ${y(pick(p))})`}><WallMark wall={p.wall} r={2.8} /><title>{tip(p)}</title></g>)}
          <text x={(cliff ?? x(batchOf(line.at(-1) as SweepPoint))) + 6} y={(ends[i] ?? 0) + 4}>{names[i]}{cliff !== null && ` up to ${count(most[i] as number)}`}</text>
        </g>
      ))}
      {here && <circle class="here" cx={here[0]} cy={here[1]} r={7}><title>this configuration</title></circle>}
    </Chart>
  );
}

function Pareto({ sweep, width, target }: { sweep: Sweep; width: number; target: number }) {
  const f = frame(width, 300, 52, 20);
  const points = sweep.points.filter((p) => p.fits && batchOf(p) > 0);
  if (points.length === 0) return <p class="note">Nothing fits.</p>;
  const x = logScale(...logDomain([...points.map(perUser), target], 1.4), f.left, f.right);
  const y = logScale(...logDomain(points.map(perDevice), 2.5), f.bottom, f.top);
  const front = points.filter((p) => p.pareto).sort((a, b) => perUser(a) - perUser(b));
  return (
    <Chart frame={f} label="Tokens per second per device over tokens per second per user">
      <Axes frame={f} x={x} y={y} xTitle="tok/s per user" yTitle="tok/s per device" xFormat={axis} yFormat={axis} />
      <g class="target"><line x1={x(target)} x2={x(target)} y1={f.top + 16} y2={f.bottom} /><text x={x(target) + 4} y={f.bottom - 6}>target</text></g>
      <path class="front" d={path(front.map((p) => [x(perUser(p)), y(perDevice(p))] as const))} />
      {points.map((p) => <g key={`${p.weights}${p.batch}`} class={p.pareto ? "on-front" : "off-front"} transform={`translate(${x(perUser(p))} ${y(perDevice(p))})`}><WallMark wall={p.wall} r={p.pareto ? 3.6 : 2.4} hollow={!p.pareto} /><title>{tip(p)}</title></g>)}
      {front.filter((_, i) => i % 3 === 0).map((p) => <text key={p.batch} class="point-label" x={x(perUser(p)) + 6} y={y(perDevice(p)) - 5}>{p.weights} b{batchOf(p)}</text>)}
    </Chart>
  );
}

function Contexts({ sweep, width, now, limit }: { sweep: Sweep; width: number; now: Prediction | null; limit: number | null }) {
  const f = frame(width, 300, 58, 20);
  const x = logScale(...logDomain(sweep.points.map((p) => Number(p.context)), 1), f.left, f.right);
  const y = logScale(...logDomain(sweep.points.flatMap((p) => [p.tpot_low_s, p.tpot_high_s]), 1.2), f.bottom, f.top);
  const at = (pick: Pick) => sweep.points.map((p) => [x(Number(p.context)), y(pick(p))] as const);
  const cliff = sweep.points.find((p) => !p.fits);
  const full = cliff ? x(Number(cliff.context)) : 0;
  return (
    <Chart frame={f} label="Time per token over context">
      <Axes frame={f} x={x} y={y} xTitle="context" yTitle="time per token" xFormat={axis} yFormat={axisSeconds} />
      {cliff && <g class="cliff"><rect x={full} y={f.top} width={Math.max(0, f.right - full)} height={f.bottom - f.top} /><line x1={full} x2={full} y1={f.top} y2={f.bottom} /><text x={full - 4} y={f.top + 42} text-anchor="end">no longer fits</text></g>}
      {limit !== null && limit >= x.domain[0] && limit < x.domain[1] && <g class="rule roofmark"><line x1={x(limit)} x2={x(limit)} y1={f.top} y2={f.bottom} /><text x={x(limit) - 4} y={f.top + 27} text-anchor="end">the model's {count(limit)}</text></g>}
      <path class="band" d={`${path(at((p) => p.tpot_low_s))}${path([...at((p) => p.tpot_high_s)].reverse()).replace("M", "L")}Z`} />
      <g class="precision p0"><path d={path(at((p) => p.tpot_s))} /></g>
      {sweep.points.map((p) => <g key={p.context} transform={`translate(${x(Number(p.context))} ${y(p.tpot_s)})`}><WallMark wall={p.fits ? p.wall : p.next_wall} r={2.8} hollow={!p.fits} /><title>{`context ${p.context}: ${seconds(p.tpot_s)}`}</title></g>)}
      {now && <circle class="here" cx={x(now.decode.context)} cy={y(now.tpot_s)} r={7}><title>this configuration</title></circle>}
    </Chart>
  );
}

// Many clients at once: prompts and answers share steps, so that everybody waits a little.
function EndpointTable() {
  const view = useView<Endpoint>("endpoint");
  const e = view.data;
  const rows = e ? ([["first token", e.simulated.ttft_s], ["per token", e.simulated.itl_s], ["whole answer", e.simulated.e2e_s]] as const) : [];
  return (
    <section class="endpoint" aria-label="Endpoint">
      <h3>An endpoint under load</h3>
      <div class="toolbar"><div class="inline">
        <NumberField option="clients" label="Clients" hint="at once" />
        <NumberField option="rate" label="or requests/s" hint="0.5" />
        <NumberField option="output" label="Answer" unit="tokens" />
        <NumberField option="price" label="$ per device, hour" hint="2.5" />
      </div></div>
      {view.error && <p class="note error">{plain(view.error)}</p>}
      {e && (
        <>
          <div class="scroll"><table class="numbers">
            <thead><tr><th>simulated</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th></tr></thead>
            <tbody>{rows.map(([name, t]) => <tr key={name}><th>{name}</th>{[t.mean, t.p50, t.p90, t.p99].map((v, i) => <td key={i}>{seconds(v)}</td>)}</tr>)}</tbody>
          </table></div>
          <p class="note">
            {count(e.clients)} requests at once, prompts of {count(e.prompt)} tokens and answers of {count(e.output)}, {count(e.running)} of them decoding: {count(e.simulated.requests_per_s)} requests/s, {count(e.simulated.output_tokens_per_s)} tok/s
            {e.dollars_per_mtok !== null && <>, ${count(e.dollars_per_mtok)} per million tokens</>}. The scheduler of the chosen stack runs over the predicted steps.
          </p>
        </>
      )}
    </section>
  );
}

export default function BatchPanel() {
  const batch = useView<Sweep>("batch");
  const context = useView<Sweep>("context");
  const users = useView<Users>("users", undefined, true);
  const now = useView<Prediction>("predict").data;
  const model = useView<ModelDetails>("model").data;
  const error = batch.error ?? context.error;
  if (!batch.data || !context.data) return <p class="note">{error ? plain(error) : "…"}</p>;
  const target = users.data ? 1 / users.data.target_s : 20;
  const first = batch.data.axes.find((a) => a.name === "weights")?.labels[0];
  const crossing = batch.data.points.filter((p) => p.weights === first && p.fits && p.wall === "compute").sort((a, b) => batchOf(a) - batchOf(b))[0];
  return (
    <section class="panel">
      <p class="sentence">
        {crossing ? <>In {first} decode turns <WallTag wall="compute" />-bound at batch {count(batchOf(crossing))}. </> : <>No batch that fits makes {first} decode compute-bound at this context: every sequence brings its own cache. </>}
        {users.data && <>Within {seconds(users.data.target_s)} per token the machine serves {count(users.data.users)} users; the limit is <WallTag wall={users.data.decides} />.</>}
      </p>
      <div class="toolbar"><div class="inline"><NumberField option="target" label="Latency target" unit="per token" /></div></div>
      {error && <p class="note error">{plain(error)}</p>}
      <div class="two">
        <Figure name="batch-device" title="Throughput per device" rows={batch.data.points} json={batch.data} draw={(w) => <Curves sweep={batch.data as Sweep} width={w} pick={perDevice} title="tok/s per device" now={now} />} />
        <Figure name="batch-user" title="Speed per user" rows={batch.data.points} json={batch.data} draw={(w) => <Curves sweep={batch.data as Sweep} width={w} pick={perUser} title="tok/s per user" now={now} target={target} />} />
        <Figure name="pareto" title="Pareto front over batch and precision" rows={batch.data.points.filter((p) => p.pareto)} json={batch.data} draw={(w) => <Pareto sweep={batch.data as Sweep} width={w} target={target} />} />
        <Figure name="context" title="A longer context makes every token more expensive" rows={context.data.points} json={context.data} draw={(w) => <Contexts sweep={context.data as Sweep} width={w} now={now} limit={model?.max_context ?? null} />} />
      </div>
      <p class="note">Lines are weight precisions; the ring is this configuration; points that do not fit are left out. A mark tells the wall: {(["memory", "compute", "launch", "interconnect"] as const).map((w) => <WallTag key={w} wall={w} />)}</p>
      <EndpointTable />
    </section>
  );
}
