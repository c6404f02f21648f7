// Pages of the KV cache. Options: those of a prediction, script and pages (what moves).
import { useMemo } from "preact/hooks";
import { bytes, count, seconds } from "../format";
import { Player } from "../player";
import { addStyle } from "../style";
import type { Timeline } from "../timeline";
import { address, useAnswers, type MotionProps } from "./data";
import { durations, kvFrame, type KvFrame, type PageEvent, type PagesData } from "./kv-frame";
import css from "./kv.panel.css";

addStyle(css);

export default function KvMotion({ config }: MotionProps) {
  const { data: answers, error } = useAnswers<[PagesData]>([address("/api/pages", config, ["script", "pages"])]);
  const data = answers?.[0];
  const plan = useMemo(() => data && kvTimeline(data), [data]);
  if (error) return <p class="note error" role="alert">{error}</p>;
  if (!data || !plan) return <p class="loading">Loading…</p>;
  const { timeline, starts } = plan;
  const at = (now: number): [number, number] => {
    const done = starts.filter((s) => s <= now + 1e-9).length - 1;
    const from = starts[done] ?? 0, to = starts[done + 1] ?? from;
    return [Math.max(0, done), to > from ? (now - from) / (to - from) : 0];
  };
  const clock = (now: number) => {
    const tokens = kvFrame(data, ...at(now)).appended;
    return `${tokens} tokens, ${seconds(tokens * data.tpot_s)}`;
  };
  return (
    <Player name="kv" label="Pages of the KV cache" timeline={timeline} clock={clock} pace={`20 tokens a second on the screen, ${count(Math.round(1 / data.tpot_s))} in fact`}
      draw={(now, width) => { const [done, part] = at(now); return <Drawing data={data} frame={kvFrame(data, done, part)} event={data.trace[part > 0 ? done : done - 1]} width={width} />; }} />
  );
}

const pages = (n: number) => `${n} ${n === 1 ? "page" : "pages"}`;
function tell(e: PageEvent): string {
  const who = `Sequence ${e.sequence}`;
  if (e.kind === "append") return `${who} writes up to token ${e.tokens} of page ${e.page}: ${bytes(e.bytes)}`;
  if (e.kind === "acquire") return `${who} takes page ${e.page}; ${pages(e.free)} free`;
  if (e.kind === "share") return `${who} shares page ${e.page}, now of ${e.references}: 0 bytes`;
  if (e.kind === "copy") return `${who} writes to shared page ${e.from}, so its ${e.tokens} tokens are copied to page ${e.page}: ${bytes(e.bytes)}`;
  if (e.kind === "release") return `${who} gives page ${e.page} back; ${e.references > 0 ? `${e.references} still holds it` : `${pages(e.free)} free`}`;
  return `${who} finds no free page`;
}

// Starts of the events, with the end behind them.
function kvTimeline(data: PagesData): { timeline: Timeline; starts: number[] } {
  let at = 0;
  const starts = [0, ...durations(data).map((d) => (at += d))];
  // An event has happened at its end.
  const events = data.trace.map((e, i) => ({ at: starts[i + 1] as number, text: tell(e) }));
  return { timeline: { scenes: [{ seconds: at, screen: at }], events }, starts };
}

function Drawing({ data, frame, event, width }: { data: PagesData; frame: KvFrame; event: PageEvent | undefined; width: number }) {
  const columns = width < 480 ? 4 : width < 720 ? 6 : 8;
  const w = width / columns, h = 62;
  const top = 112;
  const rows = Math.ceil(data.pages / columns);
  const names = Object.keys(frame.tables).sort();
  const tables = top + rows * h + 22;
  const height = tables + new Set(data.trace.map((e) => e.sequence)).size * 20 - 8;
  const place = (page: number): [number, number] => [(page % columns) * w, top + Math.floor(page / columns) * h];
  const used = frame.pages.filter((p) => p.owners.length).reduce((sum, p) => sum + p.tokens, 0);
  return (
    <svg class="kv" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${frame.held} of ${data.pages} pages held`}>
      <Heads data={data} width={width} />
      <g data-counter="held" data-value={frame.held}><text class="strong" x={0} y={top - 12}>{frame.held} of {data.pages} pages held</text></g>
      <g data-counter="copied" data-value={frame.copied}><text x={width} y={top - 12} text-anchor="end">{frame.held > 0 ? `${Math.round((100 * used) / (frame.held * data.page_tokens))} % full · ` : ""}{bytes(frame.copied)} copied</text></g>
      {frame.pages.map((page, i) => {
        const [x, y] = place(i);
        const now = event?.page === i;
        return (
          <g key={i} transform={`translate(${x} ${y})`} class={`page${page.owners.length ? " held" : ""}${page.owners.length > 1 ? " shared" : ""}${now ? " now" : ""}`}>
            <rect class="frame" x={1} y={1} width={w - 6} height={h - 8} rx={3} />
            {Array.from({ length: data.page_tokens }, (_, t) => <rect key={t} class={`token${t < page.tokens ? " full" : ""}`} x={5 + (t % 8) * ((w - 14) / 8)} y={24 + Math.floor(t / 8) * 13} width={(w - 14) / 8 - 1.5} height={10} />)}
            <text class="dim" x={6} y={17}>{i}</text>
            <text class="strong" x={w - 11} y={17} text-anchor="end">{page.owners.join(" ")}{page.owners.length > 1 ? ` ×${page.owners.length}` : page.copied ? " copy" : ""}</text>
          </g>
        );
      })}
      {event?.kind === "copy" && event.page !== null && event.from !== null && <Arrow from={place(event.from)} to={place(event.page)} w={w} h={h} />}
      {names.map((name, i) => (
        <g key={name} transform={`translate(0 ${tables + i * 20})`}>
          <text class="strong" x={0}>{name}</text>
          <text class="dim" x={18}>holds pages {frame.tables[name]?.join(", ")}</text>
        </g>
      ))}
    </svg>
  );
}

function Arrow({ from, to, w, h }: { from: [number, number]; to: [number, number]; w: number; h: number }) {
  const [a, b] = [from[0] + w / 2, from[1] + h / 2];
  const [c, d] = [to[0] + w / 2, to[1] + h / 2];
  return <g class="copying"><path d={`M${a} ${b}Q${(a + c) / 2} ${Math.min(b, d) - 34} ${c} ${d}`} /><circle cx={c} cy={d} r={4} /></g>;
}

// Query heads above the KV heads that they share.
function Heads({ data, width }: { data: PagesData; width: number }) {
  const { query, kv, kind } = data.heads;
  const drawn = Math.min(query, 64);
  const step = Math.min(13, (width - 4) / drawn);
  const groups = Math.max(1, Math.round((kv * drawn) / query));
  const each = drawn / groups;
  return (
    <g>
      <text class="strong" x={0} y={13}>{bytes(data.bytes_per_token)} a token</text>
      <text class="dim" x={width} y={13} text-anchor="end">{kind}: {query} query heads on {kv} {kv === 1 ? "cached vector" : "KV heads"}{width < 480 ? "" : `, ${data.layers} layers, ${data.kv}`}</text>
      {Array.from({ length: drawn }, (_, i) => {
        const x = i * step + step / 2;
        const to = (Math.floor(i / each) + 0.5) * each * step;
        return <g key={i}><circle class="wire" cx={x} cy={28} r={Math.min(4, step / 2 - 1)} /><path class="wire" d={`M${x} ${33}L${to} ${50}`} stroke-opacity={0.4} /></g>;
      })}
      {Array.from({ length: groups }, (_, i) => <rect key={i} class="k" x={(i + 0.5) * each * step - Math.min(14, each * step * 0.42)} y={52} width={Math.min(28, each * step * 0.84)} height={12} rx={2} />)}
      <text class="dim" x={0} y={82}>a page: {data.page_tokens} tokens, {bytes(data.page_bytes)}</text>
    </g>
  );
}
