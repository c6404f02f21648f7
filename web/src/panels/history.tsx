// The wall over time: arithmetic grew faster than the memory that feeds it.
import { plain, useView } from "../api";
import { Axes, Chart, frame, path, spread } from "../axes";
import { Figure } from "../figure";
import { axis, count, flopRate, rate, times } from "../format";
import { linearScale, logDomain, logScale } from "../scale";
import type { History } from "../types";

type Quantity = "peak" | "bandwidth" | "ridge";
const kLines: [Quantity, string, string][] = [["peak", "peak", "compute"], ["ridge", "ridge", "ink"], ["bandwidth", "bandwidth", "memory"]];

function Growth({ data, width }: { data: History; width: number }) {
  const first = data.records[0];
  if (!first) return null;
  const f = frame(width, 380, 50, 122);
  const grown = (q: Quantity) => data.records.map((r) => r[q] / first[q]);
  const x = linearScale(first.year - 0.5, Math.max(...data.records.map((r) => r.year)) + 0.5, f.left, f.right);
  const [, high] = logDomain(kLines.flatMap(([q]) => grown(q)), 1.6);
  const y = logScale(0.7, high, f.bottom, f.top);
  const ends = spread(kLines.map(([q]) => y(grown(q).at(-1) ?? 1)), 15, f.top, f.bottom);
  return (
    <Chart frame={f} label="Growth of peak, bandwidth and ridge by year">
      <Axes frame={f} x={x} y={y} xTitle="year" yTitle={`times the ${first.name} of ${first.year}`} xFormat={(v) => (Number.isInteger(v) ? String(v) : "")} yFormat={axis} />
      {kLines.map(([q, label, colour], i) => (
        <g key={q} class={`series ${colour}`}>
          <path class={q === "ridge" ? "dashed" : ""} d={path(data.records.map((r) => [x(r.year), y(r[q] / first[q])] as const))} />
          {data.records.map((r) => <circle key={r.name} cx={x(r.year)} cy={y(r[q] / first[q])} r={3}><title>{`${r.name} (${r.year}): ${q} ${q === "peak" ? flopRate(r.peak) : q === "bandwidth" ? rate(r.bandwidth) : `${count(r.ridge)} FLOP/byte`}`}</title></circle>)}
          <text x={f.right + 4} y={(ends[i] ?? 0) + 4}>{label} {times(grown(q).at(-1))}</text>
        </g>
      ))}
      {width > 600 && data.records.filter((_, i) => i % 2 === 0).map((r) => <text key={r.name} class="point-label" x={x(r.year)} y={y(r.peak / first.peak) - 9} text-anchor="middle">{r.name}</text>)}
    </Chart>
  );
}

export default function HistoryPanel() {
  const { data, error } = useView<History>("history");
  if (!data) return <p class="note">{error ? plain(error) : "…"}</p>;
  const last = data.growth[0]; // from the first record, as the chart
  return (
    <section class="panel">
      {last && (
        <p class="sentence">
          From {last.from} to {last.to} the dense peak grew {times(last.peak)}, the bandwidth {times(last.bandwidth)}. The ridge moved {times(last.ridge)}:
          what once kept the arithmetic busy now waits for memory.
        </p>
      )}
      <Figure name="history" title="Data-centre GPUs that set a record peak" rows={data.records} json={data} draw={(w) => <Growth data={data} width={w} />}
        note="Dense 16-bit peak, fp32 before there was one; bandwidth of device memory; ridge is their ratio." />
      <div class="scroll">
        <table>
          <thead><tr><th>year</th><th>machine</th><th>generation</th><th class="n">peak</th><th>in</th><th class="n">bandwidth</th><th class="n">ridge FLOP/B</th></tr></thead>
          <tbody>{data.records.map((r) => <tr key={r.name}><td>{r.year}</td><td>{r.name}</td><td>{r.architecture}</td><td class="n">{flopRate(r.peak)}</td><td>{r.dtype}</td><td class="n">{rate(r.bandwidth)}</td><td class="n">{count(r.ridge)}</td></tr>)}</tbody>
        </table>
      </div>
    </section>
  );
}
