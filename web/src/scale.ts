// Where a value lies on an axis, and which values to write beside it.

export interface Scale {
  (value: number): number;
  invert(pixel: number): number;
  ticks(most: number): number[];
  readonly domain: readonly [number, number];
}

export function logScale(low: number, high: number, from: number, to: number): Scale {
  const a = Math.log10(low);
  const span = Math.log10(high) - a || 1;
  const scale = (value: number) => from + ((Math.log10(value) - a) / span) * (to - from);
  return Object.assign(scale, {
    invert: (pixel: number) => 10 ** (a + ((pixel - from) / (to - from)) * span),
    ticks: (most: number) => logTicks(low, high, most),
    domain: [low, high] as const,
  });
}

export function linearScale(low: number, high: number, from: number, to: number): Scale {
  const span = high - low || 1;
  const scale = (value: number) => from + ((value - low) / span) * (to - from);
  return Object.assign(scale, {
    invert: (pixel: number) => low + ((pixel - from) / (to - from)) * span,
    ticks: (most: number) => linearTicks(low, high, most),
    domain: [low, high] as const,
  });
}

// Powers of ten; where there is room, 2 and 5 between them; where there is none, every other.
export function logTicks(low: number, high: number, most: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const decades = last - first + 1;
  if (decades * 3 <= most) {
    const ticks: number[] = [];
    for (let power = first - 1; power <= last; ++power) {
      for (const digit of [1, 2, 5]) {
        const value = digit * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
      }
    }
    return ticks;
  }
  const step = Math.max(1, Math.ceil(decades / Math.max(1, most)));
  const ticks: number[] = [];
  for (let power = first; power <= last; power += step) ticks.push(10 ** power);
  return ticks;
}

// Multiples of 1, 2 or 5 times a power of ten.
export function linearTicks(low: number, high: number, most: number): number[] {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = rough / power;
  const step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  const ticks: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}

// The smallest powers of ten (or halves of one) around the values.
export function logDomain(values: number[], pad = 1.25): [number, number] {
  const known = values.filter((v) => v > 0 && Number.isFinite(v));
  if (known.length === 0) return [1, 10];
  const low = Math.min(...known) / pad;
  const high = Math.max(...known) * pad;
  return high > low * 1.5 ? [low, high] : [low / 2, high * 2];
}

// A slider's place on a logarithmic range, and back to a value with few digits.
export const toSlider = (value: number, low: number, high: number, steps: number) =>
  Math.round((Math.log(Math.max(value, low) / low) / Math.log(high / low)) * steps);
export const fromSlider = (place: number, low: number, high: number, steps: number) =>
  roundNicely(low * (high / low) ** (place / steps));

export function roundNicely(value: number): number {
  if (value < 16) return Math.max(1, Math.round(value));
  const power = 2 ** Math.round(Math.log2(value));
  if (Math.abs(value / power - 1) < 0.06) return power; // people think in powers of two
  return Number(value.toPrecision(2));
}
