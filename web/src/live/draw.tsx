// When and how the live views draw: at a rate of their own, not at all while drawing is held, and on
// canvases in the colours of the page.
import { useEffect, useRef, useState } from "preact/hooks";
import { useWidth } from "../figure";
import { LiveStore } from "./store";

export const store = new LiveStore();

// The page's own cost, and whether drawing is held.
export const cost = { spent_ms: 0, since: performance.now(), held: false };
// Share of one core that drawing took since the last call.
export function drawingShare(): number {
  const now = performance.now();
  const share = cost.spent_ms / Math.max(1, now - cost.since);
  [cost.spent_ms, cost.since] = [0, now];
  return share;
}

// Draws the component again up to `hz` times a second while something changed.
export function useBeat(hz: number, also: () => boolean = () => false): void {
  const [, beat] = useState(0);
  useEffect(() => {
    let seen = -1;
    const timer = setInterval(() => {
      if (cost.held || document.hidden || (seen === store.version && !store.busy && !also())) return;
      seen = store.version;
      beat((n) => n + 1);
    }, 1000 / hz);
    return () => clearInterval(timer);
  }, [hz]);
}

export interface Brush {
  pen: CanvasRenderingContext2D;
  width: number;
  height: number;
  colour: (name: string) => string; // of a CSS variable
  pattern: (index: number) => string | CanvasPattern; // a grey hatch for a sequence
}

// Hatches in two greys: directions and densities that differ without colour.
const kHatches: [lean: number, gap: number][] = [[1, 0], [1, 4], [-1, 4], [0, 4], [1, 7], [-1, 7], [0, 7]];
function hatch(ink: string, ground: string, index: number): string | HTMLCanvasElement {
  const [lean, gap] = kHatches[index % kHatches.length] as [number, number];
  if (gap === 0) return ink;
  const tile = document.createElement("canvas");
  tile.width = tile.height = gap;
  const pen = tile.getContext("2d") as CanvasRenderingContext2D;
  pen.fillStyle = ground;
  pen.fillRect(0, 0, gap, gap);
  pen.strokeStyle = ink;
  pen.lineWidth = gap / 2.6;
  pen.beginPath();
  for (const shift of [-gap, 0, gap]) {
    pen.moveTo(lean < 0 ? gap + shift : shift, lean === 0 ? gap / 2 : 0);
    pen.lineTo(lean > 0 ? gap + shift : lean < 0 ? shift : gap + shift, lean === 0 ? gap / 2 : gap);
  }
  pen.stroke();
  return tile;
}

// A canvas as wide as its place. `label` is what a screen reader says of it.
export function Canvas({ height: tall, label, draw }: { height: number | ((width: number) => number); label: string; draw: (brush: Brush) => void }) {
  const [box, width] = useWidth();
  const height = typeof tall === "number" ? tall : tall(width);
  const canvas = useRef<HTMLCanvasElement | null>(null);
  const kept = useRef({ theme: "", patterns: new Map<number, string | CanvasPattern>() });
  useEffect(() => {
    const element = canvas.current;
    const pen = element?.getContext("2d");
    if (!element || !pen || width <= 0) return;
    const begin = performance.now();
    const scale = devicePixelRatio || 1;
    if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
      element.width = Math.round(width * scale);
      element.height = Math.round(height * scale);
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    pen.font = `12px ${style.fontFamily}`;
    if (kept.current.theme !== colour("ink")) kept.current = { theme: colour("ink"), patterns: new Map() };
    const pattern = (index: number) => {
      const found = kept.current.patterns.get(index % kHatches.length);
      if (found) return found;
      const made = hatch(colour("dim"), colour("line"), index);
      const filled = typeof made === "string" ? made : (pen.createPattern(made, "repeat") as CanvasPattern);
      kept.current.patterns.set(index % kHatches.length, filled);
      return filled;
    };
    draw({ pen, width, height, colour, pattern });
    cost.spent_ms += performance.now() - begin;
  });
  return <div class="canvas" ref={box}><canvas ref={canvas} role="img" aria-label={label} style={{ width: "100%", height: `${height}px` }} /></div>;
}
