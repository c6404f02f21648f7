// One decode step, operator by operator. Options: those of a prediction (batch is what moves).
import type { MotionProps } from "./data";

export default function StepMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
