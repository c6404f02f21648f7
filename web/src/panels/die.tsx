// The die from the machine's own numbers: units, cache, memory and what fills it, links.
import { Chart, frame } from "../axes";
import { bytes, count, memorySize, rate } from "../format";
import type { Pyramid } from "../types";

export function Die({ data, width, chosen, choose }: { data: Pyramid; width: number; chosen: string; choose: (name: string) => void }) {
  const machine = data.machine;
  const units = Math.max(1, machine.units ?? machine.levels.find((l) => l.scope === "unit")?.instances ?? 1);
  const onDevice = machine.levels.filter((l) => l.scope === "device");
  const memory = onDevice.at(-1);
  const cache = onDevice.length > 1 ? onDevice.at(-2) : undefined;
  const height = 330;
  const f = frame(width, height, 10, 10, 10, 34);
  const side = Math.min(92, width * 0.2);
  const die = { x: f.left + side + 14, y: f.top, w: f.right - f.left - side - 14, h: f.bottom - f.top };
  const strip = cache ? 40 : 0;
  const half = (die.h - strip - 20) / 2;
  const across = Math.max(1, Math.ceil(Math.sqrt((units / 2) * ((die.w - 16) / half))));
  const rows = Math.ceil(units / 2 / across);
  const cell = Math.min((die.w - 16) / across, half / rows);
  const squares = Array.from({ length: units }, (_, i) => {
    const lower = i >= Math.ceil(units / 2);
    const j = lower ? i - Math.ceil(units / 2) : i;
    const top = lower ? die.y + 10 + half + strip : die.y + 10 + half - rows * cell;
    return [die.x + (die.w - across * cell) / 2 + (j % across) * cell, top + Math.floor(j / across) * cell] as const;
  });
  const capacity = memory?.capacity ? memory.capacity * (memory.instances ?? 1) : null;
  const residents = data.residents.filter((r) => r.level === memory?.name);
  let filled = 0;
  const unitLevel = machine.levels.find((l) => l.scope === "unit" && l.name !== "registers") ?? machine.levels.find((l) => l.scope === "unit");
  const pick = (name: string | undefined) => name && choose(name);
  return (
    <Chart frame={f} label={`Die of ${machine.name}: ${count(units)} units, ${cache?.name ?? "no shared cache"}, ${memory?.name}`}>
      <rect class="chip-edge" x={die.x} y={die.y} width={die.w} height={die.h} rx={4} />
      <g class={`unit${chosen === unitLevel?.name || chosen === "registers" ? " chosen" : ""}`} onClick={() => pick(unitLevel?.name)}>
        {squares.map(([x, y], i) => <rect key={i} x={x + 0.7} y={y + 0.7} width={Math.max(1, cell - 1.4)} height={Math.max(1, cell - 1.4)} />)}
      </g>
      {cache && (
        <g class={`cache${chosen === cache.name ? " chosen" : ""}`} onClick={() => pick(cache.name)}>
          <rect x={die.x + 8} y={die.y + 10 + half + 4} width={die.w - 16} height={strip - 8} />
          <text x={die.x + die.w / 2} y={die.y + 10 + half + strip / 2 + 4} text-anchor="middle">{cache.name} {memorySize((cache.capacity ?? 0) * (cache.instances ?? 1))} · {rate(cache.read_bandwidth)}</text>
        </g>
      )}
      <g class={`hbm${chosen === memory?.name ? " chosen" : ""}`} onClick={() => pick(memory?.name)}>
        <rect class="edge" x={f.left} y={f.top} width={side} height={die.h} />
        {capacity && residents.map((r) => {
          const h = Math.min(1, r.bytes / capacity) * die.h;
          const y = Math.max(f.top, f.bottom - filled - h);
          filled += h;
          return (
            <g key={r.name} class={`part ${r.name.replace(" ", "-")}`}>
              <rect x={f.left} y={y} width={side} height={Math.max(0.5, Math.min(h, f.bottom - f.top))} />
              {h > 13 && <text x={f.left + side / 2} y={y + h / 2 + 4} text-anchor="middle">{r.name}</text>}
              <title>{`${r.name} ${bytes(r.bytes)}`}</title>
            </g>
          );
        })}
        <text x={f.left + side / 2} y={f.top + 14} text-anchor="middle">{memory?.name}</text>
      </g>
      <path class="bus" d={`M${f.left + side} ${die.y + die.h / 2}H${die.x}`} />
      <text x={f.left} y={f.bottom + 16}>{memorySize(capacity)} · {rate(memory?.read_bandwidth)}</text>
      <text x={f.right} y={f.bottom + 16} text-anchor="end">{count(units)} units{machine.clock ? ` at ${(machine.clock / 1e9).toFixed(2)} GHz` : ""}</text>
      <text class="dim" x={f.right} y={f.bottom + 30} text-anchor="end">{[...(machine.links ?? []).map((l) => `${l.name} ${rate(l.bandwidth)}`), ...machine.levels.filter((l) => l.scope === "host" && l.read_bandwidth).map((l) => `host ${rate(l.read_bandwidth)}`)].join(" · ")}</text>
    </Chart>
  );
}
