// Operators of the step that was profiled last.
import { bytes, count, percent, seconds } from "../format";
import type { Wall } from "../types";
import { WallMark, kWalls } from "../walls";
import { store, useBeat } from "./draw";
import type { Serving } from "./events";

function WallGlyph({ wall }: { wall: Wall }) {
  return <span class={`tag wall-${wall}`} title={kWalls[wall].label}><svg class="glyph" viewBox="-6 -6 12 12" width="11" height="11" role="img" aria-label={`${kWalls[wall].label} decides`}><WallMark wall={wall} r={4.2} /></svg></span>;
}

export function LiveProfile({ serving, on, set }: { serving: Serving; on: boolean; set: (on: boolean) => void }) {
  useBeat(1);
  const { profile } = store;
  const share = (part: number | null) => percent(part === null || !profile ? null : part / profile.step_s);
  return (
    <>
      <label class="switch"><input type="checkbox" name="profile" role="switch" checked={on} onChange={(e) => set(e.currentTarget.checked)} /><span>time each operator of one step in 64</span></label>
      {on && !profile && <p class="note">The next profiled step appears here.</p>}
      {on && !serving.profiles && <p class="note">This device does not time operators: their expected times are shown.</p>}
      {on && profile && (
        <div class="scroll">
          <table data-step={profile.step_s} data-unattributed={profile.unattributed_s}>
            <thead><tr><th>operator</th><th class="n">bytes</th><th class="n">roof</th><th class="n">expected</th><th class="n">measured</th><th class="n">share</th></tr></thead>
            <tbody>
              {[...profile.ops].sort((a, b) => (b.measured_s ?? 0) - (a.measured_s ?? 0)).map((op) => (
                <tr key={op.name}><td><WallGlyph wall={op.wall} />{op.name}{op.count > 1 ? ` ×${count(op.count)}` : ""}</td><td class="n">{bytes(op.bytes)}</td><td class="n">{seconds(op.roof_s)}</td><td class="n">{seconds(op.expected_s)}</td>
                  <td class="n">{seconds(op.measured_s)}</td><td class="n">{share(op.measured_s)}</td></tr>
              ))}
              <tr class="sum"><td>unattributed</td><td /><td /><td /><td class="n">{seconds(profile.unattributed_s)}</td><td class="n">{share(profile.unattributed_s)}</td></tr>
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
