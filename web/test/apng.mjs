// PNG pictures of one size as one animated PNG of at most 256 colours. A frame holds only the rectangle
// that changed.
import { deflateSync, inflateSync } from "node:zlib";

const table = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; ++bit) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
const crc = (bytes) => {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = table[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
};
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc(body), body.length + 4);
  return out;
}

// Pixels of an 8-bit RGB or RGBA picture, as RGB rows without filters.
function decode(png) {
  const width = png.readUInt32BE(16), height = png.readUInt32BE(20), depth = png[25] === 6 ? 4 : 3;
  const parts = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  const raw = inflateSync(Buffer.concat(parts));
  const stride = width * depth, pixels = Buffer.alloc(height * stride);
  for (let y = 0; y < height; ++y) {
    const filter = raw[y * (stride + 1)];
    for (let i = 0; i < stride; ++i) {
      const left = i >= depth ? pixels[y * stride + i - depth] : 0;
      const up = y > 0 ? pixels[(y - 1) * stride + i] : 0;
      const corner = i >= depth && y > 0 ? pixels[(y - 1) * stride + i - depth] : 0;
      let guess = [0, left, up, (left + up) >> 1, 0][filter];
      if (filter === 4) {
        const [a, b, c] = [up - corner, left - corner, left + up - 2 * corner].map(Math.abs);
        guess = a <= b && a <= c ? left : b <= c ? up : corner;
      }
      pixels[y * stride + i] = raw[y * (stride + 1) + 1 + i] + guess;
    }
  }
  return { width, height, at: (x, y) => pixels.subarray(y * stride + x * depth, y * stride + x * depth + 3) };
}

function changed(before, now) {
  let [x0, y0, x1, y1] = [now.width, now.height, -1, -1];
  for (let y = 0; y < now.height; ++y) {
    for (let x = 0; x < now.width; ++x) {
      if (before && before.at(x, y).equals(now.at(x, y))) continue;
      x0 = Math.min(x0, x); y0 = Math.min(y0, y); x1 = Math.max(x1, x); y1 = Math.max(y1, y);
    }
  }
  return x1 < 0 ? [0, 0, 1, 1] : [x0, y0, x1 - x0 + 1, y1 - y0 + 1];
}

// Colours by number, and the number of a pixel's colour. Where there are too many, a channel has 16
// levels, or 6.
function palette(frames) {
  for (const step of [1, 17, 51]) {
    const key = (p) => (Math.round(p[0] / step) * step << 16) | (Math.round(p[1] / step) * step << 8) | (Math.round(p[2] / step) * step);
    const known = new Map();
    for (const f of frames) for (let y = 0; y < f.height; ++y) for (let x = 0; x < f.width; ++x) if (!known.has(key(f.at(x, y)))) known.set(key(f.at(x, y)), known.size);
    if (known.size <= 256) return [[...known.keys()], (p) => known.get(key(p))];
  }
  throw new Error("more than 256 colours");
}

// `pngs` are Buffers; each is shown for `ms`, and the last for `end` where that is given. It repeats for
// ever.
export function animate(pngs, ms, end = ms) {
  const frames = pngs.map(decode);
  const { width, height } = frames[0];
  if (frames.some((f) => f.width !== width || f.height !== height)) throw new Error("frames differ in size");
  const header = Buffer.alloc(13), control = Buffer.alloc(8);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8); // 8 bits, palette
  const [colours, number] = palette(frames);
  control.writeUInt32BE(frames.length, 0);
  const chunks = [Buffer.from("89504e470d0a1a0a", "hex"), chunk("IHDR", header), chunk("acTL", control), chunk("PLTE", Buffer.from(colours.flatMap((c) => [c >> 16, (c >> 8) & 255, c & 255])))];
  let sequence = 0;
  frames.forEach((frame, i) => {
    const [x, y, w, h] = changed(frames[i - 1], frame);
    const rows = Buffer.alloc(h * (w + 1));
    for (let r = 0; r < h; ++r) for (let c = 0; c < w; ++c) rows[r * (w + 1) + 1 + c] = number(frame.at(x + c, y + r));
    const place = Buffer.alloc(26);
    [sequence++, w, h, x, y].forEach((value, n) => place.writeUInt32BE(value, 4 * n));
    place.writeUInt16BE(i + 1 < frames.length ? ms : end, 20);
    place.writeUInt16BE(1000, 22);
    const data = deflateSync(rows, { level: 9 });
    chunks.push(chunk("fcTL", place));
    if (i === 0) {
      chunks.push(chunk("IDAT", data));
    } else {
      const order = Buffer.alloc(4);
      order.writeUInt32BE(sequence++);
      chunks.push(chunk("fdAT", Buffer.concat([order, data])));
    }
  });
  return Buffer.concat([...chunks, chunk("IEND", Buffer.alloc(0))]);
}
