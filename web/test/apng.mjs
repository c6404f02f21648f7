// An animated PNG out of still ones of equal size: their compressed pixels, framed as
// https://www.w3.org/TR/png-3/#apng-frame-based-animation says.
const kSignature = 8;

const table = Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; ++bit) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
const crc = (bytes) => (bytes.reduce((c, byte) => table[(c ^ byte) & 255] ^ (c >>> 8), 0xffffffff) ^ 0xffffffff) >>> 0;

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc(body), body.length + 4);
  return out;
}
function chunks(png) {
  const list = [];
  for (let at = kSignature; at < png.length; ) {
    const length = png.readUInt32BE(at);
    list.push({ type: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  return list;
}
const numbers = (...values) => {
  const out = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => out.writeUInt32BE(value, i * 4));
  return out;
};

// `pngs` are Buffers; each is shown for `ms`, and the last for `end` where that is given.
export function animate(pngs, ms, end = ms) {
  const header = chunks(pngs[0]).find(({ type }) => type === "IHDR").data;
  const out = [pngs[0].subarray(0, kSignature), chunk("IHDR", header), chunk("acTL", numbers(pngs.length, 0))];
  let sequence = 0;
  pngs.forEach((png, i) => {
    const all = chunks(png);
    if (!all.find(({ type }) => type === "IHDR").data.equals(header)) throw new Error("frames differ in size or colour");
    const show = i + 1 < pngs.length ? ms : end;
    const control = Buffer.concat([numbers(sequence++, header.readUInt32BE(0), header.readUInt32BE(4), 0, 0), Buffer.from([show >> 8, show & 255, 1000 >> 8, 1000 & 255, 0, 0])]);
    out.push(chunk("fcTL", control));
    const pixels = Buffer.concat(all.filter(({ type }) => type === "IDAT").map(({ data }) => data));
    out.push(i === 0 ? chunk("IDAT", pixels) : chunk("fdAT", Buffer.concat([numbers(sequence++), pixels])));
  });
  return Buffer.concat([...out, chunk("IEND", Buffer.alloc(0))]);
}
