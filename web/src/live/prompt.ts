// Prompts through the server's own OpenAI endpoint: one call, whose answers come in one stream.
import { post, statusText } from "../request";

// drafts: of a step at most; -1: as many as the server allows.
export interface PromptKnobs { copies: number; length: number; maxTokens: number; share: boolean; drafts: number; chat: boolean }
export interface Answer { text: string; tokens: number; first_s: number; last_s: number; end: string } // s since the call; NaN: not yet

const answer = (): Answer => ({ text: "", tokens: 0, first_s: NaN, last_s: NaN, end: "" });
export const tokensPerSecond = (a: Answer) => (a.tokens > 1 ? (a.tokens - 1) / (a.last_s - a.first_s) : NaN);

interface Chunk {
  choices?: { index: number; text?: string; delta?: { content?: string }; token_ids?: number[]; finish_reason: string | null }[];
  error?: { message: string };
}

async function send(path: string, body: unknown, abort: AbortSignal): Promise<Response> {
  const response = await post(path, body, abort);
  if (response.ok) return response;
  const { error } = (await response.json().catch(() => ({}))) as Chunk;
  throw new Error(error?.message ?? statusText(response));
}

// The prompt as text, or, to reach a length, as its tokens repeated. Copies that do not share their
// beginning start with their number.
async function prompts(text: string, knobs: PromptKnobs, abort: AbortSignal): Promise<(string | number[])[]> {
  const texts = Array.from({ length: knobs.copies }, (_, i) => (knobs.share || knobs.copies === 1 ? text : `${i + 1}. ${text}`));
  if (!knobs.length) return texts;
  const lists: number[][] = [];
  for (const one of knobs.share ? texts.slice(0, 1) : texts) {
    const { tokens } = (await (await send("/tokenize", { prompt: one }, abort)).json()) as { tokens: number[] };
    const missing = Math.max(0, knobs.length - tokens.length);
    lists.push([...Array.from({ length: missing }, (_, i) => tokens[i % tokens.length] as number), ...tokens]);
  }
  return texts.map((_, i) => lists[i] ?? (lists[0] as number[]));
}

let salt = 0;
// Calls `tell` with the answers as they grow; resolves at the end, rejects where the server refuses.
export async function ask(text: string, knobs: PromptKnobs, abort: AbortSignal, tell: (answers: Answer[]) => void): Promise<void> {
  const body: Record<string, unknown> = {
    stream: true, max_tokens: knobs.maxTokens, temperature: 0, return_token_ids: true,
    ...(knobs.drafts < 0 ? {} : { max_drafts: knobs.drafts }),
    ...(knobs.share ? {} : { cache_salt: `live ${Date.now()} ${salt++}` }),
    ...(knobs.chat ? { messages: [{ role: "user", content: text }], n: knobs.copies } : { prompt: await prompts(text, knobs, abort) }),
  };
  const answers = Array.from({ length: knobs.copies }, answer);
  const begin = performance.now();
  const response = await send(knobs.chat ? "/v1/chat/completions" : "/v1/completions", body, abort);
  tell(answers);
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const now = (performance.now() - begin) / 1000;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop() as string;
    for (const event of events) {
      if (!event.startsWith("data: {")) continue;
      const chunk = JSON.parse(event.slice(6)) as Chunk;
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices ?? []) {
        const to = answers[choice.index];
        if (to) add(to, choice.text ?? choice.delta?.content ?? "", choice.token_ids?.length ?? 0, choice.finish_reason, now);
      }
    }
  }
}

function add(to: Answer, text: string, tokens: number, end: string | null, now: number): void {
  to.text += text;
  to.tokens += tokens;
  if (tokens > 0 || text) {
    if (to.first_s !== to.first_s) to.first_s = now;
    to.last_s = now;
  }
  if (end) to.end = end;
}
