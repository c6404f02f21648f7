// Rounds of speculation at one moment.
export interface Round { accepted: number; tokens: number }
export interface SpeculationData {
  model: string; draft: string | null; machine: string; batch: number; speculate: number; acceptance: number;
  draft_s: number; verify_s: number; round_s: number; step_s: number; tokens_per_round: number; gain: number;
  rounds: Round[]; tokens: number; seconds: number; plain_tokens: number;
}
export interface SpeculationFrame {
  round: number; // from 0
  at: number; // seconds into it
  drafted: number; // boxes that are there
  verified: boolean;
  tokens: number; plain: number;
}
export function speculationFrame(data: SpeculationData, now: number): SpeculationFrame {
  const last = data.rounds.length - 1;
  const over = now >= data.seconds * (1 - 1e-12);
  const round = over ? last : Math.min(last, Math.floor(now / data.round_s + 1e-9));
  const at = over ? data.round_s : Math.max(0, now - round * data.round_s);
  const drafted = data.draft_s > 0 ? Math.min(data.speculate, Math.floor(at / data.draft_s + 1e-9)) : data.speculate;
  const before = data.rounds.slice(0, round).reduce((sum, r) => sum + r.tokens, 0);
  const tokens = over ? data.tokens : before;
  return { round, at, drafted, verified: over, tokens, plain: over ? data.plain_tokens : Math.floor(now / data.step_s + 1e-9) };
}
