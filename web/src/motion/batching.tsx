// Static above continuous batching. Options: those of a prediction (chunk), policy, seats, requests, kv-tokens, seed.
import type { MotionProps } from "./data";

export default function BatchingMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
