// A figure: its title, what it says in a sentence, the drawing, and ways to take it along.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { csv } from "./format";

// Chart code needs pixels: text keeps its size whatever the width. A narrower box is not laid out yet: 0.
const kNarrowest = 160;
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const box = useRef<HTMLDivElement | null>(null);
  const [width, show] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => show(element.clientWidth < kNarrowest ? 0 : Math.floor(element.clientWidth));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

function download(name: string, blob: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A drawing that stands alone: the page's styles written into each element.
const kStyles = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-family", "font-weight", "text-anchor", "transform", "paint-order", "stroke-linejoin"];
export function standalone(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    const target = (to[i] as SVGElement).style; // through the object model, which the policy allows
    for (const name of kStyles) target.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return new XMLSerializer().serializeToString(copy);
}

function savePng(svg: SVGSVGElement, name: string) {
  const { width, height } = svg.getBoundingClientRect();
  const image = new Image();
  const url = URL.createObjectURL(new Blob([standalone(svg)], { type: "image/svg+xml" }));
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = width * 2;
    canvas.height = height * 2;
    const context = canvas.getContext("2d");
    if (context) {
      context.fillStyle = getComputedStyle(document.body).backgroundColor;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => blob && download(name, blob));
    }
    URL.revokeObjectURL(url);
  };
  image.src = url;
}

interface FigureProps {
  name: string; // of the files
  title: string;
  note?: ComponentChildren;
  rows?: object[] | undefined; // as CSV
  json?: unknown;
  tools?: ComponentChildren;
  draw: (width: number) => JSX.Element | null;
}
export function Figure({ name, title, note, rows, json, tools, draw }: FigureProps) {
  const [box, width] = useWidth();
  const svg = () => box.current?.querySelector("svg.chart") as SVGSVGElement | null;
  const save = (kind: string) => () => {
    const drawing = svg();
    if (kind === "svg" && drawing) download(`${name}.svg`, new Blob([standalone(drawing)], { type: "image/svg+xml" }));
    if (kind === "png" && drawing) savePng(drawing, `${name}.png`);
    if (kind === "csv") download(`${name}.csv`, new Blob([csv(rows as Record<string, unknown>[])], { type: "text/csv" }));
    if (kind === "json") download(`${name}.json`, new Blob([JSON.stringify(json, null, 1)], { type: "application/json" }));
  };
  return (
    <figure class="figure" data-figure={name}>
      <figcaption>
        <h3>{title}</h3>
        {tools}
        <span class="save" role="group" aria-label={`Save ${title}`}>
          <button type="button" onClick={save("svg")} aria-label={`Save ${title} as SVG`}>SVG</button>
          <button type="button" onClick={save("png")} aria-label={`Save ${title} as PNG`}>PNG</button>
          {rows && <button type="button" onClick={save("csv")} aria-label={`Save ${title} as CSV`}>CSV</button>}
          {json !== undefined && <button type="button" onClick={save("json")} aria-label={`Save ${title} as JSON`}>JSON</button>}
        </span>
      </figcaption>
      <div class="drawing" ref={box}>{width > 0 && draw(width)}</div>
      {note && <p class="note">{note}</p>}
    </figure>
  );
}
