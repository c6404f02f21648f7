// What the device did in a trace or profile: its time line, the operators and the longest kernels.
import { Chart, frame } from "../axes";
import { Figure } from "../figure";
import { axisSeconds, count, percent, seconds } from "../format";
import { linearScale } from "../scale";
import type { Profile } from "../types";

const within = (p: Profile) => p.wall_s - p.gaps_s.outside;

// Time in the order of the bar: [colour, what, seconds].
function parts(p: Profile): (readonly [string, string, number])[] {
  const { launch, synchronize, host } = p.gaps_s;
  const rest = within(p) - p.busy_s - launch - synchronize - host;
  return ([
    ["kernels", "kernels run", p.busy_s - p.exposed_collective_s],
    ["wall-interconnect", "exposed collectives", p.exposed_collective_s],
    ["wall-launch", "gaps: kernel launch", launch],
    ["sync", "gaps: host synchronizes", synchronize],
    ["code", "gaps: host code", host],
    ["rest", "gaps: unattributed", rest],
  ] as const).filter(([, , value]) => value > 1e-4 * p.wall_s);
}

function TimeLine({ profile, width }: { profile: Profile; width: number }) {
  const list = parts(profile);
  const columns = width < 560 ? 1 : 2;
  const f = frame(width, 56 + 18 * Math.ceil(list.length / columns), 1, 1, 4, 0);
  const x = linearScale(0, within(profile), f.left, f.right);
  let at = 0;
  return (
    <Chart frame={f} label="The device's time by what it did">
      {list.map(([kind, name, value], i) => {
        const from = x(at);
        at += value;
        const column = Math.floor((i * columns) / list.length);
        const row = i - Math.ceil((column * list.length) / columns);
        const text = `${name} ${seconds(value)}, ${percent(value / within(profile))}`;
        return (
          <g key={name} class={`bar ${kind}`} data-part={name}>
            <rect x={from} width={Math.max(0.7, x(at) - from)} y={f.top} height={24}><title>{text}</title></rect>
            <g transform={`translate(${(column * width) / columns} ${62 + 18 * row})`}><rect y={-9} width={10} height={10} rx={2} /><text x={16}>{text}</text></g>
          </g>
        );
      })}
      <g class="axes" aria-hidden="true">{x.ticks(Math.max(3, Math.floor(width / 110))).map((v) => <text key={v} x={Math.min(x(v), f.right - 22)} y={42} text-anchor={v ? "middle" : "start"}>{axisSeconds(v)}</text>)}</g>
    </Chart>
  );
}

function Operators({ profile, width }: { profile: Profile; width: number }) {
  const rows = profile.operators;
  const narrow = width < 560;
  const height = (row: (typeof rows)[number]) => (row.expected_s ? 34 : 20);
  const f = frame(width, rows.reduce((sum, row) => sum + height(row), 2), 84, narrow ? 104 : 190, 2, 0);
  const x = linearScale(0, Math.max(...rows.map((row) => Math.max(row.seconds, row.expected_s ?? 0))), f.left, f.right);
  let y = f.top;
  return (
    <Chart frame={f} label="Time of each kind of operator, observed and expected">
      {rows.map((row) => {
        const { family, seconds: s, launches, expected_s } = row;
        const top = y;
        y += height(row);
        return (
          <g key={family} class="bar kernels" data-operator={family} transform={`translate(0 ${top})`}>
            <text x={f.left - 8} y={11} text-anchor="end">{family}</text>
            <rect x={f.left} width={Math.max(1, x(s) - f.left)} y={1} height={12} />
            <text class="value" x={x(s) + 6} y={11}>{seconds(s)} · {percent(s / profile.kernel_s)}{narrow ? "" : ` · ${count(launches)} launch${launches === 1 ? "" : "es"}`}</text>
            {expected_s && <><rect class="hollow" x={f.left} width={Math.max(1, x(expected_s) - f.left)} y={16} height={9} /><text class="value" x={x(expected_s) + 6} y={25}>expected {seconds(expected_s)}</text></>}
          </g>
        );
      })}
    </Chart>
  );
}

const kCounters = [["memory_share", "memory"], ["dram_share", "DRAM"], ["compute_share", "SM"], ["tensor_share", "tensor"]] as const;
const kKernels = 8;

export function ProfileFigures({ profile: p }: { profile: Profile }) {
  const kernels = p.kernels.slice(0, kKernels);
  const counters = kCounters.filter(([key]) => kernels.some((k) => k[key] !== undefined));
  const outside = p.gaps_s.outside;
  const expects = p.operators.some((row) => row.expected_s);
  return (
    <>
      {p.wall_s > 0 && p.busy_s > 0 && (
        <Figure name="timeline" title={`Time line of ${p.devices > 1 ? `${p.devices} devices, mean` : "the device"}: ${seconds(within(p))}, busy ${percent(p.busy_s / within(p))}`} json={p}
          rows={parts(p).map(([, part, value]) => ({ part, seconds: value }))} draw={(w) => <TimeLine profile={p} width={w} />}
          note={`${p.tool}: ${count(p.launches)} kernels${p.graph_launches ? `, ${count(p.graph_launches)} launches of CUDA graphs` : ""}.${outside > 0 ? ` ${seconds(outside)} of waiting for work outside the file are left out.` : ""}`} />
      )}
      {p.operators.length > 0 && (
        <Figure name="observed-operators" title={`Operators: ${seconds(p.kernel_s)} of kernels`} json={p.operators} rows={p.operators} draw={(w) => <Operators profile={p} width={w} />}
          note={expects ? "Filled: observed. Outlined: expected for as many steps." : undefined} />
      )}
      {kernels.length > 0 && (
        <div class="scroll">
          <table class="kernels">
            <thead><tr><th>longest kernels</th><th>operator</th><th class="n">time</th><th class="n">launches</th>{counters.map(([key, name]) => <th key={key} class="n">{name}</th>)}</tr></thead>
            <tbody>
              {kernels.map((k) => (
                <tr key={k.name}><td>{k.name}</td><td>{k.family}</td><td class="n">{seconds(k.seconds)}</td><td class="n">{count(k.launches)}</td>
                  {counters.map(([key]) => <td key={key} class="n">{k[key] === undefined ? "" : percent(k[key])}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
