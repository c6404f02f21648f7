// A decode step as blocks in order of time: the operators of the first layer, the other layers, what
// follows them.
export interface StepOp {
  name: string; count: number; flops: number; bytes: number; expected_s: number; at_peak_s: number | null;
  weight_bytes: number; kv_bytes: number; act_bytes: number;
}
export interface StepBlock {
  name: string;
  layer: number; // from 0; -1: no layer's
  from: number; to: number; // seconds
  flops: number; bytes: number;
  w: number; k: number; a: number; // parts of bytes
  busy: number; // seconds at the peak of the matrix unit
}
export interface StepPlan {
  blocks: StepBlock[];
  layers: number; seconds: number; bytes: number; flops: number; busy: number;
}

// Operators that run once in a layer or more often belong to the layers; those before the first of
// them come first (embedding), the others last (head, sampling).
export function stepPlan(ops: StepOp[], layers: number, total: number): StepPlan {
  const inside = (op: StepOp) => layers > 1 && op.count > 1;
  const first = ops.findIndex(inside);
  const blocks: StepBlock[] = [];
  let at = 0;
  const add = (name: string, layer: number, list: StepOp[], share: number) => {
    const sum = (of: (op: StepOp) => number) => list.reduce((all, op) => all + of(op) * share, 0);
    const seconds = sum((op) => op.expected_s);
    blocks.push({
      name, layer, from: at, to: at + seconds, flops: sum((op) => op.flops), bytes: sum((op) => op.bytes),
      w: sum((op) => op.weight_bytes), k: sum((op) => op.kv_bytes), a: sum((op) => op.act_bytes), busy: sum((op) => op.at_peak_s ?? 0),
    });
    at += seconds;
  };
  const layer = ops.filter(inside);
  const outside = ops.filter((op) => !inside(op));
  for (const op of outside.filter((op) => ops.indexOf(op) < first)) add(op.name, -1, [op], 1);
  for (const op of layer) add(op.name, 0, [op], 1 / layers);
  for (let i = 1; i < layers && layer.length; ++i) add(`layer ${i + 1}`, i, layer, 1 / layers);
  for (const op of outside.filter((op) => ops.indexOf(op) > first)) add(op.name, -1, [op], 1);
  // Time that belongs to no operator: the host's.
  if (total > at * (1 + 1e-6)) {
    blocks.push({ name: "host", layer: -1, from: at, to: total, flops: 0, bytes: 0, w: 0, k: 0, a: 0, busy: 0 });
    at = total;
  }
  const sum = (of: (b: StepBlock) => number) => blocks.reduce((all, b) => all + of(b), 0);
  return { blocks, layers, seconds: at, bytes: sum((b) => b.bytes), flops: sum((b) => b.flops), busy: sum((b) => b.busy) };
}

export interface StepFrame { bytes: number; flops: number; idle: number; block: StepBlock | undefined; text: string }

export function stepFrame(plan: StepPlan, now: number): StepFrame {
  let bytes = 0, flops = 0, busy = 0;
  let block: StepBlock | undefined;
  for (const b of plan.blocks) {
    if (b.from > now) break;
    const part = now >= b.to ? 1 : (now - b.from) / (b.to - b.from);
    bytes += part * b.bytes;
    flops += part * b.flops;
    busy += part * b.busy;
    block = b;
  }
  const idle = now > 0 ? 1 - busy / now : 1 - plan.busy / plan.seconds;
  return { bytes, flops, idle, block, text: block ? `${block.name} at ${((now / plan.seconds) * 100).toFixed(0)} % of the step` : "the step begins" };
}
