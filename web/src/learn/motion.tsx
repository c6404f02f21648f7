// An animation inside a stop: it loads when the stop shows it.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Config } from "../state";

type Animation = ComponentType<{ config: Config }>;
const kMotions: Record<string, () => Promise<{ default: Animation }>> = {};
const loaded = new Map<string, Animation>();

export function Motion({ name, config }: { name: string; config: Config }) {
  const [, draw] = useState(0);
  const load = kMotions[name];
  useEffect(() => {
    if (!load || loaded.has(name)) return;
    load().then((module) => { loaded.set(name, module.default); draw((n) => n + 1); }, () => {});
  }, [name]);
  const Loaded = loaded.get(name);
  if (!load) return null;
  return <div class="learn-motion" data-motion={name}>{Loaded ? <Loaded config={config} /> : <p class="loading">Loading…</p>}</div>;
}
