// Tiles: operands on their way from memory to the matrix unit, as the pipeline model times them.
import { useMemo } from "preact/hooks";
import { plain, useView } from "../api";
import { Choice, NumberField } from "../controls";
import { Figure } from "../figure";
import { binary, bytes, count, memorySize, percent, seconds } from "../format";
import { frozen } from "../frozen";
import { tilesTimeline } from "../motion/pipeline";
import { Player } from "../player";
import { get, set } from "../state";
import type { Tiles } from "../types";
import { Flow, Gantt } from "./flow";

const kZones = [["memory", "queued and from memory"], ["cache", "through the cache"], ["waiting", "waiting in shared memory"], ["computing", "in the matrix unit"]] as const;

export default function TilesPanel() {
  const { data, error } = useView<Tiles>("tiles");
  const timeline = useMemo(() => data && tilesTimeline([data]), [data]);
  const [m = "128", n = "128", k = "64"] = get("tile").split("x");
  const side = (which: number, label: string, sizes: number[]) => (
    <div class="field">
      <label for={`tile${which}`}>{label}</label>
      <select id={`tile${which}`} name={`tile-${label}`} value={[m, n, k][which]} onChange={(e) => { const t = [m, n, k]; t[which] = e.currentTarget.value; set({ tile: t.join("x") }); }}>
        {sizes.map((s) => <option key={s} value={String(s)}>{s}</option>)}
      </select>
    </div>
  );
  return (
    <section class="panel">
      <form class="inline tools" aria-label="Tile" onSubmit={(e) => e.preventDefault()}>
        <fieldset disabled={frozen !== null}>
          {side(0, "M", [32, 64, 128, 256])}
          {side(1, "N", [32, 64, 128, 256, 512])}
          {side(2, "K", [16, 32, 64, 128])}
          <Choice option="dtype" label="Type" choices={["", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"].map((d) => [d, d || "machine's own"] as const)} />
          <div class="field stages">
            <label for="stages">Stages <output>{get("stages")}</output></label>
            <input id="stages" name="stages" type="range" min={1} max={8} step={1} value={get("stages")} onInput={(e) => set({ stages: e.currentTarget.value })} />
          </div>
          <NumberField option="reuse" label="Cache hits" unit="0 – 1" />
        </fieldset>
      </form>
      {error && <p class="note error" role="alert">{plain(error)}</p>}
      {data && timeline && !error && (
        <>
          <p class="sentence">
            With {data.stages} {data.stages === 1 ? "stage" : "stages"} the matrix unit works {percent(data.compute_busy)} of the time and memory {percent(data.memory_busy)}.
            {data.needed_bytes > 0 && ` On average ${bytes(data.in_flight_bytes)} travel from ${data.memory}; keeping it busy through its latency takes ${bytes(data.needed_bytes)}.`}
            {!data.fits && ` This does not fit: ${memorySize(data.shared_bytes)} of ${memorySize(data.capacity_bytes)} shared memory.`}
          </p>
          <Player name="tiles-panel" label="Tiles on their way to the matrix unit" timeline={timeline} draw={(now) => (
            <>
              <Figure name="tiles-flow" title={`${data.tile.join(" × ")} ${data.dtype} on one of ${count(data.units)} units of ${data.machine}`} json={data} draw={(w) => <Flow data={data} width={w} now={now} />} />
              <Figure name="tiles-gantt" title="Where each step's tiles are over time" rows={data.steps} json={data} draw={(w) => <Gantt data={data} width={w} now={now} />}
                note={<>Time of a tile: {kZones.map(([zone, label]) => <span key={zone} class={`zone ${zone}`}><i /> {percent(data.life[zone])} {label}</span>)}</>} />
            </>
          )} />
          <div class="two">
            <div class="scroll">
              <h3>Gain of more stages</h3>
              <table>
                <thead><tr><th class="n">stages</th><th class="n">shared memory</th><th>fits</th><th class="n">mean in flight</th><th class="n">memory busy</th><th class="n">units busy</th><th class="n">time</th></tr></thead>
                <tbody>{data.ladder.map((l) => <tr key={l.stages} class={l.stages === data.stages ? "here" : ""}><td class="n">{l.stages}</td><td class="n">{binary(l.shared_bytes)}</td><td>{l.fits ? "yes" : "no"}</td><td class="n">{bytes(l.in_flight_bytes)}</td><td class="n">{percent(l.memory_busy)}</td><td class="n">{percent(l.compute_busy)}</td><td class="n">{seconds(l.seconds)}</td></tr>)}</tbody>
              </table>
            </div>
            <div class="scroll">
              <h3>Which square tiles fit, in {data.dtype}</h3>
              <table>
                <thead><tr><th class="n">tile</th><th class="n">bytes</th><th class="n">in shared memory</th><th class="n">in {data.cache ?? "the cache"}</th></tr></thead>
                <tbody>{data.sizes.map((s) => <tr key={s.side}><td class="n">{s.side} × {s.side}</td><td class="n">{binary(s.bytes)}</td><td class="n">{count(s.in_shared)}</td><td class="n">{count(s.in_cache)}</td></tr>)}</tbody>
              </table>
            </div>
          </div>
          {data.notes.map((note) => <p key={note} class="note">Note: {note}.</p>)}
        </>
      )}
    </section>
  );
}
