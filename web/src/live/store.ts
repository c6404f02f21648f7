// What the page knows of a running engine: the events of /api/live, kept within fixed bounds so that a
// page left open does not grow.
import type { Wall } from "../types";
import type { LiveEvents, PageChanges, ProfiledStep, RequestEvent, RowKind, Serving, StepEntry, Tree } from "./events";
import { Ring } from "./ring";

export const kWindow = 30; // s that views show at most
const kQuiet = 1.5; // s without a step that end a burst
// The server sends about 16 KB/s, an entry is about 300 bytes: 30 s are about 1,600 entries.
const kEntries = 1 << 12;
const kRows = 1 << 14;
export const kRequests = 128;
const kWallNames: Wall[] = ["compute", "memory", "launch", "interconnect", "host-link", "capacity", "power"];

// Sums over steps: what /metrics counts too. Where nothing is predicted, the predicted sums are 0.
export const kSums = [
  "steps", "measured_s", "predicted_s", "roof_s", "gap_s", "flops", "bytes", "prefill_tokens", "decode_sequences",
  "draft_tokens", "accepted_tokens", "generated_tokens", "preempted",
] as const;
export type Sums = Record<(typeof kSums)[number], number>;
const nothing = () => Object.fromEntries(kSums.map((name) => [name, 0])) as Sums;

const kEntryColumns = ["begin_s", "end_s", "wall", ...kSums] as const;
const kRowColumns = ["begin_s", "end_s", "id", "kind", "accepted"] as const;
export const kKinds: RowKind[] = ["prefill", "decode", "draft"]; // as rows number them

export type RequestState = "waiting" | "running" | "preempted" | "finished" | "cancelled" | "failed";
export interface LiveRequest {
  id: number; state: RequestState; end: string;
  arrived_s: number; admitted_s: number; ended_s: number; // NaN: not seen
  preempted_s: number[]; // the latest few
  resumed_s: number[]; // one for each of these, or one less
  prompt: number; cached: number; generated: number; accepted: number;
  reusable: number; // cached pages that it may still take over
}

export class LiveStore {
  version = 0; // views draw again when it changed
  serving: Serving | null = null;
  readonly entries = new Ring(kEntryColumns, kEntries);
  readonly rows = new Ring(kRowColumns, kRows);
  readonly requests = new Map<number, LiveRequest>();
  total = nothing();
  dropped = 0; // steps that are in no entry
  running = 0;
  waiting = 0;
  owners = new Int32Array(0); // by page: a request, 0 free, -1 cached
  sharers = new Uint16Array(0);
  order = new Int32Array(0); // pages in the order of their first use
  used = 0; // of these
  evicted = new Float64Array(0); // when a page lost its cached prefix; NaN: it was never used
  evictions = 0;
  pages = { free: 0, cached: 0, held: 0 };
  tree: Tree = { nodes: [], left_out: 0 };
  profile: ProfiledStep | null = null;
  load: LiveEvents["load"] = { others: 0, busy: false };
  private burst_s = 0; // begin of the steps since the engine was last idle
  private offset = 0; // of the server's clock to this page's

  constructor(private readonly clock: () => number = () => performance.now() / 1000) {}

  now(): number { // on the server's clock
    return this.clock() + this.offset;
  }
  get busy(): boolean {
    return this.running + this.waiting > 0;
  }
  // What views show: the steps since the engine was last idle, or the whole 30 s.
  window(whole: boolean): [number, number] {
    const to = whole || this.busy ? this.now() : this.last_s;
    const from = whole ? to - kWindow : Math.max(to - kWindow, this.burst_s);
    return [Math.min(from, to - 0.01), to];
  }
  private get last_s(): number {
    return this.entries.count ? this.entries.at("end_s", this.entries.count - 1) : this.burst_s;
  }

  take<K extends keyof LiveEvents>(event: K, data: LiveEvents[K]): void {
    ++this.version;
    this.handlers[event](data);
  }
  private readonly handlers: { [K in keyof LiveEvents]: (data: LiveEvents[K]) => void } = {
    hello: (hello) => this.begin(hello),
    steps: ({ steps, dropped }) => {
      this.dropped += dropped;
      for (const entry of steps) this.entry(entry);
    },
    requests: ({ requests }) => requests.forEach((request) => this.request(request)),
    pages: (changes) => this.change(changes),
    tree: (tree) => { this.tree = tree; },
    profile: (profile) => { this.profile = profile; },
    load: (load) => { this.load = load; },
  };

  // A stream begins: what was known may be of another server, or have missed events.
  private begin(hello: LiveEvents["hello"]): void {
    this.serving = hello;
    this.offset = hello.now_s - this.clock();
    this.burst_s = hello.now_s;
    this.entries.clear();
    this.rows.clear();
    this.requests.clear();
    this.total = nothing();
    this.dropped = this.running = this.waiting = this.evictions = 0;
    this.owners = new Int32Array(hello.pages);
    this.sharers = new Uint16Array(hello.pages);
    this.order = new Int32Array(hello.pages);
    this.used = 0;
    this.evicted = new Float64Array(hello.pages).fill(NaN);
    this.pages = { free: hello.pages, cached: 0, held: 0 };
    this.tree = { nodes: [], left_out: 0 };
    this.profile = null;
    this.load = { others: 0, busy: false };
  }

  private entry(entry: StepEntry): void {
    this.running = entry.running;
    this.waiting = entry.waiting;
    if (entry.steps === 0) return; // requests ended between steps
    const { at_s: begin_s, until_s: end_s } = entry;
    this.quiet(begin_s);
    const sums = { ...entry, predicted_s: entry.predicted_s ?? 0, roof_s: entry.roof_s ?? 0 };
    this.entries.push({ ...sums, begin_s, end_s, wall: kWallNames.indexOf(entry.wall) });
    for (const name of kSums) this.total[name] += sums[name];
    for (const [id, kind, tokens, accepted = 0] of entry.rows) {
      this.rows.push({ begin_s, end_s, id, kind: kKinds.indexOf(kind), accepted });
      const request = this.known(id, begin_s);
      if (request.state === "waiting" || request.state === "preempted") this.admit(request, begin_s);
      request.accepted += accepted;
      // The end of a request says how many it generated, and may be told before its last step.
      if (kind !== "prefill" && Number.isNaN(request.ended_s)) request.generated += tokens;
    }
  }
  // Nothing happened for a while before `until_s`: a burst begins.
  private quiet(until_s: number): void {
    if (until_s - Math.max(this.last_s, this.burst_s) > kQuiet) this.burst_s = until_s;
  }

  private known(id: number, at_s: number): LiveRequest {
    const kept = this.requests.get(id);
    if (kept) return kept;
    const request: LiveRequest = {
      id, state: "waiting", end: "", arrived_s: at_s, admitted_s: NaN, ended_s: NaN,
      preempted_s: [], resumed_s: [], prompt: 0, cached: 0, generated: 0, accepted: 0, reusable: 0,
    };
    this.requests.set(id, request);
    if (this.requests.size > kRequests) this.requests.delete(this.oldest());
    return request;
  }
  // The first that ended, or else the first.
  private oldest(): number {
    for (const { id, ended_s } of this.requests.values()) if (!Number.isNaN(ended_s)) return id;
    return this.requests.keys().next().value as number;
  }
  private admit(request: LiveRequest, at_s: number): void {
    if (request.state === "preempted") request.resumed_s.push(at_s);
    else request.admitted_s = at_s;
    request.state = "running";
  }

  private request(event: RequestEvent): void {
    const { id, at_s } = event;
    const request = this.known(id, at_s);
    if (event.prompt_tokens !== undefined) request.prompt = event.prompt_tokens;
    if (event.generated_tokens !== undefined) request.generated = event.generated_tokens;
    switch (event.event) {
      case "arrived":
        this.quiet(at_s);
        request.arrived_s = at_s;
        break;
      case "admitted":
        request.cached = Math.max(request.cached, event.cached_tokens ?? 0);
        request.reusable += Math.ceil((event.cached_tokens ?? 0) / (this.serving?.page_tokens ?? 16));
        if (request.state !== "running") this.admit(request, at_s);
        else if (request.resumed_s.length === 0) request.admitted_s = at_s;
        break;
      case "preempted":
        request.state = "preempted";
        request.preempted_s.push(at_s);
        if (request.preempted_s.length > 16) {
          request.preempted_s.shift();
          request.resumed_s.shift();
        }
        break;
      case "first_token":
        break;
      default:
        request.state = event.event;
        request.ended_s = at_s;
        request.end = event.end ?? event.event;
    }
  }

  private change({ full, changes, free, cached, held }: PageChanges): void {
    if (full) {
      this.owners.fill(0);
      this.sharers.fill(0);
    }
    const now = this.now();
    const scarce = !full && Math.min(free, this.pages.free) === 0; // only then is anything evicted
    for (const [first, count, owner, sharers] of changes) {
      for (let page = first; page < first + count; ++page) {
        if (scarce && this.owners[page] === -1 && owner !== -1) this.lost(page, owner, now);
        if (owner !== 0 && Number.isNaN(this.evicted[page])) {
          this.evicted[page] = -Infinity; // used, and never evicted
          this.order[this.used++] = page;
        }
        this.owners[page] = owner;
        this.sharers[page] = sharers;
      }
    }
    this.pages = { free, cached, held };
  }
  // A cached page has an owner, or is free. A request takes over as many as its prefix hit says; the
  // others were evicted for it.
  private lost(page: number, owner: number, now: number): void {
    const request = this.requests.get(owner);
    if (request && request.reusable-- > 0) return;
    this.evicted[page] = now;
    ++this.evictions;
  }

  get wall(): Wall {
    return kWallNames[this.entries.count ? this.entries.at("wall", this.entries.count - 1) : 1] as Wall;
  }
  // Sums of the entries numbered [first, end).
  sum(first: number, end = this.entries.count): Sums {
    const sums = nothing();
    for (let i = Math.max(first, this.entries.first); i < end; ++i) for (const name of kSums) sums[name] += this.entries.at(name, i);
    return sums;
  }
  // The entries of the last `span` seconds before the newest one ended, and the seconds that they span.
  recent(span: number): Sums & { span_s: number } {
    if (this.entries.count === 0) return { ...nothing(), span_s: 0 };
    const to = this.last_s;
    const first = Math.min(this.entries.from("begin_s", Math.max(to - span, this.burst_s)), this.entries.count - 1);
    return { ...this.sum(first), span_s: to - this.entries.at("begin_s", first) };
  }
}

// Sequences are told apart by letters: A to Z, then A1 to Z1, ...
export const letter = (id: number): string => {
  const n = Math.max(0, id - 1);
  return String.fromCharCode(65 + (n % 26)) + (n >= 26 ? Math.floor(n / 26) : "");
};

export interface RunningLoad { batch: number; context: number }
// Sequences that run, and their mean context up to the next power of two: it grows with every token.
export function runningLoad(store: LiveStore, maxContext: number): RunningLoad | null {
  const lengths = [...store.requests.values()].filter((r) => r.state === "running").map((r) => r.prompt + r.generated);
  if (lengths.length === 0) return null;
  const mean = lengths.reduce((sum, n) => sum + n, 0) / lengths.length;
  return { batch: lengths.length, context: Math.min(maxContext, 2 ** Math.max(6, Math.ceil(Math.log2(Math.max(1, mean))))) };
}
