// The same arrivals under static batching, simulated by /api/schedule from predicted steps.
import { useState } from "preact/hooks";
import { count, seconds } from "../format";
import { post, statusText } from "../request";
import { Canvas, store, type Brush } from "./draw";
import type { Serving } from "./events";
import { letter, type LiveRequest } from "./store";
import { batchEnds } from "./tracks";

const kRow = 14; // px
const kMost = 32; // requests of one simulation

interface Run { policy: string; seconds: number; requests: { scheduled_s: number; first_token_s: number; end_s: number }[] }
interface Replay { list: LiveRequest[]; measured_s: number; runs: Run[]; error: string }

// The requests that ended since the engine was last idle, as arrivals: at:prompt:answer. Cached prompt tokens are not computed.
async function simulate(serving: Serving): Promise<Replay> {
  const [from] = store.window(false);
  const list = [...store.requests.values()].filter((r) => r.state === "finished" && r.arrived_s >= from - 0.001 && r.prompt && r.generated).slice(-kMost).sort((a, b) => a.arrived_s - b.arrived_s);
  const begin = list[0]?.arrived_s ?? 0;
  const measured_s = Math.max(...list.map((r) => r.ended_s)) - begin;
  const arrivals = list.map((r) => `${(r.arrived_s - begin).toFixed(6)}:${Math.max(1, r.prompt - r.cached)}:${r.generated}`).join(",");
  const body = { model: serving.model, machine: serving.machine ?? "this", policy: "static,continuous", seats: String(Math.min(16, serving.max_sequences)), arrivals };
  const response = await post("/api/schedule", body);
  const answer = (await response.json()) as { runs?: Run[]; error?: { message: string } };
  return { list, measured_s, runs: answer.runs ?? [], error: answer.runs ? "" : (answer.error?.message ?? statusText(response)) };
}

function paint({ pen, width, colour, pattern }: Brush, { list, runs, measured_s }: Replay) {
  const run = runs[0] as Run;
  const begin = list[0]?.arrived_s ?? 0;
  const label = 26;
  const x = (t: number) => label + (t / Math.max(run.seconds, measured_s)) * (width - label);
  const ends = batchEnds(run.requests);
  run.requests.forEach((r, i) => {
    const request = list[i] as LiveRequest;
    const top = i * kRow + 2, tall = kRow - 4;
    const fill = (from: number, to: number, style: string | CanvasPattern, height = tall) => {
      pen.fillStyle = style;
      pen.fillRect(x(from), top + (tall - height) / 2, Math.max(1, x(to) - x(from)), height);
    };
    pen.fillStyle = colour("ink");
    pen.fillText(letter(request.id), 0, top + tall);
    fill(request.arrived_s - begin, r.scheduled_s, colour("dim"), 1);
    fill(r.scheduled_s, r.first_token_s, pattern(1));
    fill(r.first_token_s, r.end_s, colour("dim"));
    fill(r.end_s, ends[i] as number, colour("line"));
  });
}

export function StaticReplay({ serving }: { serving: Serving }) {
  const [replay, show] = useState<Replay | null>(null);
  const start = () => void simulate(serving).then(show, () => show({ list: [], measured_s: 0, runs: [], error: "The server does not answer." }));
  const [fixed, continuous] = replay?.runs ?? [];
  return (
    <div class="replay">
      <button type="button" name="replay" onClick={start}>Replay with static batching</button>
      {replay?.error && <p class="error" role="alert">{replay.error}</p>}
      {replay && fixed && continuous && (
        <>
          <p class="note" role="status" data-replay={fixed.seconds}>
            {count(replay.list.length)} requests, simulated from predicted steps: static batching takes <b>{seconds(fixed.seconds)}</b>, continuous {seconds(continuous.seconds)}; measured {seconds(replay.measured_s)}. Drafts are not simulated.
          </p>
          <Canvas height={replay.list.length * kRow} label={`Static batching of ${replay.list.length} requests over ${seconds(fixed.seconds)}`} draw={(brush) => paint(brush, replay)} />
          <p class="note"><i class="key line" /> waits for the batch before <i class="key hatch" /> prefill <i class="key solid" /> decodes <i class="key gap" /> its seat is idle until the longest answer ends.</p>
        </>
      )}
    </div>
  );
}
