// Learn: fifteen stops in an order that builds up. Each asks for a guess before it tells. The address
// holds the stop, the control, the guess and which stops were answered: #/learn/7?move=8&guess=9&done=1.2.
import { useEffect, useState } from "preact/hooks";
import { plain } from "../api";
import { useWidth } from "../figure";
import { count, digits, times } from "../format";
import { GuessScale } from "../learn/draw";
import css from "../learn/learn.panel.css";
import { typed, useAnswers, type Field, type Learn, type Place, type Stop } from "../learn/stop";
import { kStops } from "../learn/stops";
import { config, section, set, stop as stopNow, type Config } from "../state";
import { addStyle } from "../style";
import type { MachineLine } from "../types";

addStyle(css);

const kShown = "show"; // the guess of a reader who asked to be shown
const answered = () => new Set((config.value["done"] ?? "").split(".").filter(Boolean).map(Number));

// To another stop: a step that Back returns from. The guess stays with the stop it was made at.
function go(to: number) {
  if (to < 1 || to > kStops.length || to === stopNow.value) return;
  stopNow.value = to;
  set({ guess: undefined, move: undefined });
  requestAnimationFrame(() => document.getElementById("stop-title")?.focus());
}

function guess(value: string) {
  set({ guess: value, done: [...answered().add(stopNow.value)].sort((a, b) => a - b).join(".") });
  requestAnimationFrame(() => document.getElementById("reveal")?.focus());
}

function List() {
  const done = answered();
  const wide = matchMedia("(min-width: 900px)").matches;
  return (
    <nav class="stops" aria-label="Stops">
      <details open={wide}>
        <summary>Stop {stopNow.value} of {kStops.length} · {done.size} answered</summary>
        <ol>
          {kStops.map((s, i) => (
            <li key={s.title}>
              <button type="button" aria-current={stopNow.value === i + 1 ? "step" : undefined} onClick={() => go(i + 1)}>
                <span class="number">{i + 1}</span><span>{s.title}</span>{done.has(i + 1) && <span class="done" title="answered">✓<span class="sr"> answered</span></span>}
              </button>
            </li>
          ))}
        </ol>
      </details>
    </nav>
  );
}

// Whose machine the stops compute with.
function Whose({ learn, on }: { learn: Learn; on: string }) {
  const machines = useAnswers({ list: "/api/machines" }).data as { list: MachineLine[] } | null;
  return (
    <p class="whose note">
      <label for="learn-machine">Machine</label>{" "}
      <select id="learn-machine" name="on" value={on} onChange={(e) => set({ on: e.currentTarget.value === learn.machine ? undefined : e.currentTarget.value })}>
        <option value={learn.machine}>{learn.measured ? "this machine, measured" : `${learn.machine}, an example`}</option>
        {machines?.list.filter((m) => m.name !== learn.machine && m.peak && m.bandwidth).reverse().map((m) => <option key={m.name} value={m.name}>{m.name}</option>)}
      </select>{" "}
      <span data-measured={learn.measured}>{learn.why.split("`").map((text, i) => (i % 2 ? <code key={i}>{text}</code> : text))}</span>
    </p>
  );
}

function Control({ about, chosen }: { about: Stop<object>["control"]; chosen: string }) {
  return (
    <fieldset class="move" data-control>
      <legend>Move: {about.label}</legend>
      {about.choices.map(([value, label]) => (
        <label key={value}><input type="radio" name="move" value={value} checked={value === chosen} onChange={() => set({ move: value })} /><span>{label}</span></label>
      ))}
    </fieldset>
  );
}

const unitOf = (field: Field) => (field.unit && field.unit.length > 1 ? field.unit : "");
const shown = (field: Field) => (v: number) =>
  field.unit === "×" ? times(v) : field.unit === "%" ? `${digits(v)} %` : `${Number.isInteger(v) ? count(v) : v >= 10 ? count(Math.ceil(v)) : digits(v)} ${field.unit}`;
// A guess stays as it was typed: three digits would claim more than was said.
const said = (field: Field, text: string) => (field.unit === "×" ? `×${text}` : `${text} ${field.unit}`);

function Guess({ fields }: { fields: Field[] }) {
  const [fault, tell] = useState("");
  const send = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const values = fields.map((_, i) => String(form.get(`guess${i}`) ?? ""));
    const wrong = fields.findIndex((field, i) => !field.options && typed(values[i] as string) === null);
    if (wrong >= 0) return tell("A guess is a number above zero, such as 4 or 0.5.");
    guess(fields.map((field, i) => (field.options ? values[i] : String(typed(values[i] as string)))).join("~"));
  };
  return (
    <form class="guess" onSubmit={send} aria-label="Your guess">
      {fields.map((field, i) => (
        <label key={field.label}>
          <span>{field.label}</span>
          {field.options
            ? <select name={`guess${i}`}>{field.options.map((name) => <option key={name}>{name}</option>)}</select>
            : <span class="number-field">{field.unit === "×" && "×"}<input name={`guess${i}`} inputMode="decimal" autocomplete="off" aria-invalid={fault !== ""} />{field.unit === "%" ? "%" : unitOf(field)}</span>}
        </label>
      ))}
      {fault && <p class="error" role="alert">{fault}</p>}
      <Ask />
    </form>
  );
}

const Ask = () => (
  <p class="send"><button type="submit" class="strong">Guess</button> <button type="button" onClick={() => guess(kShown)}>Show me</button></p>
);

// The best first; arrows move a name up or down.
function Order({ fields }: { fields: Field[] }) {
  const [names, sort] = useState(fields.map((field) => field.label));
  const move = (from: number, by: number) => {
    const next = [...names], to = from + by;
    if (to < 0 || to >= next.length) return;
    [next[from], next[to]] = [next[to] as string, next[from] as string];
    sort(next);
  };
  return (
    <form class="guess" onSubmit={(e) => { e.preventDefault(); guess(names.join("~")); }} aria-label="Your order">
      <ol class="order">
        {names.map((name, i) => (
          <li key={name}>
            <span>{name}</span>
            <button type="button" aria-label={`${name}: up`} disabled={i === 0} onClick={() => move(i, -1)}>↑</button>
            <button type="button" aria-label={`${name}: down`} disabled={i === names.length - 1} onClick={() => move(i, 1)}>↓</button>
          </li>
        ))}
      </ol>
      <Ask />
    </form>
  );
}

// " at batch 1": At batch 1 it is.
const itIs = (where: string) => (where ? `${where.charAt(1).toUpperCase()}${where.slice(2)} it is` : "It is");
// Beside each other: what was guessed and what the API says.
function Compared({ fields, answer, given, order, width }: { fields: Field[]; answer: (number | string)[]; given: string[]; order: boolean; width: number }) {
  if (order) {
    return given.length === answer.length
      ? <p>You said {given.join(", ")}. {given.join() === answer.join() ? "So it is" : `It is ${answer.join(", ")}`}.</p>
      : <p>It is {answer.join(", ")}.</p>;
  }
  return (
    <>
      {fields.map((field, i) => {
        const truth = answer[i] as number | string, text = given[i];
        const where = fields.length > 1 ? ` ${field.label}` : "";
        if (typeof truth === "string") return <p key={field.label}>{text ? `You said ${text}${where}; it is ${text === truth ? "indeed " : ""}` : `${itIs(where)} `}<b>{truth}</b>.</p>;
        const show = shown(field), number = text === undefined ? null : typed(text);
        return (
          <div key={field.label}>
            <p>{number === null ? <>{itIs(where)} <b>{show(truth)}</b>.</> : <>You said {said(field, text as string)}{where}, it is <b>{show(truth)}</b>.</>}</p>
            {number !== null && width > 0 && <GuessScale guess={number} guessed={said(field, text as string)} answer={truth} answered={show(truth)} width={Math.min(width, 420)} />}
          </div>
        );
      })}
    </>
  );
}

function Reveal({ about, data, at, value, width }: { about: Stop<object>; data: object; at: Place; value: string; width: number }) {
  const answer = about.answer(data, at);
  const known = Array.isArray(answer);
  return (
    <section id="reveal" class="reveal" tabIndex={-1} aria-label="The answer" data-answer={known ? answer.join("~") : "?"}>
      {known
        ? <Compared fields={about.fields(data)} answer={answer} given={value === kShown ? [] : value.split("~")} order={about.order === true} width={width} />
        : <p><b>?</b> Ridge does not know: {answer}.</p>}
      {known && <p>{about.after(data, at)}</p>}
      <p class="kills"><b>Not so:</b> {about.kills}</p>
    </section>
  );
}

function OpenIn({ about, at, chosen }: { about: Stop<object>; at: Place; chosen: string }) {
  const [to, options] = about.open(at, chosen);
  const kept = Object.fromEntries(["on", "done"].flatMap((name) => (config.value[name] ? [[name, config.value[name]]] : []))) as Config;
  return <a class="button" href={`#/${to}?${new URLSearchParams({ ...options, ...kept })}`}>Open in panel: {to}</a>;
}

function Shown({ number, reader }: { number: number; reader: Place }) {
  const about = kStops[number - 1] as Stop<object>;
  const at = about.place ? about.place(reader) : reader;
  const { control } = about;
  const given = config.value["move"] ?? control.start;
  const chosen = control.choices.some(([value]) => value === given) ? given : control.start;
  const { data, error } = useAnswers(about.ask(at, chosen) as Record<string, string>);
  const [box, width] = useWidth();
  const value = config.value["guess"];
  return (
    <article class="stop" data-stop={number}>
      <div class="told">
        <p class="note">Stop {number} of {kStops.length}</p>
        <h2 id="stop-title" tabIndex={-1}>{about.title}</h2>
        <p class="claim">{about.claim}</p>
        <p class="prose">{about.text}</p>
      </div>
      <div class="bench">
        <div class="ask">
          {error && <p class="error" role="alert">{plain(error)}</p>}
          {data && <p class="question">{about.question(data, at)}</p>}
          {data && !value && (about.order ? <Order fields={about.fields(data)} /> : <Guess fields={about.fields(data)} />)}
          {data && value && <Reveal about={about} data={data} at={at} value={value} width={width} />}
          {data && value && (
            <p class="further">
              <OpenIn about={about} at={at} chosen={chosen} />
              <button type="button" onClick={() => { set({ guess: undefined }); document.getElementById("stop-title")?.focus(); }}>Guess again</button>
            </p>
          )}
          {value && <p class="note">Measure it yourself: <code>ridge lab {about.lab}</code></p>}
        </div>
        <figure>
          <div class="drawing" ref={box}>{width > 0 && data && about.draw(data, { width, chosen, shown: value !== undefined }, at)}</div>
          <Control about={control} chosen={chosen} />
          <figcaption class="note" data-place={`${at.model} on ${at.machine}`}>{at.model} on {at.machine}{at.machine === "this" ? ", measured" : at.machine === config.value["on"] ? "" : ", an example"}</figcaption>
        </figure>
      </div>
    </article>
  );
}

// Arrow keys go from stop to stop, but not where they already mean something.
const kUsesArrows = "input, select, textarea, [role=tablist], [role=slider], [role=application], .player, .learn-motion";

export default function LearnPanel() {
  const learn = (useAnswers({ learn: "/api/learn" }).data as { learn: Learn } | null)?.learn;
  const number = stopNow.value;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step || event.altKey || event.ctrlKey || event.metaKey || section.value !== "learn") return;
      if ((event.target as Element | null)?.closest?.(kUsesArrows)) return;
      event.preventDefault();
      go(stopNow.value + step);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (!learn) return <p class="loading">Loading…</p>;
  const on = config.value["on"] ?? learn.machine;
  const reader: Place = on === learn.machine ? { machine: on, model: learn.model } : { machine: on, model: "llama-3-8b" };
  return (
    <section class="panel learn">
      <List />
      <div class="way">
        <Shown key={number} number={number} reader={reader} />
        <nav class="turn" aria-label="Previous and next">
          <button type="button" disabled={number === 1} onClick={() => go(number - 1)}>← Previous</button>
          <span class="note">← → also turn</span>
          <button type="button" class="strong" disabled={number === kStops.length} onClick={() => go(number + 1)}>Next →</button>
        </nav>
        <Whose learn={learn} on={on} />
      </div>
    </section>
  );
}
