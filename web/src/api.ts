// Asking the API. views.json says which options each view sends; `ridge report` reads it too, so a
// report holds exactly what the panels will ask for.
import { useEffect, useRef, useState } from "preact/hooks";
import { frozen } from "./frozen";
import { kNoAnswer, request, statusText } from "./request";
import { signal } from "./signal";
import { config, kDefaults, kRequest, type Config } from "./state";
import views from "./views.json";

interface ViewSpec {
  path: string;
  set?: Record<string, string>;
  also?: string[];
  only?: string[];
  drop?: string[];
  rename?: Record<string, string>;
}
export type ViewName = keyof typeof views;

export interface Problem {
  message: string;
  option?: string;
}
export interface View<T> {
  data: T | null; // the latest answer; stays while the next is on its way
  error: Problem | null;
  busy: boolean;
}

export function queryOf(name: ViewName, of: Config): string {
  const spec = views[name] as ViewSpec;
  const names = spec.only ?? [...kRequest.filter((n) => !spec.drop?.includes(n)), ...(spec.also ?? [])];
  const query = new URLSearchParams();
  for (const option of names) {
    const value = spec.set?.[option] ?? of[option] ?? (spec.also?.includes(option) || spec.only ? kDefaults[option] : undefined);
    const sent = spec.rename?.[option] ?? option;
    if (value !== undefined && value !== "") query.set(sent, value);
  }
  const text = query.toString();
  return spec.path + (text ? `?${text}` : "");
}

const kept = new Map<string, unknown>();
const kKeep = 60;

export async function ask(url: string, abort?: AbortSignal): Promise<unknown> {
  const known = kept.get(url);
  if (known !== undefined) return known;
  const response = await request(url, abort ? { signal: abort } : {});
  const body = (await response.json()) as { error?: Problem };
  if (!response.ok) throw body.error ?? { message: statusText(response) };
  kept.set(url, body);
  if (kept.size > kKeep) kept.delete(kept.keys().next().value as string);
  return body;
}

// Messages by option, for the fields to show: what the headline's own view complained about.
export const fieldErrors = signal<Record<string, string>>({});
export const plain = (problem: Problem) => problem.message.replace(/^--/, "");

export function useView<T>(name: ViewName, of?: Config, wanted = true): View<T> {
  const url = queryOf(name, of ?? config.value);
  const [view, show] = useState<View<T>>({ data: null, error: null, busy: true });
  const asked = useRef("");
  useEffect(() => {
    if (!wanted) return;
    asked.current = url;
    if (frozen) {
      const answer = frozen.views[name] as (T & { error?: Problem }) | undefined;
      const error = answer === undefined ? { message: "not part of this report" } : (answer.error ?? null);
      show({ data: error ? null : (answer as T), error, busy: false });
      return;
    }
    const abort = new AbortController();
    show((v) => ({ ...v, busy: true }));
    ask(url, abort.signal).then(
      (data) => asked.current === url && show({ data: data as T, error: null, busy: false }),
      (reason: unknown) => {
        if (abort.signal.aborted) return;
        const error = reason instanceof Error ? { message: kNoAnswer } : (reason as Problem);
        show((v) => ({ data: v.data, error, busy: false }));
      },
    );
    return () => abort.abort();
  }, [url, wanted]);
  return view;
}
