// The evidence on a roofline: the step as observed, expected and at the roof, and what a profile knows of
// its operators.
import { Axes, Chart, frame, path, spread } from "../axes";
import { Figure } from "../figure";
import { axis, count, flopRate, rate } from "../format";
import { logDomain, logScale } from "../scale";
import type { Explanation } from "../types";

const kKernels = 8; // the longest; more would hide each other

interface Dot { kind: "observed" | "expected" | "roof"; name: string; intensity: number; rate: number }
const dot = (kind: Dot["kind"], name: string, flops: number, bytes: number, s: number): Dot => ({ kind, name, intensity: flops / bytes, rate: flops / s });

// The step's dots first, then those of operators and kernels.
function dotsOf(x: Explanation): Dot[] {
  const { observed: o, expected: e, profile: p } = x;
  const dots: Dot[] = [];
  if (e && e.flops > 0 && e.bytes > 0) {
    const step = (kind: Dot["kind"], s: number) => dots.push(dot(kind, kind, e.flops, e.bytes, s));
    step("roof", e.roof_s);
    step("expected", e.expected_s);
    if (o.step_s) step("observed", o.step_s);
  }
  for (const op of p?.operators ?? []) {
    if (op.flops && op.bytes && op.seconds > 0) dots.push(dot("observed", op.family, op.flops, op.bytes, op.seconds));
    if (op.flops && op.bytes && op.expected_s) dots.push(dot("expected", "", op.flops, op.bytes, op.expected_s));
  }
  for (const k of (p?.kernels ?? []).slice(0, kKernels)) {
    if (k.flops && k.dram_bytes && k.seconds > 0) dots.push(dot("observed", k.name, k.flops, k.dram_bytes, k.seconds));
  }
  return dots;
}

function Mark({ kind }: { kind: Dot["kind"] }) {
  if (kind === "roof") return <path class="evidence-roof" d="M-5 0H5M0 -5V5" />;
  return <circle class={`evidence-${kind}`} r={kind === "observed" ? 6 : 5} />;
}

function Plot({ x: explained, dots, width }: { x: Explanation; dots: Dot[]; width: number }) {
  const { peak, bandwidth, memory } = explained.expected as NonNullable<Explanation["expected"]>;
  const f = frame(width, width < 620 ? 320 : 380, 58, width < 620 ? 14 : 110, 14, 40);
  const bend = peak ? peak / bandwidth : 0;
  const [low, high] = logDomain([...dots.map((d) => d.intensity), bend], 8);
  const x = logScale(low, high, f.left, f.right);
  const top = peak ?? high * bandwidth;
  const y = logScale(Math.min(...dots.map((d) => d.rate)) / 4, Math.max(top, ...dots.map((d) => d.rate)) * 2.5, f.bottom, f.top);
  const from = Math.max(low, y.domain[0] / bandwidth);
  const named = dots.filter((d) => d.name);
  const tops = spread(named.map((d) => y(d.rate)), 14, f.top + 6, f.bottom - 6);
  const angle = (Math.atan2(y(bandwidth * 10) - y(bandwidth), x(10) - x(1)) * 180) / Math.PI;
  const left = (d: Dot) => x(d.intensity) + 16;
  const label = (d: Dot) => (d.name.length > 28 ? `${d.name.slice(0, 27)}…` : d.name);
  const near = (d: Dot) => left(d) + label(d).length * 7 < width;
  return (
    <Chart frame={f} label="The observed step on the roofline, beside the expected one and the roof">
      <Axes frame={f} x={x} y={y} xTitle={`FLOP per byte of ${memory}`} yTitle="FLOP/s per device" xFormat={axis} yFormat={axis} />
      <path class="roof" d={path((peak ? [[from, from * bandwidth], [bend, peak], [high, peak]] : [[from, from * bandwidth], [high, top]]).map(([a, b]) => [x(a as number), y(b as number)] as const))} />
      <text class="roof-label" transform={`translate(${x(from) + 70} ${y((x.invert(x(from) + 70)) * bandwidth) - 7}) rotate(${angle})`} text-anchor="middle">{memory} {rate(bandwidth)}</text>
      {peak && <text class="roof-label" x={f.right} y={y(peak) - 6} text-anchor="end">{flopRate(peak)}</text>}
      {dots.map((d, i) => (
        <g key={i} transform={`translate(${x(d.intensity)} ${y(d.rate)})`} data-dot={d.name || undefined} data-kind={d.kind} data-rate={d.rate}>
          <Mark kind={d.kind} /><title>{`${d.name || "expected"} (${d.kind}): ${count(d.intensity)} FLOP per byte, ${flopRate(d.rate)}`}</title>
        </g>
      ))}
      {named.map((d, i) => (
        <g key={i}>
          {Math.abs((tops[i] ?? 0) - y(d.rate)) > 8 && <line class="leader" x1={x(d.intensity)} y1={y(d.rate)} x2={near(d) ? left(d) - 3 : x(d.intensity) - 13} y2={tops[i] ?? 0} />}
          <text class="dot-label" x={near(d) ? left(d) : x(d.intensity) - 16} y={(tops[i] ?? 0) + 4} text-anchor={near(d) ? "start" : "end"}>{label(d)}</text>
        </g>
      ))}
    </Chart>
  );
}

export function EvidenceRoofline({ x }: { x: Explanation }) {
  const dots = dotsOf(x);
  if (!x.expected || dots.length === 0) return null;
  const what = x.expected.phase === "prefill" ? "prompt" : "decode step";
  return (
    <Figure name="evidence" title={`The ${what} of ${x.expected.model} on ${x.expected.machine}`} rows={dots} json={dots} draw={(w) => <Plot x={x} dots={dots} width={w} />}
      note={<>Filled: observed. Ring: expected. Cross: at the roof. The bytes and FLOPs are those that the model must move and do{x.profile ? "; of kernels, those that the profile counted" : ""}.</>} />
  );
}
