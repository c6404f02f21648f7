// What an animation asks the API for.
import { useEffect, useState } from "preact/hooks";
import { ask, plain, type Problem } from "../api";
import { kNoAnswer } from "../request";
import { kRequest, type Config } from "../state";

export interface MotionProps {
  config: Config; // options of the API by name; those that an animation does not know are left out
}

// `own`: options of the path beside those of a prediction. `fixed` wins over the configuration.
export function address(path: string, config: Config, own: readonly string[], fixed: Record<string, string | undefined> = {}, request: readonly string[] = kRequest): string {
  const query = new URLSearchParams();
  for (const name of [...request, ...own]) {
    const value = name in fixed ? fixed[name] : config[name];
    if (value) query.set(name, value);
  }
  return `${path}?${query}`;
}

export interface Answers<T> {
  data: T | null;
  error: string;
}

// All answers together, or why there are none. The old ones stay until the new ones are there.
export function useAnswers<T extends unknown[]>(urls: string[]): Answers<T> {
  const [answers, show] = useState<Answers<T>>({ data: null, error: "" });
  const key = urls.join("\n");
  useEffect(() => {
    const abort = new AbortController();
    Promise.all(urls.map((url) => ask(url, abort.signal))).then(
      (data) => show({ data: data as T, error: "" }),
      (reason: unknown) => {
        if (abort.signal.aborted) return;
        show({ data: null, error: reason instanceof Error ? kNoAnswer : plain(reason as Problem) });
      },
    );
    return () => abort.abort();
  }, [key]);
  return answers;
}
