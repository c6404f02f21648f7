// The state of the page pool after some events of its trace.
export interface PageEvent {
  event: string; kind: "append" | "acquire" | "share" | "copy" | "release" | "refused"; sequence: string;
  page: number | null; from: number | null; tokens: number; references: number; bytes: number; free: number;
}
export interface PagesData {
  model: string; kv: string; pages: number; page_tokens: number; bytes_per_token: number; page_bytes: number; layers: number;
  heads: { kind: string; query: number; kv: number; width: number };
  max_context: number | null; tpot_s: number; max_batch: number | null; trace: PageEvent[];
}
export interface PageState { tokens: number; owners: string[]; copied: boolean }
export interface KvFrame { pages: PageState[]; tables: Record<string, number[]>; held: number; written: number; copied: number; shared: number; appended: number }

const kTokensPerSecond = 20; // on the screen
const kPause = 0.7; // seconds that an event without new tokens takes there

// Seconds on the screen that each event takes: a page that fills shows its tokens come.
export function durations({ trace, page_tokens }: PagesData): number[] {
  const filled = new Map<number, number>();
  return trace.map((e) => {
    const before = e.page !== null ? (filled.get(e.page) ?? 0) : 0;
    if (e.page !== null) filled.set(e.page, e.kind === "acquire" ? 0 : e.kind === "release" && e.references === 0 ? 0 : e.tokens);
    return e.kind === "append" ? Math.max(1, Math.min(page_tokens, e.tokens - before)) / kTokensPerSecond : kPause;
  });
}

// After `count` events, and a share of the next one where that writes tokens.
export function kvFrame(data: PagesData, count: number, part = 0): KvFrame {
  const pages: PageState[] = Array.from({ length: data.pages }, () => ({ tokens: 0, owners: [], copied: false }));
  const tables: Record<string, number[]> = {};
  const f: KvFrame = { pages, tables, held: 0, written: 0, copied: 0, shared: 0, appended: 0 };
  data.trace.slice(0, count + 1).forEach((e, i) => {
    const whole = i < count;
    if (e.page === null || (!whole && (e.kind !== "append" || part <= 0))) return;
    const page = pages[e.page] as PageState;
    const table = (tables[e.sequence] ??= []);
    if (e.kind === "append") {
      const fresh = e.tokens - page.tokens;
      page.tokens += whole ? fresh : Math.floor(fresh * part);
      f.appended += whole ? fresh : Math.floor(fresh * part);
      page.copied = page.copied && !whole;
      f.written += whole ? e.bytes : e.bytes * part;
    } else if (e.kind === "acquire") {
      Object.assign(page, { tokens: 0, owners: [e.sequence], copied: false });
      table.push(e.page);
    } else if (e.kind === "share") {
      page.owners.push(e.sequence);
      table.push(e.page);
      ++f.shared;
    } else if (e.kind === "copy") {
      const old = pages[e.from as number] as PageState;
      old.owners = old.owners.filter((s) => s !== e.sequence);
      Object.assign(page, { tokens: e.tokens, owners: [e.sequence], copied: true });
      table[table.indexOf(e.from as number)] = e.page;
      f.copied += e.bytes;
    } else if (e.kind === "release") {
      page.owners = page.owners.filter((s) => s !== e.sequence);
      if (page.owners.length === 0) page.tokens = 0;
      table.pop();
      if (table.length === 0) delete tables[e.sequence];
    }
  });
  f.held = pages.filter((p) => p.owners.length > 0).length;
  return f;
}
