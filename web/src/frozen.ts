// A report carries its answers with it: one JSON block, by view. On the served page there is none.
export interface Frozen {
  config: Record<string, string>;
  made: string; // when and by what
  views: Record<string, unknown>;
}

const block = document.getElementById("frozen");
export const frozen: Frozen | null = block?.textContent ? (JSON.parse(block.textContent) as Frozen) : null;
