// Plays an animation: the drawing, the step button and the list read the same events. Nothing starts
// by itself. With reduced motion there are three stills instead: begin, middle, end.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useWidth } from "./figure";
import { count, seconds } from "./format";
import css from "./player.panel.css";
import { addStyle } from "./style";
import { lastEvent, screenAt, screenLength, shownAt, shownLength, slowdown, stepFrom, type Timeline } from "./timeline";

addStyle(css);

const kSpeeds = [0.25, 0.5, 1, 2, 4];
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export interface PlayerProps {
  name: string; // for tests and styles
  label: string;
  timeline: Timeline;
  draw: (now: number, width: number) => JSX.Element; // at a time that is shown, in seconds
  clock?: (now: number) => string; // the time in words
  pace?: string; // where the screen's time is not linear in a machine's
}

function useClock(timeline: Timeline) {
  const [at, move] = useState(0); // seconds on the screen
  const [event, visit] = useState(-1); // arrived at by a step; -1: the time decides
  const [playing, play] = useState(false);
  const [speed, change] = useState(1);
  const end = screenLength(timeline);
  useEffect(() => { move(0); visit(-1); play(false); }, [timeline]);
  useEffect(() => {
    if (!playing) return;
    let frame = 0;
    let last = performance.now();
    const tick = (now: number) => {
      const passed = ((now - last) / 1000) * speed;
      last = now;
      move((t) => Math.min(end, t + passed));
      frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, end]);
  useEffect(() => { if (at >= end && playing) play(false); }, [at, end, playing]);
  return { at, move, event, visit, playing, play, speed, change, end };
}

export function Player(props: PlayerProps) {
  return still() ? <Stills {...props} /> : <Moving {...props} />;
}

function Moving({ name, label, timeline, draw, clock = seconds, pace }: PlayerProps) {
  const [box, width] = useWidth();
  const player = useClock(timeline);
  const now = shownAt(timeline, player.at);
  const current = player.event >= 0 ? player.event : player.at > 0 ? lastEvent(timeline, now) : -1;
  const jump = (at: number) => { player.play(false); player.visit(-1); player.move(at); };
  const step = (direction: 1 | -1) => {
    const to = stepFrom(timeline, current, direction);
    jump(to < 0 ? 0 : screenAt(timeline, timeline.events[to]?.at ?? 0));
    player.visit(to);
  };
  const toggle = () => {
    if (player.at >= player.end) player.move(0);
    player.visit(-1);
    player.play(!player.playing);
  };
  const keys: Record<string, () => void> = {
    " ": toggle, ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => jump(0), End: () => jump(player.end),
  };
  const onKey = (event: KeyboardEvent) => {
    // Buttons take Space, and sliders take arrows, themselves.
    const target = event.target as HTMLElement;
    if (target.tagName === "INPUT" || (event.key === " " && target.tagName === "BUTTON") || target.tagName === "SUMMARY") return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  return (
    <div class="film" role="group" aria-label={`${label}. Space plays, arrows step.`} tabIndex={0} onKeyDown={onKey} data-motion={name} data-at={player.end > 0 ? player.at / player.end : 0}>
      <div class="drawing" ref={box}>{width > 0 && draw(now, width)}</div>
      <div class="film-bar">
        <button type="button" class="play" onClick={toggle} aria-label={player.playing ? "Pause" : "Play"}>{player.playing ? "❚❚" : "▶"}</button>
        <button type="button" onClick={() => step(-1)} aria-label="Step back">‹</button>
        <button type="button" onClick={() => step(1)} aria-label="Step">step</button>
        <input class="seek" type="range" min={0} max={1000} value={player.end > 0 ? Math.round((player.at / player.end) * 1000) : 0} aria-label="Time" aria-valuetext={clock(now)}
          onInput={(e) => jump((Number(e.currentTarget.value) / 1000) * player.end)} />
        <select aria-label="Speed" value={String(player.speed)} onChange={(e) => player.change(Number(e.currentTarget.value))}>
          {kSpeeds.map((s) => <option key={s} value={String(s)}>{s === 0.25 ? "¼" : s === 0.5 ? "½" : s} ×</option>)}
        </select>
      </div>
      <p class="film-clock">
        <output>{clock(now)}</output> <span class="dim">of {clock(shownLength(timeline))}, {pace ?? slowed(slowdown(timeline, player.at) / player.speed)}</span>
      </p>
      <p class="film-now">{timeline.events[current]?.text ?? " "}</p>
      <p class="spoken" aria-live="polite">{player.event >= 0 ? timeline.events[player.event]?.text : ""}</p>
      <List timeline={timeline} current={current} />
    </div>
  );
}

const slowed = (factor: number) => (factor >= 1.05 ? `${count(Number(factor.toPrecision(2)))} times slower than it is` : factor < 0.95 ? `${count(Number((1 / factor).toPrecision(2)))} times faster than it is` : "as fast as it is");

function List({ timeline, current }: { timeline: Timeline; current: number }) {
  const list = useRef<HTMLOListElement | null>(null);
  return (
    <details class="film-list">
      <summary>The same in words: {timeline.events.length} events</summary>
      <ol ref={list}>{timeline.events.map((event, i) => <li key={i} aria-current={i === current ? "step" : undefined}>{event.text}</li>)}</ol>
    </details>
  );
}

function Stills({ name, label, timeline, draw, clock = seconds }: PlayerProps) {
  const [box, width] = useWidth();
  const end = screenLength(timeline);
  return (
    <div class="film stills" role="group" aria-label={label} data-motion={name} data-at="1">
      <div ref={box}>
        {[0, 0.5, 1].map((part) => {
          const now = shownAt(timeline, part * end);
          return <figure key={part}><figcaption>{part === 0 ? "Begin" : part === 1 ? "End" : "Middle"}: {clock(now)}</figcaption>{width > 0 && draw(now, width)}</figure>;
        })}
      </div>
      <List timeline={timeline} current={-1} />
    </div>
  );
}
