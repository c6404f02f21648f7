// Attention with stored scores against tiles. Options: those of a prediction (prompt is what moves), n, block, seed.
import type { MotionProps } from "./data";

export default function AttentionMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
