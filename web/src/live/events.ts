// What /api/live sends; docs/page.md, "The live stream", says what the fields mean.
import type { Wall } from "../types";

export interface LiveRoof { kind: "datasheet" | "measured" | "predicted"; bytes_per_s: number | null; flops_per_s: number | null }
export interface Serving {
  serving: true; model: string; machine: string | null; weights: string; kv: string; device: string;
  max_context: number; max_sequences: number; max_drafts: number; page_tokens: number; pages: number;
  streams_from: { level: string; bytes_per_s: number; measured: boolean } | null;
  peak_flops_per_s: number | null; roofs: LiveRoof[]; weight_bytes: number; kv_bytes_per_token: number; profiles: boolean;
}
export type RowKind = "prefill" | "decode" | "draft";
export interface StepEntry {
  steps: number; at_s: number; until_s: number; wall: Wall;
  measured_s: number; predicted_s: number | null; roof_s: number | null; gap_s: number; flops: number; bytes: number;
  prefill_tokens: number; prefill_sequences: number; decode_sequences: number; draft_tokens: number;
  accepted_tokens: number; generated_tokens: number; preempted: number; running: number; waiting: number;
  rows: [id: number, kind: RowKind, tokens: number, accepted?: number, drafts?: number][];
}
export interface RequestEvent {
  id: number; at_s: number; event: "arrived" | "admitted" | "preempted" | "first_token" | "finished" | "cancelled" | "failed";
  prompt_tokens?: number; cached_tokens?: number; generated_tokens?: number; end?: string;
}
export interface PageChanges {
  full: boolean; changes: [first: number, count: number, owner: number, sharers: number][];
  left_out: number; free: number; cached: number; held: number;
}
export interface Tree { nodes: { id: number; parent: number; pages: number; tokens: number; locked: number }[]; left_out: number }
export interface ProfiledStep {
  step_s: number; phase: string; unattributed_s: number | null;
  ops: { name: string; count: number; bytes: number; flops: number; roof_s: number | null; expected_s: number | null; measured_s: number | null; wall: Wall }[];
}

export interface LiveEvents {
  hello: Serving & { now_s: number };
  steps: { steps: StepEntry[]; dropped: number };
  requests: { requests: RequestEvent[]; dropped: number };
  pages: PageChanges;
  tree: Tree;
  profile: ProfiledStep;
  load: { others: number; busy: boolean };
}
export const kEvents: (keyof LiveEvents)[] = ["hello", "steps", "requests", "pages", "tree", "profile", "load"];
