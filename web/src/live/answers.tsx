// The prompt, its knobs and up to four of the answers that stream.
import { useEffect, useRef, useState } from "preact/hooks";
import { count, seconds } from "../format";
import { cost } from "./draw";
import type { Serving } from "./events";
import { ask, tokensPerSecond, type Answer, type PromptKnobs } from "./prompt";

const kShown = 4;
const kStart = "The memory of a computer";

function Knob({ name, label, value, least = 0, most, set, hint }: { name: string; label: string; value: number; least?: number; most: number; set: (v: number) => void; hint?: string }) {
  return (
    <label class="knob">
      <span>{label}</span>
      <input type="number" name={name} min={least} max={most} value={value} title={hint}
        onInput={(e) => { const v = Math.floor(Number(e.currentTarget.value)); if (v >= 0) set(Math.min(most, v)); }} />
    </label>
  );
}

const told = (a: Answer) =>
  `${count(a.tokens)} tokens${a.last_s > a.first_s ? `, ${count(tokensPerSecond(a))} tok/s` : ""}, first token after ${seconds(a.first_s)}${a.end ? `, ended: ${a.end}` : ""}`;

export function Answers({ serving }: { serving: Serving }) {
  const [text, type] = useState(kStart);
  const [knobs, turn] = useState<PromptKnobs>({ copies: 1, length: 0, maxTokens: Math.min(128, serving.max_context >> 1), share: true, drafts: -1, chat: false });
  const [run, show] = useState<{ sent: number; answers: Answer[]; busy: boolean; error: string }>({ sent: 0, answers: [], busy: false, error: "" });
  const [summary, say] = useState("");
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const set = (change: Partial<PromptKnobs>) => turn((k) => ({ ...k, ...change }));

  const send = async () => {
    abort.current?.abort();
    const mine = (abort.current = new AbortController());
    let answers: Answer[] = [];
    let error = "";
    show((r) => ({ ...r, sent: r.sent + 1, busy: true, error: "" }));
    const draw = setInterval(() => !cost.held && show((r) => ({ ...r, answers: [...answers] })), 100);
    try {
      await ask(text, { ...knobs, copies: Math.max(1, knobs.copies), maxTokens: Math.max(1, knobs.maxTokens) }, mine.signal, (list) => { answers = list; });
    } catch (reason) {
      if (!mine.signal.aborted) error = reason instanceof TypeError ? "The connection to the server is lost." : (reason as Error).message;
    }
    clearInterval(draw);
    if (abort.current !== mine) return;
    for (const a of answers) a.end ||= mine.signal.aborted ? "stopped" : "lost";
    show((r) => ({ ...r, answers, busy: false, error }));
    if (answers.length) {
      const tokens = answers.reduce((sum, a) => sum + a.tokens, 0);
      say(answers.length > 1 ? `${answers.length} answers, ${tokens} tokens.` : `Answer: ${told(answers[0] as Answer)}.`);
    }
  };
  const stop = () => abort.current?.abort();

  const { answers, busy, error } = run;
  const begin = Math.min(...answers.map((a) => a.first_s).filter((v) => v === v)), end = Math.max(...answers.map((a) => a.last_s).filter((v) => v === v));
  const tokens = answers.reduce((sum, a) => sum + a.tokens, 0);
  return (
    <section class="answers" aria-label="Prompt and answers" data-sent={run.sent} data-busy={busy}>
      <form onSubmit={(e) => { e.preventDefault(); void send(); }}>
        <label class="prompt"><span class="hidden">Prompt</span>
          <textarea name="live-prompt" rows={3} value={text} onInput={(e) => type(e.currentTarget.value)}
            onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); void send(); } }} />
        </label>
        <div class="send">
          <button type="submit" class="primary" disabled={!text}>Send{knobs.copies > 1 ? ` ${knobs.copies} copies` : ""}</button>
          <button type="button" name="stop" disabled={!busy} onClick={stop}>Stop</button>
          <span class="note">greedy (temperature 0)</span>
        </div>
        <div class="knobs">
          <Knob name="copies" label="copies at once" value={knobs.copies} least={1} most={64} set={(copies) => set({ copies })} />
          <Knob name="length" label="prompt tokens" value={knobs.length} most={serving.max_context - 1} set={(length) => set({ length })} hint="Repeats the prompt up to about so many tokens; 0 sends it as it is" />
          <Knob name="max-tokens" label="answer tokens" value={knobs.maxTokens} least={1} most={serving.max_context} set={(maxTokens) => set({ maxTokens })} />
          {serving.max_drafts > 0 && <Knob name="drafts" label="drafts a step" value={knobs.drafts < 0 ? serving.max_drafts : knobs.drafts} most={serving.max_drafts} set={(drafts) => set({ drafts })} />}
        </div>
        <label class="switch"><input type="checkbox" name="share" checked={knobs.share} onChange={(e) => set({ share: e.currentTarget.checked })} /><span>share the beginning: equal prompts reuse cached pages</span></label>
        <label class="switch"><input type="checkbox" name="chat" checked={knobs.chat} onChange={(e) => set({ chat: e.currentTarget.checked })} /><span>as a chat, by the model's template</span></label>
        {serving.max_drafts === 0 && <p class="note">No drafts: <code>ridge serve --speculate 4</code> drafts from the text, <code>--draft MODEL</code> with a smaller model.</p>}
      </form>
      {error && <p class="error" role="alert">{error}</p>}
      <p class="hidden" role="status">{summary}</p>
      {answers.length > 1 && tokens > 0 && <p class="note" data-together>Together {count(tokens)} tokens{end > begin ? `, ${count(tokens / (end - begin))} tok/s` : ""}.{answers.length > kShown ? ` ${kShown} of ${answers.length} answers are shown.` : ""}</p>}
      <ol class="texts">
        {answers.slice(0, kShown).map((a, i) => (
          <li key={i} data-answer data-tokens={a.tokens} data-end={a.end}>
            <div class="text"><p>{a.text || "…"}{busy && !a.end && <i class="caret" aria-hidden="true" />}</p></div>
            <p class="note">{a.first_s === a.first_s ? told(a) : busy ? "waits" : a.end}</p>
          </li>
        ))}
      </ol>
    </section>
  );
}
