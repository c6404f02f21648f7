// The KV cache: the pool of pages by owner, and the prefix tree that keeps what finished sequences left.
import { bytes, count } from "../format";
import { Canvas, store, useBeat, type Brush } from "./draw";
import type { Serving, Tree } from "./events";
import { letter } from "./store";

const kCells = 4096; // squares at most; beyond, a square stands for several pages
const kLeast = 256; // pages that are drawn, of these that were used and some that were not
const kFlash = 2; // s that an evicted page stays marked
const kLetter = 15; // px of a square that has room for a letter

// How the pages that are drawn are laid out: pages of a square, and the side of a square in pixels.
function layout(width: number) {
  const pages = Math.min(store.owners.length, Math.max(kLeast, 64 * Math.ceil(store.used / 64)));
  const each = Math.max(1, Math.ceil(pages / kCells));
  const cells = Math.ceil(pages / each);
  const side = Math.min(22, Math.max(5, Math.floor(Math.sqrt((width * 190) / cells))));
  const across = Math.max(1, Math.floor(width / side));
  return { pages, each, cells, side, across, height: Math.ceil(cells / across) * side };
}

// What a square shows: the page in it that says most (held, cached, free); -1 where none was used.
function pageOf(cell: number, each: number): number {
  let best = -1;
  for (let i = cell * each; i < Math.min(store.used, (cell + 1) * each); ++i) {
    const page = store.order[i] as number;
    const [owner, now] = [store.owners[page] as number, store.owners[best] ?? 0];
    if (best < 0 || (owner > 0 ? now <= 0 : owner < 0 && now === 0)) best = page;
  }
  return best;
}

function paint({ pen, width, colour, pattern }: Brush) {
  const { each, cells, side, across } = layout(width);
  const now = store.now();
  const [ink, soft, dim] = [colour("ink"), colour("soft"), colour("dim")];
  pen.textAlign = "center";
  for (let cell = 0; cell < cells; ++cell) {
    const page = pageOf(cell, each);
    const owner = store.owners[page] ?? 0;
    const [x, y] = [(cell % across) * side, Math.floor(cell / across) * side];
    const inner = side - 1;
    pen.fillStyle = owner > 0 ? pattern(owner) : owner < 0 ? soft : dim;
    if (owner === 0) pen.fillRect(x + inner / 2 - 0.5, y + inner / 2 - 0.5, 1.4, 1.4);
    else pen.fillRect(x, y, inner, inner);
    pen.lineWidth = 1;
    pen.strokeStyle = dim;
    if (owner < 0) pen.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    if ((store.sharers[page] as number) > 1) {
      pen.fillStyle = ink;
      pen.fillRect(x, y, inner, 2);
    }
    if (owner > 0 && side >= kLetter) {
      pen.fillStyle = colour("panel");
      const name = letter(owner), wide = Math.min(inner, pen.measureText(name).width + 2);
      pen.fillRect(x + (inner - wide) / 2, y + inner / 2 - 6, wide, 12);
      pen.fillStyle = ink;
      pen.fillText(name, x + inner / 2, y + inner / 2 + 4, inner);
    }
    if (now - (store.evicted[page] as number) < kFlash) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, inner - 2, inner - 2);
    }
  }
}

// Who holds how many pages; a page that several hold counts for its oldest.
function owners(): [number, number][] {
  const held = new Map<number, number>();
  for (const owner of store.owners) if (owner > 0) held.set(owner, (held.get(owner) ?? 0) + 1);
  return [...held].sort((a, b) => a[0] - b[0]);
}

function Branch({ tree, parent, depth }: { tree: Tree; parent: number; depth: number }) {
  const children = tree.nodes.filter((node) => node.parent === parent);
  if (children.length === 0 || depth > 12) return null;
  return (
    <ul>
      {children.map((node) => (
        <li key={node.id} data-node={node.id} data-locked={node.locked}>
          <span class={node.locked ? "locked" : ""}><i style={{ width: `${Math.min(90, 4 + 4 * node.pages)}px` }} /> {count(node.tokens)} tokens{node.locked ? `, read by ${node.locked}` : ""}</span>
          <Branch tree={tree} parent={node.id} depth={depth + 1} />
        </li>
      ))}
    </ul>
  );
}

export function Kv({ serving }: { serving: Serving }) {
  useBeat(4, () => store.evictions > 0 && store.evicted.some((at) => store.now() - at < kFlash + 1));
  const { free, cached, held } = store.pages;
  const shared = store.sharers.reduce((sum, n) => sum + (n > 1 ? 1 : 0), 0);
  const { each, pages: drawn } = layout(1);
  return (
    <>
      <dl class="facts" data-pages={serving.pages} data-free={free} data-cached={cached} data-held={held} data-shared={shared} data-evictions={store.evictions}>
        <div><dt>held</dt><dd>{count(held)}</dd></div>
        <div><dt>shared</dt><dd>{count(shared)}</dd></div>
        <div><dt>cached pages</dt><dd>{count(cached)}</dd></div>
        <div><dt>free</dt><dd>{count(free)}</dd></div>
        <div><dt>evicted</dt><dd>{count(store.evictions)}</dd></div>
      </dl>
      <div class="kv">
        <Canvas height={(width) => layout(width).height} label={`${serving.pages} pages: ${held} held, ${cached} cached, ${free} free`} draw={paint} />
        <div class="tree" tabIndex={0} role="group" aria-label="Prefix tree">
          <h4>Prefix tree</h4>
          {store.tree.nodes.length ? <Branch tree={store.tree} parent={0} depth={0} /> : <p class="note">Empty: full pages of finished answers stay here until the pool needs them.</p>}
          {store.tree.left_out > 0 && <p class="note">{count(store.tree.left_out)} more nodes.</p>}
        </div>
      </div>
      {held > 0 && <p class="note">Pages of {owners().slice(0, 12).map(([id, pages]) => <span key={id} class="owner"><b>{letter(id)}</b> {count(pages)} </span>)}</p>}
      <p class="note">
        A square is {each > 1 ? `${each} pages` : "a page"} of {serving.page_tokens} tokens, {bytes(serving.page_tokens * serving.kv_bytes_per_token)}: hatched by its sequence, outlined where only the prefix cache holds it, a bar on top where sequences share it, a heavy frame where it was just evicted, a dot where it is free. Pages are in the order of their first use{drawn < serving.pages ? `; ${count(serving.pages - drawn)} that were never used are not drawn` : ""}.
      </p>
    </>
  );
}
