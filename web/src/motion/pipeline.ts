// The states of a tile over time, and the pauses of the matrix unit.
import { percent, seconds } from "../format";
import type { Timeline } from "../timeline";

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

export const buffers = (n: number) => (n === 1 ? "One buffer" : `${n} buffers`);

export function tilesTimeline(runs: Pipeline[]): Timeline {
  const events = runs.flatMap((run) => {
    const pauses = bubbles(run);
    return [
      ...run.steps.map((tile, i) => {
        const pause = pauses.find((b) => b.to === tile.computing_s);
        return { at: tile.computing_s, text: `${buffers(run.stages)}: tile ${i + 1} enters the unit${pause ? ` after ${seconds(pause.to - pause.from)} of waiting` : " at once"}` };
      }),
      { at: run.seconds, text: `${buffers(run.stages)}: done after ${seconds(run.seconds)}, memory busy ${percent(run.memory_busy)}, unit ${percent(run.compute_busy)}` },
    ];
  });
  return { scenes: [{ seconds: Math.max(...runs.map((r) => r.seconds)), screen: 14 }], events: events.sort((a, b) => a.at - b.at) };
}
