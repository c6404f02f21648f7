// An animation inside a stop: it loads when the stop shows it.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

const kMotions: Record<string, () => Promise<{ default: ComponentType<never> }>> = {};
const loaded = new Map<string, ComponentType<object>>();

export function Motion({ name, ...props }: { name: string } & Record<string, unknown>) {
  const [, draw] = useState(0);
  const load = kMotions[name];
  useEffect(() => {
    if (!load || loaded.has(name)) return;
    load().then((module) => { loaded.set(name, module.default as ComponentType<object>); draw((n) => n + 1); }, () => {});
  }, [name]);
  const Loaded = loaded.get(name);
  if (!load) return null;
  return <div class="learn-motion" data-motion={name}>{Loaded ? <Loaded {...props} /> : <p class="loading">Loading…</p>}</div>;
}
