// What the steps and batch views draw, as plain data.
import { kKinds, type LiveRequest, type LiveStore } from "./store";

export interface Bar { from: number; to: number; steps: number; prefill_s: number; decode_s: number; gap_s: number; predicted_s: number }

// At most `most` bars over [from, to): one for a step where there is room, else the mean of those that
// ended in its share of the time.
export function bars(of: LiveStore, from: number, to: number, most: number): Bar[] {
  const { entries } = of;
  const width = (to - from) / most;
  const list: Bar[] = [];
  let place = -1;
  for (let i = entries.from("end_s", from); i < entries.count; ++i) {
    const end = entries.at("end_s", i);
    if (end > to) break;
    const at = Math.min(most - 1, Math.floor((end - from) / width));
    if (at !== place) list.push({ from: from + at * width, to: from + (at + 1) * width, steps: 0, prefill_s: 0, decode_s: 0, gap_s: 0, predicted_s: 0 });
    place = at;
    const bar = list[list.length - 1] as Bar;
    bar.steps += entries.at("steps", i);
    bar[entries.at("prefill_tokens", i) > 0 ? "prefill_s" : "decode_s"] += entries.at("measured_s", i);
    bar.gap_s += entries.at("gap_s", i);
    bar.predicted_s += entries.at("predicted_s", i);
  }
  for (const bar of list) for (const name of ["prefill_s", "decode_s", "gap_s", "predicted_s"] as const) bar[name] /= bar.steps;
  return list;
}

// A request's states over the pixels of a row: what it did at most there.
export const kIdle = 0, kWaits = 1, kPreempted = 2, kDecodes = 3, kPrefills = 4;

// The row of one request over [from, to] in `width` pixels.
export function track(of: LiveStore, request: LiveRequest, from: number, to: number, width: number): Uint8Array {
  const row = new Uint8Array(width);
  const place = (t: number) => Math.floor(((t - from) / (to - from)) * width);
  const fill = (a: number, b: number, state: number) => {
    for (let x = Math.max(0, place(a)); x <= Math.min(width - 1, place(b)); ++x) row[x] = Math.max(row[x] as number, state);
  };
  fill(request.arrived_s, Number.isNaN(request.admitted_s) ? Math.min(to, request.ended_s || to) : request.admitted_s, kWaits);
  request.preempted_s.forEach((at, i) => fill(at, request.resumed_s[i] ?? (request.ended_s || to), kPreempted));
  const { rows } = of;
  for (let i = rows.from("end_s", from); i < rows.count; ++i) {
    if (rows.at("id", i) === request.id) fill(rows.at("begin_s", i), rows.at("end_s", i), kKinds[rows.at("kind", i)] === "prefill" ? kPrefills : kDecodes);
  }
  return row;
}

// When the batch of each request ends: nobody joins a static batch, so that batches follow each other.
export function batchEnds(requests: { scheduled_s: number; end_s: number }[]): number[] {
  const order = requests.map((request, place) => ({ ...request, place })).sort((a, b) => a.scheduled_s - b.scheduled_s);
  const ends: number[] = [];
  let batch: typeof order = [], end = -Infinity;
  for (const request of order) {
    if (request.scheduled_s >= end) batch = [];
    batch.push(request);
    end = batch.length > 1 ? Math.max(end, request.end_s) : request.end_s;
    for (const { place } of batch) ends[place] = end;
  }
  return ends;
}
