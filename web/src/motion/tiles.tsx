// Tiles in flight with 1, 2 and N buffers. Options: machine, tile, dtype, stages (what moves), reuse.
import { useMemo } from "preact/hooks";
import { axisSeconds, percent, seconds } from "../format";
import { Player } from "../player";
import { linearScale } from "../scale";
import { addStyle } from "../style";
import type { Tiles } from "../types";
import { address, useAnswers, type MotionProps } from "./data";
import { bubbles, buffers, kTileStates, pipelineFrame, tilesTimeline } from "./pipeline";
import css from "./tiles.panel.css";

addStyle(css);

export default function TilesMotion({ config }: MotionProps) {
  const stages = [...new Set(["1", "2", config["stages"] || "4"])];
  const { data, error } = useAnswers<Tiles[]>(stages.map((n) => address("/api/tiles", config, ["machine", "tile", "dtype", "stages", "reuse"], { stages: n }, [])));
  const timeline = useMemo(() => data && tilesTimeline(data), [data]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!data || !timeline) return <p class="loading">Loading…</p>;
  return <Player name="tiles" label="Tiles on their way to the matrix unit" timeline={timeline} draw={(now, width) => <Drawing runs={data} now={now} width={width} />} />;
}

const kLane = 16;
const kNames = { queued: "queued", wire: "on the wire", cache: "through the cache", ready: "ready", computing: "computing" };

function Drawing({ runs, now, width }: { runs: Tiles[]; now: number; width: number }) {
  const end = Math.max(...runs.map((r) => r.seconds));
  const narrow = width < 560;
  const x = linearScale(0, end, 0, width - 2);
  let y = 30;
  const places = runs.map((run) => {
    const top = y;
    y += 22 + (run.stages + 1) * kLane + 22;
    return top;
  });
  const height = y + 12;
  return (
    <svg class="pipeline" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={runs.map((r) => `${buffers(r.stages)}: ${pipelineFrame(r, now).done} of ${r.steps.length} tiles done`).join("; ")}>
      <defs>
        <pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" y2="6" /></pattern>
        <clipPath id="tiles-past"><rect width={x(now)} height={height} /></clipPath>
      </defs>
      <g transform="translate(0 12)">
        {kTileStates.map(([state], i) => <g key={state} transform={`translate(${narrow ? [0, 72, 124, 184, 242][i] : i * 136} 0)`}><rect class={`state ${state}`} y={-9} width={10} height={10} /><text class="dim" x={14}>{narrow ? state : kNames[state]}</text></g>)}
      </g>
      {runs.map((run, r) => <Row key={run.stages} run={run} x={x} y={places[r] as number} now={now} width={width} narrow={narrow} />)}
      <g>{x.ticks(narrow ? 3 : 6).map((t) => <text key={t} class="dim" x={Math.min(width - 30, Math.max(0, x(t)))} y={height - 2} text-anchor={t === 0 ? "start" : "middle"}>{axisSeconds(t)}</text>)}</g>
      <line class="playhead" x1={x(now)} x2={x(now)} y1={22} y2={height - 16} />
    </svg>
  );
}

function Row({ run, x, y, now, width, narrow }: { run: Tiles; x: (t: number) => number; y: number; now: number; width: number; narrow: boolean }) {
  const frame = pipelineFrame(run, now);
  const unit = y + 20 + run.stages * kLane + 4;
  const done = now >= run.seconds;
  const told = done ? `${seconds(run.seconds)} · memory ${percent(run.memory_busy)} · unit ${percent(run.compute_busy)} busy` : `${frame.done} of ${run.steps.length} · unit waited ${seconds(frame.idle)}`;
  return (
    <g data-counter={`stages-${run.stages}`} data-value={done ? run.seconds : frame.idle}>
      <text class="strong" x={0} y={y + 10}>{buffers(run.stages)}</text>
      <text x={width} y={y + 10} text-anchor="end">{narrow ? told.replace(" busy", "") : told}</text>
      <rect class="track" x={0} y={y + 18} width={width} height={run.stages * kLane} />
      <rect class="track" x={0} y={unit} width={width} height={kLane + 2} />
      {[0.14, 1].map((opacity) => (
        <g key={opacity} opacity={opacity} clip-path={opacity === 1 ? "url(#tiles-past)" : undefined}>
          <Bars run={run} x={x} y={y} unit={unit} />
        </g>
      ))}
    </g>
  );
}

// Drawn twice: faint for what is to come, and up to now.
function Bars({ run, x, y, unit }: { run: Tiles; x: (t: number) => number; y: number; unit: number }) {
  return (
    <>
      {run.steps.map((tile, i) => {
        const lane = y + 19 + (i % run.stages) * kLane;
        const w = x(tile.done_s) - x(tile.computing_s);
        return (
          <g key={i}>
            {kTileStates.map(([state, a, b]) => tile[b] > tile[a] && <rect key={state} class={`state ${state}`} x={x(tile[a])} y={lane} width={Math.max(0.5, x(tile[b]) - x(tile[a]) - 0.5)} height={kLane - 2} />)}
            <rect class="state computing" x={x(tile.computing_s)} y={unit} width={Math.max(0.8, w - 0.5)} height={kLane + 2} />
            {w > 17 && <text class="on" x={x(tile.computing_s) + w / 2} y={unit + 13} text-anchor="middle">{i + 1}</text>}
          </g>
        );
      })}
      {bubbles(run).map((b) => {
        const w = x(b.to) - x(b.from);
        return (
          <g key={b.from}>
            <rect x={x(b.from)} y={unit} width={w} height={kLane + 2} fill="url(#idle)" />
            {w > 62 && <text class="bubble-time" x={x(b.from) + w / 2} y={unit + 13} text-anchor="middle">{seconds(b.to - b.from)}</text>}
          </g>
        );
      })}
    </>
  );
}
