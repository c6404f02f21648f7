// The batch over time: a row for each request, from its arrival to its end.
import { count, seconds } from "../format";
import { Canvas, store, useBeat, type Brush } from "./draw";
import type { Serving } from "./events";
import { StaticReplay } from "./replay";
import { letter, type LiveRequest } from "./store";
import { kDecodes, kIdle, kPreempted, kPrefills, kWaits, track } from "./tracks";

const kRow = 22; // px, also in the style of .requests
const kShown = 16;

function paint({ pen, width, colour, pattern }: Brush, list: LiveRequest[], whole: boolean) {
  const [from, to] = store.window(whole);
  const x = (t: number) => ((t - from) / (to - from)) * width;
  const styles = { [kDecodes]: [colour("dim"), 14], [kPrefills]: [pattern(1), 14], [kWaits]: [colour("dim"), 1], [kPreempted]: [colour("ink"), 2] } as const;
  list.forEach((request, i) => {
    const middle = i * kRow + kRow / 2;
    pen.fillStyle = colour("grid");
    pen.fillRect(0, (i + 1) * kRow - 1, width, 1);
    const row = track(store, request, from, to, Math.max(1, Math.floor(width)));
    for (let a = 0, b = 0; a < row.length; a = b) {
      for (b = a + 1; b < row.length && row[b] === row[a]; ) ++b;
      if (row[a] === kIdle) continue;
      const [fill, height] = styles[row[a] as keyof typeof styles];
      pen.fillStyle = fill;
      pen.fillRect(a, middle - height / 2, b - a, height);
    }
    pen.fillStyle = pen.strokeStyle = colour("ink");
    if (request.cached > 0) pen.fillRect(x(request.admitted_s) - 1, middle - 9, 3, 18);
    for (const at of request.preempted_s) pen.fillText("✕", x(at) - 4, middle + 4);
    if (!Number.isNaN(request.ended_s)) pen.fillRect(Math.min(width - 1, x(request.ended_s)), middle - 7, 1, 14);
  });
  drafts(pen, colour("ink"), list, x);
}

// A dot above each step in which drafts were accepted.
function drafts(pen: CanvasRenderingContext2D, ink: string, list: LiveRequest[], x: (t: number) => number) {
  const places = new Map(list.map((request, i) => [request.id, i]));
  pen.fillStyle = ink;
  for (let i = store.rows.first; i < store.rows.count; ++i) {
    const place = store.rows.at("accepted", i) > 0 ? places.get(store.rows.at("id", i)) : undefined;
    if (place !== undefined) pen.fillRect(x(store.rows.at("end_s", i)) - 1, place * kRow + 1, 2, 2);
  }
}

const tokens = (r: LiveRequest) => `${count(r.prompt)}${r.cached ? ` (${count(r.cached)} cached)` : ""} → ${count(r.generated)}`;
const told = (r: LiveRequest) => `${tokens(r)} tokens${r.accepted ? `, ${count(r.accepted)} by drafts` : ""}, ${r.end || r.state}`;

export function Batch({ serving, whole }: { serving: Serving; whole: boolean }) {
  useBeat(4);
  const all = [...store.requests.values()];
  const ended = all.filter((r) => !Number.isNaN(r.ended_s)).reverse(); // the newest first
  const list = [...all.filter((r) => Number.isNaN(r.ended_s)), ...ended].slice(0, kShown).sort((a, b) => a.arrived_s - b.arrived_s || a.id - b.id);
  if (list.length === 0) return <p class="note">Requests appear here as they arrive: send a prompt, or several copies of it.</p>;
  const [from, to] = store.window(whole);
  return (
    <>
      <div class="batch">
        <ol class="requests">
          {list.map((r) => (
            <li key={r.id} data-request={r.id} data-state={r.state} data-cached={r.cached} data-generated={r.generated} title={told(r)}>
              <b>{letter(r.id)}</b> {r.cached > 0 && <span class="hit" title={`${count(r.cached)} tokens found in the prefix cache`}>◧</span>} {tokens(r)}{/waiting|preempted|cancelled|failed/.test(r.state) ? ` ${r.state}` : ""}
            </li>
          ))}
        </ol>
        <Canvas height={list.length * kRow} label={`${list.length} requests over ${seconds(to - from)}`} draw={(brush) => paint(brush, list, whole)} />
      </div>
      <p class="note">
        Prompt → answer, in tokens. {seconds(to - from)} from left to right: <i class="key line" /> waits <i class="key hatch" /> prefill chunk <i class="key solid" /> decodes ✕ preempted ◧ prefix hit · drafts accepted.
        {all.length > list.length ? ` ${all.length - list.length} older requests are not shown.` : ""}
      </p>
      <StaticReplay serving={serving} />
    </>
  );
}
