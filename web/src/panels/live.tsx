// Live: the engine behind this page at work. Without a model it says how to start one.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { percent } from "../format";
import { Answers } from "../live/answers";
import { Batch } from "../live/batch";
import { cost, drawingShare, store, useBeat } from "../live/draw";
import type { Serving } from "../live/events";
import { Formats } from "../live/formats";
import { Kv } from "../live/kv";
import css from "../live/live.panel.css";
import { LiveProfile } from "../live/profile";
import { Roof } from "../live/roof";
import { Steps } from "../live/steps";
import { openStream, type StreamState } from "../live/stream";
import { request } from "../request";
import { addStyle } from "../style";

const kWide = "(min-width: 900px)";

// A view that can be folded; folded it draws nothing. On a phone all but the first begin folded.
function View({ name, title, first = false, children }: { name: string; title: string; first?: boolean; children: ComponentChildren }) {
  const [open, fold] = useState(() => first || matchMedia(kWide).matches);
  return (
    <details class="figure view" open={open} onToggle={(e) => fold(e.currentTarget.open)} data-view={name}>
      <summary><h3>{title}</h3></summary>
      {open && children}
    </details>
  );
}

const kStates: Record<StreamState, string> = {
  connecting: "Connecting …",
  open: "",
  hidden: "The tab was hidden, so the stream is closed.",
  lost: "The server does not answer: is ridge serve still running? The page tries again every 3 s.",
};

const kRefused = "The server refuses the stream: perhaps four pages watch it already. This page tries again every 3 s.";

const kHold = 5000; // ms
// Pauses the drawing and tells what drawing costs: on a CPU the page competes with the engine.
function HoldStill() {
  const [told, tell] = useState("");
  const [holding, pause] = useState(false);
  useEffect(() => () => { cost.held = false; }, []);
  const start = () => {
    const share = drawingShare();
    const before = store.recent(5);
    cost.held = true;
    pause(true);
    setTimeout(() => {
      cost.held = false;
      pause(false);
      drawingShare();
      const during = store.recent(5);
      const rate = (s: typeof before) => (s.span_s ? `${Math.round(s.generated_tokens / s.span_s)} tok/s` : "no tokens");
      tell(`Drawing took ${percent(share)} of one core. ${store.busy ? `${rate(before)} with drawing, ${rate(during)} without.` : ""}`);
    }, kHold);
  };
  return <><button type="button" name="hold" aria-pressed={holding} disabled={holding} onClick={start}>{holding ? "Held for 5 s" : "Hold still"}</button><span class="note" role="status" data-hold>{told}</span></>;
}

// A step waits for processors that others use, and a roof that was measured meanwhile is too low.
function Busy() {
  useBeat(1);
  const { busy, others } = store.load;
  return <p class="note busy-machine" role="status" data-busy={busy}>{busy ? `Other processes take about ${percent(others)} of the processors: steps take longer than predicted, and what is measured now is no roof of this machine.` : ""}</p>;
}

function Engine({ serving, profile, setProfile }: { serving: Serving; profile: boolean; setProfile: (on: boolean) => void }) {
  const [whole, show] = useState(false);
  return (
    <div class="live">
      <div class="column">
        <Answers serving={serving} />
        <Formats serving={serving} />
        <Busy />
      </div>
      <div class="column">
        <div class="toolbar">
          <div class="chips" role="group" aria-label="Time shown">
            {([[false, "since idle"], [true, "last 30 s"]] as const).map(([value, text]) => <button key={text} type="button" class="chip" aria-pressed={whole === value} onClick={() => show(value)}>{text}</button>)}
          </div>
          <HoldStill />
        </div>
        <View name="steps" title="Steps" first><Steps serving={serving} whole={whole} /></View>
        <View name="batch" title="Batch"><Batch serving={serving} whole={whole} /></View>
        <View name="kv" title="KV cache"><Kv serving={serving} /></View>
      </div>
      <div class="column">
        <View name="roof" title="Roofline, now"><Roof serving={serving} /></View>
        <View name="profile" title="Profile of a step"><LiveProfile serving={serving} on={profile} set={setProfile} /></View>
      </div>
    </div>
  );
}

// What is served. Asked again while nothing is, and while the stream is lost: `reached` says whether
// the server has answered since.
interface Found { serving: Serving | null; why: string; reached: boolean }

function useServing(lost: boolean): Found {
  const [found, find] = useState<Found>({ serving: null, why: "", reached: false });
  const wanted = lost || !found.serving;
  useEffect(() => {
    if (!wanted) {
      find((last) => ({ ...last, reached: false })); // before the stream is lost, not after: no wrong reason is drawn
      return;
    }
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      try {
        if (document.hidden) return;
        const answer = (await (await request("/api/serving")).json()) as Serving | { serving?: false; why?: string };
        if (current) find(answer.serving ? { serving: answer, why: "", reached: true } : { serving: null, why: answer.why ?? "It has no live view.", reached: true });
      } catch {
        if (current) find((last) => ({ ...last, why: kStates.lost, reached: false }));
      } finally {
        if (current) timer = setTimeout(() => void look(), 3000);
      }
    };
    void look();
    return () => { current = false; clearTimeout(timer); };
  }, [wanted]);
  return found;
}

export default function LivePanel() {
  addStyle(css);
  const [state, tell] = useState<StreamState>("connecting");
  const [profile, setProfile] = useState(false);
  const found = useServing(state === "lost");
  const serves = found.serving !== null;
  useEffect(() => (serves ? openStream(store, profile, tell) : undefined), [serves, profile]);
  const serving = found.serving && (store.serving ?? found.serving);
  const problem = state === "lost" && found.reached ? kRefused : kStates[state];
  if (!serving) {
    return (
      <section class="panel" data-live="none">
        <p class="sentence">{found.why ? "No model runs behind this page." : "…"}</p>
        {found.why && <><p class="note" data-why>{found.why}</p>
          <p>Start one, and this panel shows it at work: tokens, steps under the roof, the batch, the KV cache.</p>
          <pre><code>{"ridge serve                       # ridge-7m, the small model inside the program\nridge serve --speculate 4         # the same, with drafts from the text\nridge serve MODEL.gguf            # a model of yours"}</code></pre></>}
      </section>
    );
  }
  return (
    <section class="panel" data-live={state}>
      <p class="sentence small">
        <b>{serving.model}</b>, {serving.weights} weights, on {serving.device}.
        {problem && state !== "lost" && <span class="note"> {problem}</span>}
      </p>
      {state === "lost" && <p class="error banner" role="alert">{problem}</p>}
      <Engine serving={serving} profile={profile} setProfile={setProfile} />
    </section>
  );
}
