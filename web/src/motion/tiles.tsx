// Tiles in flight with 1, 2 and N buffers. Options: machine, tile, dtype, stages (what moves), reuse.
import type { MotionProps } from "./data";

export default function TilesMotion({ config }: MotionProps) {
  return <p class="loading">{config["model"]}</p>;
}
