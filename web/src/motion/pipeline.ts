// The states of a tile over time, and the pauses of the matrix unit.
export interface TileTimes { issued_s: number; started_s: number; from_memory_s: number; in_shared_s: number; computing_s: number; done_s: number }
export interface Pipeline { stages: number; seconds: number; memory_busy: number; compute_busy: number; steps: TileTimes[] }

export const kTileStates = [["queued", "issued_s", "started_s"], ["wire", "started_s", "from_memory_s"], ["cache", "from_memory_s", "in_shared_s"], ["ready", "in_shared_s", "computing_s"], ["computing", "computing_s", "done_s"]] as const;
export type TileState = (typeof kTileStates)[number][0] | "waiting" | "done";

export function tileState(tile: TileTimes, now: number): TileState {
  if (now < tile.issued_s) return "waiting";
  for (const [state, , end] of kTileStates) if (now < tile[end]) return state;
  return "done";
}

export interface Bubble { from: number; to: number }
// Where the unit has nothing to do, the wait for the first tile included.
export function bubbles(run: Pipeline): Bubble[] {
  let free = 0;
  const list: Bubble[] = [];
  for (const tile of run.steps) {
    if (tile.computing_s > free * (1 + 1e-9) + 1e-15) list.push({ from: free, to: tile.computing_s });
    free = tile.done_s;
  }
  return list;
}

export interface PipelineFrame { done: number; idle: number; states: TileState[] }
export function pipelineFrame(run: Pipeline, now: number): PipelineFrame {
  const states = run.steps.map((tile) => tileState(tile, now));
  const idle = bubbles(run).reduce((sum, b) => sum + Math.max(0, Math.min(b.to, now) - b.from), 0);
  return { done: states.filter((s) => s === "done").length, idle, states };
}
