// A schedule as runs of seats, and its counters at one moment.
export interface ScheduleRow { request: number; seat: number; prompt: number; drawn: boolean }
export interface ScheduleStep { start_s: number; seconds: number; rows: ScheduleRow[] }
export interface ScheduleRun {
  policy: string; seconds: number; tokens: number; tokens_per_s: number; useful_seats: number; first_token_s: number;
  longest_pause_s: number; redone_tokens: number; preemptions: number;
  requests: { scheduled_s: number; first_token_s: number; end_s: number; longest_pause_s: number; preemptions: number; tokens: number }[];
  steps: ScheduleStep[];
}
export interface ScheduleData {
  model: string; machine: string; seats: number; chunk: number; kv_tokens: number;
  requests: { arrival_s: number; prompt: number; output: number }[];
  runs: ScheduleRun[];
}

export const letter = (request: number) => (request < 26 ? String.fromCharCode(65 + request) : String.fromCharCode(97 + request - 26));

// Consecutive steps of one request on one seat that do the same: one piece to draw.
export interface Piece { seat: number; request: number; prompt: boolean; from: number; to: number; draws: number[] }
export function pieces(run: ScheduleRun): Piece[] {
  const list: Piece[] = [];
  const last = new Map<number, Piece>();
  for (const step of run.steps) {
    const end = step.start_s + step.seconds;
    for (const row of step.rows) {
      const before = last.get(row.seat);
      const same = before && before.request === row.request && before.prompt === row.prompt > 0 && Math.abs(before.to - step.start_s) < 1e-9 * (1 + end);
      const piece = same ? before : { seat: row.seat, request: row.request, prompt: row.prompt > 0, from: step.start_s, to: end, draws: [] };
      piece.to = end;
      if (row.drawn) piece.draws.push(end);
      if (!same) {
        list.push(piece);
        last.set(row.seat, piece);
      }
    }
  }
  return list;
}

export interface ScheduleFrame { tokens: number; useful: number; waiting: number[]; done: number }
export function scheduleFrame(data: ScheduleData, run: ScheduleRun, now: number): ScheduleFrame {
  let tokens = 0, used = 0, busy = 0;
  for (const step of run.steps) {
    if (step.start_s >= now) break;
    const part = Math.min(step.seconds, now - step.start_s);
    busy += part;
    used += part * step.rows.length;
    if (step.start_s + step.seconds <= now * (1 + 1e-9)) tokens += step.rows.filter((row) => row.drawn).length;
  }
  const waiting = data.requests.flatMap((r, i) => (r.arrival_s <= now && (run.requests[i]?.scheduled_s ?? 0) > now ? [i] : []));
  const done = run.requests.filter((r) => r.end_s <= now * (1 + 1e-9)).length;
  const finished = now >= run.seconds;
  return { tokens: finished ? run.tokens : tokens, useful: finished ? run.useful_seats : busy > 0 ? used / (busy * data.seats) : 0, waiting, done };
}
