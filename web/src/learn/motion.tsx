// An animation inside a stop: it loads when the stop shows it.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Config } from "../state";

type Animation = ComponentType<{ config: Config }>;
const kMotions = {
  step: () => import("../motion/step"),
  tiles: () => import("../motion/tiles"),
  attention: () => import("../motion/attention"),
  kv: () => import("../motion/kv"),
  batching: () => import("../motion/batching"),
  speculation: () => import("../motion/speculation"),
} satisfies Record<string, () => Promise<{ default: Animation }>>;
const loaded = new Map<string, Animation>();

export function Motion({ name, config }: { name: keyof typeof kMotions; config: Config }) {
  const [, draw] = useState(0);
  useEffect(() => {
    if (loaded.has(name)) return;
    kMotions[name]().then((module) => { loaded.set(name, module.default); draw((n) => n + 1); }, () => {});
  }, [name]);
  const Loaded = loaded.get(name);
  return <div class="learn-motion" data-motion={name}>{Loaded ? <Loaded config={config} /> : <p class="loading">Loading…</p>}</div>;
}
