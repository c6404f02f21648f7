// Pages of the KV cache. Options: those of a prediction, script and pages (what moves).
import type { MotionProps } from "./data";

export default function KvMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
