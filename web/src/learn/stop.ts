// What a stop of the Learn path is: text, one control, one question whose answer the API computes, and
// a drawing. The frame (panels/learn.tsx) asks, hides the answer until there is a guess, and reveals it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, type Problem } from "../api";
import { kNoAnswer } from "../request";
import type { Config, Section } from "../state";

// Whose numbers: the reader's measured machine, the one the address names (`on`), or the example.
export interface Place {
  machine: string;
  model: string;
}
export interface Learn extends Place {
  measured: boolean;
  streams_from: string;
  why: string;
}

// One thing to guess: a number with its unit, or one of several names.
export interface Field {
  label: string;
  unit?: "×" | "%" | string;
  options?: string[];
}
export interface Scene {
  width: number;
  chosen: string; // the control's value
  shown: boolean; // after the guess: only then may the drawing tell the answer
}

export interface Stop<D> {
  title: string;
  claim: string;
  text: string;
  control: { label: string; start: string; choices: (readonly [string, string])[] };
  // The stop's own machine or model, where the reader's cannot show it.
  place?: (reader: Place) => Place;
  ask: (at: Place, chosen: string) => { [K in keyof D]: string };
  question: (data: D, at: Place) => string;
  fields: (data: D) => Field[];
  order?: true; // the fields are the names to sort, the largest first
  // What `data-answer` holds: API numbers, divided. Names where the fields have options or an order.
  // Null and a reason where the machine's numbers do not tell.
  answer: (data: D, at: Place) => (number | string)[] | string;
  after: (data: D, at: Place) => ComponentChildren; // what the numbers say, once they are seen
  kills: string; // the belief that the answer ends
  lab: string; // ridge lab NAME
  open: (at: Place, chosen: string) => [Section, Config];
  draw: (data: D, scene: Scene, at: Place) => ComponentChildren;
}
export const stop = <D extends object>(about: Stop<D>) => about as unknown as Stop<object>;

export const url = (path: string, options: Record<string, string>) => `/api/${path}?${new URLSearchParams(options)}`;

// All answers of one stop; the last ones stay while the next are on their way.
export function useAnswers(urls: Record<string, string> | null): { data: object | null; error: Problem | null } {
  const [view, show] = useState<{ data: object | null; error: Problem | null; of: string }>({ data: null, error: null, of: "" });
  const key = JSON.stringify(urls);
  const wanted = useRef("");
  wanted.current = key;
  useEffect(() => {
    if (!urls) return;
    const names = Object.keys(urls);
    Promise.all(names.map((name) => ask(urls[name] as string))).then(
      (answers) => {
        if (wanted.current === key) show({ data: Object.fromEntries(names.map((name, i) => [name, answers[i]])), error: null, of: names.join() });
      },
      (reason: unknown) => {
        const error = reason instanceof Error ? { message: kNoAnswer } : (reason as Problem);
        if (wanted.current === key) show((v) => ({ ...v, error }));
      },
    );
  }, [key]);
  const fits = urls !== null && view.of === Object.keys(urls).join();
  return { data: fits ? view.data : null, error: view.error };
}

// "4", "×4", "4x", "4,5", "12 %": the number a person types, or null.
export function typed(text: string): number | null {
  const match = /^[×x~ ]*(\d+(?:[.,]\d+)?|[.,]\d+)\s*(k?)\s*[×x%]?$/i.exec(text.trim());
  if (!match) return null;
  const value = Number((match[1] as string).replace(",", ".")) * (match[2] ? 1000 : 1);
  return value > 0 ? value : null;
}
