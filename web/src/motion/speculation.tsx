// Draft and verify. Options: those of a prediction (batch is what moves; speculate, acceptance, draft), rounds, seed.
import type { MotionProps } from "./data";

export default function SpeculationMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
