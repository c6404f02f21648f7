// The stream of /api/live: opened while the panel is seen, closed while the tab is hidden, opened again
// when the server comes back.
import { kEvents } from "./events";
import type { LiveStore } from "./store";

export type StreamState = "connecting" | "open" | "hidden" | "lost";
const kRetry = 3000; // ms

export function openStream(store: LiveStore, profile: boolean, tell: (state: StreamState) => void): () => void {
  let source: EventSource | null = null;
  let retry: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    source?.close();
    source = null;
    clearTimeout(retry);
  };
  const start = () => {
    stop();
    source = new EventSource(`/api/live${profile ? "?profile=1" : ""}`);
    for (const name of kEvents) {
      source.addEventListener(name, (event) => {
        store.take(name, JSON.parse((event as MessageEvent<string>).data));
        if (name === "hello") tell("open");
      });
    }
    // An EventSource gives up for good where the answer is not a stream, so that it is made anew.
    source.onerror = () => {
      stop();
      tell("lost");
      retry = setTimeout(start, kRetry);
    };
  };
  const follow = () => {
    if (document.hidden) {
      stop();
      tell("hidden");
    } else if (!source) {
      tell("connecting");
      start();
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return () => {
    document.removeEventListener("visibilitychange", follow);
    stop();
  };
}
