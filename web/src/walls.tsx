// A wall has a colour and a shape, so that either alone tells it.
import type { Wall } from "./types";

export const kWalls: Record<Wall, { label: string; shape: (r: number) => string }> = {
  compute: { label: "compute", shape: (r) => `M0 ${-r * 1.15}L${r * 1.1} ${r * 0.8}H${-r * 1.1}Z` },
  memory: { label: "memory", shape: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z` },
  launch: { label: "launch", shape: (r) => `M0 ${-r * 1.2}L${r * 1.2} 0L0 ${r * 1.2}L${-r * 1.2} 0Z` },
  interconnect: { label: "interconnect", shape: (r) => `M${-r * 0.9} ${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}Z` },
  "host-link": {
    label: "host link",
    shape: (r) => `M${-r * 0.4} ${-r * 1.1}h${r * 0.8}v${r * 0.7}h${r * 0.7}v${r * 0.8}h${-r * 0.7}v${r * 0.7}h${-r * 0.8}v${-r * 0.7}h${-r * 0.7}v${-r * 0.8}h${r * 0.7}Z`,
  },
  capacity: { label: "capacity", shape: (r) => `M${-r} ${-r * 0.5}L${-r * 0.5} ${-r}L0 ${-r * 0.5}L${r * 0.5} ${-r}L${r} ${-r * 0.5}L${r * 0.5} 0L${r} ${r * 0.5}L${r * 0.5} ${r}L0 ${r * 0.5}L${-r * 0.5} ${r}L${-r} ${r * 0.5}L${-r * 0.5} 0Z` },
  power: { label: "power", shape: (r) => `M${r * 0.3} ${-r * 1.2}L${-r * 0.8} ${r * 0.2}H0L${-r * 0.3} ${r * 1.2}L${r * 0.8} ${-r * 0.2}H0Z` },
};
export const kTimed: Wall[] = ["compute", "memory", "launch", "interconnect", "host-link"];
export const wallColour = (wall: Wall) => `var(--${wall})`;

export function WallMark({ wall, r = 4, hollow = false }: { wall: Wall; r?: number; hollow?: boolean }) {
  return <path class={`mark wall-${wall}${hollow ? " hollow" : ""}`} d={kWalls[wall].shape(r)} />;
}

export function WallTag({ wall }: { wall: Wall }) {
  return (
    <span class={`tag wall-${wall}`}>
      <svg class="glyph" viewBox="-6 -6 12 12" width="11" height="11" aria-hidden="true">
        <WallMark wall={wall} r={4.2} />
      </svg>
      {kWalls[wall].label}
    </span>
  );
}
