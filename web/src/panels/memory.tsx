// KV cache and memory: what fills a device, and how many users fit.
import { plain, useView } from "../api";
import { Chart, frame } from "../axes";
import { NumberField } from "../controls";
import { Figure } from "../figure";
import { axisBytes, bytes, count, memorySize, percent, seconds } from "../format";
import { linearScale } from "../scale";
import type { Memory, ModelDetails, Prediction, Users } from "../types";
import { WallTag } from "../walls";

const parts = (m: Memory) => [
  ["weights", m.weights_bytes], ["KV-cache", m.kv_bytes], ["activations", m.activation_bytes], ["overhead", m.overhead_bytes],
] as const;
const used = (m: Memory) => parts(m).reduce((sum, [, value]) => sum + value, 0);
const taken = (m: Memory) => used(m) + m.reserved_bytes;
// With what the stack leaves unused, where it does.
const shares = (m: Memory) => [...parts(m), ...(m.reserved_bytes > 0 ? [["reserved-by-the-stack", m.reserved_bytes] as const] : [])];
const named = (part: string) => part.replaceAll("-", " ");

function Fill({ memory, width }: { memory: Memory; width: number }) {
  const f = frame(width, 92, 8, 8, 18, 30);
  const whole = Math.max(memory.capacity_bytes ?? 0, taken(memory));
  const x = linearScale(0, whole, f.left, f.right);
  let at = 0;
  return (
    <Chart frame={f} label="Memory of one device by what fills it">
      <rect class="chip-edge" x={f.left} y={f.top} width={Math.max(0, x(memory.capacity_bytes ?? whole) - f.left)} height={f.bottom - f.top} />
      {shares(memory).map(([name, value]) => {
        const from = at;
        at += value;
        const w = x(at) - x(from);
        return (
          <g key={name} class={`part ${name}`}>
            <rect x={x(from)} y={f.top} width={Math.max(0.5, w)} height={f.bottom - f.top} />
            {w > 12 + 7 * name.length && <text x={x(from) + w / 2} y={(f.top + f.bottom) / 2 + 4} text-anchor="middle">{named(name)}</text>}
            <title>{`${named(name)} ${bytes(value)}`}</title>
          </g>
        );
      })}
      {memory.capacity_bytes && <g class="rule"><line x1={x(memory.capacity_bytes)} x2={x(memory.capacity_bytes)} y1={f.top - 6} y2={f.bottom + 4} /><text x={x(memory.capacity_bytes)} y={f.top - 8} text-anchor="end">{memorySize(memory.capacity_bytes)} usable</text></g>}
      <g class="axes">{x.ticks(Math.max(3, Math.floor(width / 110))).map((v) => <text key={v} x={Math.min(x(v), f.right - 14)} y={f.bottom + 15} text-anchor={v === 0 ? "start" : "middle"}>{axisBytes(v)}</text>)}</g>
    </Chart>
  );
}

export default function MemoryPanel() {
  const view = useView<Prediction>("predict");
  const model = useView<ModelDetails>("model").data;
  const users = useView<Users>("users");
  const p = view.data;
  if (!p) return <p class="note">{view.error ? plain(view.error) : "…"}</p>;
  const m = p.memory;
  const left = m.capacity_bytes === null ? null : m.capacity_bytes - taken(m);
  const u = users.data;
  return (
    <section class="panel">
      <p class="sentence">
        {m.fits ? <>{bytes(used(m))} of {memorySize(m.capacity_bytes)} that the driver leaves are used{p.devices > 1 ? ` on each of ${p.devices} devices` : ""}.</> : <>It does not fit: {bytes(used(m))} needed, {memorySize(m.capacity_bytes === null ? null : m.capacity_bytes - m.reserved_bytes)} available.</>}{" "}
        {m.reserved_bytes > 0 && <>{p.stack} leaves {bytes(m.reserved_bytes)} unused by default. </>}
        {m.max_batch !== null && <>At context {count(p.decode.context)} at most {count(m.max_batch)} sequences fit; at batch {count(p.decode.batch)} each may hold {count(m.max_context)} tokens.</>}
      </p>
      <Figure name="memory" title="One device's memory" json={m} rows={shares(m).map(([part, value]) => ({ part, bytes: value }))} draw={(w) => <Fill memory={m} width={w} />} />
      <div class="two">
        <div>
          <h3>By use</h3>
          <div class="scroll"><table class="partlist">
            <tbody>
              {shares(m).map(([name, value]) => <tr key={name}><td><i class={`swatch ${name}`} />{named(name)}</td><td class="n">{bytes(value)}</td><td class="n dim">{m.capacity_bytes ? percent(value / m.capacity_bytes) : ""}</td></tr>)}
              <tr class="sum"><td><i class="swatch free" />{left !== null && left < 0 ? "missing" : "free"}</td><td class="n">{bytes(left === null ? null : Math.abs(left))}</td><td class="n dim">{m.capacity_bytes && left !== null ? percent(Math.abs(left) / m.capacity_bytes) : ""}</td></tr>
            </tbody>
          </table></div>
          {model && (
            <>
              <h3>KV cache of {model.title}</h3>
              <p class="note">{model.kv_bytes_per_token > 0 ? <><b>{bytes(model.kv_bytes_per_token)}</b> per token in {model.kv_format}, before any sliding window limits it.</> : "No KV cache: a constant state per sequence."} Layers:</p>
              <ul class="layers">{model.layer_groups.map((g) => <li key={`${g.kind}${g.count}`}><b>{g.count} ×</b> {g.kind}</li>)}</ul>
              <div class="scroll"><table class="partlist">
                <thead><tr><th>context</th><th class="n">per sequence</th><th class="n">share of weights</th></tr></thead>
                <tbody>{model.kv.filter((k) => k.context <= (model.max_context ?? Infinity)).map((k) => <tr key={k.context}><td>{count(k.context)}</td><td class="n">{bytes(k.bytes)}</td><td class="n dim">{percent(k.bytes / model.weight_bytes)}</td></tr>)}</tbody>
              </table></div>
            </>
          )}
        </div>
        <div>
          <h3>Users at once</h3>
          <div class="inline"><NumberField option="target" label="Latency target" unit="per token" /></div>
          {users.error && <p class="note error" role="alert">{plain(users.error)}</p>}
          {u && !users.error && (
            <>
              <dl class="facts big">
                <div class={u.by_memory !== null && u.by_memory <= u.by_latency ? "least" : ""}><dt>memory holds</dt><dd data-users="memory">{u.by_memory === null ? "?" : count(u.by_memory)}</dd></div>
                <div class={u.by_memory === null || u.by_latency < u.by_memory ? "least" : ""}><dt>latency allows</dt><dd data-users="latency">{count(u.by_latency)}</dd></div>
                <div><dt>users</dt><dd data-users="users">{count(u.users)}</dd></div>
              </dl>
              <p class="note">
                Within {seconds(u.target_s)} per token. {u.users >= 1 ? <>The limit is <WallTag wall={u.decides} />; at that load {count(u.tokens_per_s)} tok/s in total, {seconds(u.tpot_s)} per token.</> : "Not even one user is served that fast."}
              </p>
            </>
          )}
        </div>
      </div>
    </section>
  );
}
