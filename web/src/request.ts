// Every request of the page goes through here. Where the server asks for a key (401), a person is asked
// for it once (key.tsx). Requests wait until then, and are made again with the cookie that stands for the
// key. Scripts cannot read that cookie, and the page keeps nothing else.
import { signal } from "./signal";

export const keyWanted = signal(false);
let logins = 0;
let waiting: (() => void)[] = [];

export async function request(url: string, options: RequestInit = {}): Promise<Response> {
  for (;;) {
    const before = logins;
    const response = await fetch(url, options);
    if (response.status !== 401) return response;
    await response.text(); // an answer that nobody reads keeps its connection, of which a browser opens six
    // A request that was made before a login is made again without another one.
    if (logins === before) await login(options.signal);
  }
}

function login(abort?: AbortSignal | null): Promise<void> {
  abort?.throwIfAborted();
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    abort?.addEventListener("abort", () => reject(abort.reason), { once: true });
    keyWanted.value = true;
  });
}

export const post = (url: string, body: unknown, abort?: AbortSignal) => request(url, json(body, abort));

const json = (body: unknown, abort?: AbortSignal): RequestInit => ({
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), ...(abort ? { signal: abort } : {}),
});

export const kNoAnswer = "Ridge does not answer: is `ridge serve` still running?";
export const statusText = (response: Response) => `the server answered ${response.status}`;

// Returns what is wrong; "" where the key is right.
export async function giveKey(key: string): Promise<string> {
  const response = await fetch("/api/login", json({ key })).catch(() => null);
  if (!response) return kNoAnswer;
  if (response.status === 401) return "The server does not know this key.";
  if (!response.ok) {
    const { error } = (await response.json().catch(() => ({}))) as { error?: { message: string } };
    return error?.message ?? statusText(response);
  }
  ++logins;
  keyWanted.value = false;
  const again = waiting;
  waiting = [];
  for (const resolve of again) resolve();
  return "";
}
