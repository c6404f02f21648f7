// Two ways through the same attention, at one moment.
export interface Move { name: string; bytes: number }
export interface Form { flops: number; bytes: number; chip_bytes: number; launches: number; expected_s: number; moves: Move[] }
export interface RowBlock { first: number; keys: number; m: number; l: number; rescale: number; output: number[] }
export interface RowTrace {
  n: number; block: number; head_dim: number; scores: number[]; weights: number[]; blocks: RowBlock[];
  plain: number[]; tiled: number[]; engine: number[]; difference: number; engine_difference: number; bound: number;
}
export interface AttentionData { model: string; machine: string; prompt: number; layers: number; plain: Form; tiled: Form; row: RowTrace }

export const kSide = 16; // squares of the picture's side: they stand for n x n scores
export const kTile = 4; // squares of a tile's side

export interface PlainFrame { moved: number[]; bytes: number; move: number; part: number }
// Passes follow each other, and each takes the share of the time that its bytes have.
export function plainFrame(form: Form, now: number): PlainFrame {
  let left = Math.min(1, now / form.expected_s) * form.bytes;
  const done = now >= form.expected_s;
  let move = form.moves.length - 1, part = 1;
  const moved = form.moves.map((m, i) => {
    const taken = done ? m.bytes : Math.min(m.bytes, Math.max(0, left));
    if (!done && left >= 0 && left < m.bytes) { move = i; part = left / m.bytes; }
    left -= m.bytes;
    return taken;
  });
  return { moved, bytes: done ? form.bytes : moved.reduce((a, b) => a + b, 0), move, part };
}

export interface TiledFrame { moved: number[]; bytes: number; tile: number; tiles: [number, number][]; rows: number }
// Tiles of the lower triangle, query block by query block.
export const kTiles: [number, number][] = Array.from({ length: kSide / kTile }, (_, q) => Array.from({ length: q + 1 }, (_, k): [number, number] => [q, k])).flat();
export function tiledFrame(form: Form, now: number): TiledFrame {
  const share = Math.min(1, now / form.expected_s);
  const tile = Math.min(kTiles.length, Math.floor(share * kTiles.length + 1e-9));
  const rows = kTiles.slice(0, tile).filter(([q, k]) => q === k).length; // query blocks written
  const moved = form.moves.map((m) => m.bytes * share);
  return { moved, bytes: share === 1 ? form.bytes : moved.reduce((a, b) => a + b, 0), tile, tiles: kTiles.slice(0, tile), rows };
}
