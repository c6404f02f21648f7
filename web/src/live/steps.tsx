// Steps over time: measured beside predicted, and what the newest say: tokens/s, share of the roof, walls.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ask } from "../api";
import { count, percent, seconds, axisSeconds, times } from "../format";
import { linearTicks } from "../scale";
import type { Prediction, Wall } from "../types";
import { WallTag } from "../walls";
import { Canvas, store, useBeat, type Brush } from "./draw";
import type { Serving } from "./events";
import { bars } from "./tracks";

const kHeight = 132;
const kLeft = 54, kBottom = 16, kTop = 6;
const kBar = 7; // px at least of a measured and a predicted bar together

function paint({ pen, width, height, colour, pattern }: Brush, whole: boolean) {
  const [from, to] = store.window(whole);
  const list = bars(store, from, to, Math.max(8, Math.floor((width - kLeft) / kBar)));
  const top = Math.max(1e-6, ...list.map((b) => Math.max(b.prefill_s + b.decode_s + b.gap_s, b.predicted_s))) * 1.08;
  const base = height - kBottom;
  const x = (t: number) => kLeft + ((t - from) / (to - from)) * (width - kLeft);
  const y = (s: number) => base - (s / top) * (base - kTop);
  pen.fillStyle = colour("dim");
  pen.textAlign = "right";
  for (const tick of linearTicks(0, top, 3)) {
    pen.fillText(axisSeconds(tick), kLeft - 5, y(tick) + 4);
    pen.fillStyle = colour("grid");
    pen.fillRect(kLeft, y(tick), width, 1);
    pen.fillStyle = colour("dim");
  }
  pen.fillText(whole || store.busy ? "now" : "last step", width, height - 3);
  pen.textAlign = "left";
  pen.fillText(`${seconds(to - from)} before`, kLeft, height - 3);
  for (const bar of list) {
    const left = x(bar.from), step = Math.max(2, x(bar.to) - left), half = Math.max(1, step * 0.5 - 0.5);
    let under = 0;
    for (const [name, fill] of [["decode_s", colour("dim")], ["prefill_s", pattern(1)], ["gap_s", colour("line")]] as const) {
      if (!bar[name]) continue;
      pen.fillStyle = fill;
      pen.fillRect(left, y(under + bar[name]), half, y(under) - y(under + bar[name]));
      under += bar[name];
    }
    if (!bar.predicted_s) continue;
    pen.fillStyle = colour("grid");
    pen.fillRect(left + half, y(bar.predicted_s), half - 1, base - y(bar.predicted_s));
    pen.fillStyle = colour("ink");
    pen.fillRect(left + half, y(bar.predicted_s), half - 1, 1.5);
  }
}

// A step names its wall; the wall behind it comes from the prediction for as many sequences, of the
// phase that has the same wall.
function useNextWall(serving: Serving): Wall | null {
  const batch = Math.max(1, store.running);
  const predicted = useRef<Prediction | null>(null); // shown with the next beat
  useEffect(() => {
    const timer = setTimeout(() => {
      ask(`/api/predict?${new URLSearchParams({ model: serving.model, machine: serving.machine ?? "this", batch: `${batch}`, context: `${Math.min(serving.max_context, 512)}` })}`)
        .then((p) => { predicted.current = p as Prediction; }, () => { predicted.current = null; });
    }, 500);
    return () => clearTimeout(timer);
  }, [batch, serving.model]);
  const p = predicted.current;
  return p && ([p.decode, p.prefill].find((phase) => phase.wall === store.wall)?.next_wall ?? p.decode.wall);
}

function Fact({ name, value, children }: { name: string; value?: number | string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd data-fact={name} data-value={value}>{children}</dd></div>;
}

export function Steps({ serving, whole }: { serving: Serving; whole: boolean }) {
  useBeat(10);
  const now = store.recent(1);
  const total = store.total;
  const one = total.steps > 0;
  const next = useNextWall(serving);
  return (
    <>
      <dl class="facts" data-total={JSON.stringify(total)} data-dropped={store.dropped}>
        <Fact name="tokens/s" value={now.generated_tokens / now.span_s}>{one ? count(now.generated_tokens / now.span_s) : "–"}</Fact>
        <Fact name="of the roof" value={now.roof_s / now.measured_s}>{now.roof_s ? percent(now.roof_s / now.measured_s) : "–"}</Fact>
        <Fact name="measured / predicted" value={now.measured_s / now.predicted_s}>{now.predicted_s ? times(now.measured_s / now.predicted_s) : "–"}</Fact>
        <Fact name="wall">{one ? <WallTag wall={store.wall} /> : "–"}</Fact>
        {one && next && <Fact name="next wall"><WallTag wall={next} /></Fact>}
        <Fact name="running" value={store.running}>{store.running}{store.waiting ? ` + ${store.waiting} wait` : ""}</Fact>
      </dl>
      <SlowCanvas whole={whole} />
      <p class="note">
        <i class="key solid" /> decode <i class="key hatch" /> with a prefill chunk <i class="key gap" /> host gap <i class="key hollow" /> predicted.
        {" "}{count(total.steps)} steps{store.dropped ? `, ${count(store.dropped)} more not sent` : ""}; where there are more than bars, a bar is their mean.
      </p>
    </>
  );
}

function SlowCanvas({ whole }: { whole: boolean }) {
  useBeat(4);
  const now = store.recent(1);
  return (
    <Canvas height={kHeight} draw={(brush) => paint(brush, whole)}
      label={now.steps ? `Steps: measured ${seconds(now.measured_s / now.steps)} each, predicted ${seconds(now.predicted_s / now.steps)}` : "No step yet"} />
  );
}
