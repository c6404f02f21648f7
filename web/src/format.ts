// Numbers as people read them: three significant digits and a prefix, as the command line prints.

const kPrefixes: [number, string][] = [
  [1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""],
];

export function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.9995) return value.toFixed(2);
  return value.toPrecision(2);
}

function prefixed(value: number, unit: string): string {
  if (!Number.isFinite(value)) return "?";
  for (const [factor, prefix] of kPrefixes) {
    if (Math.abs(value) >= factor * 0.9995) return `${digits(value / factor)} ${prefix}${unit}`;
  }
  return `${digits(value)} ${unit}`;
}

export type Known = number | null | undefined;
const known = (value: Known, format: (v: number) => string) =>
  value === null || value === undefined || !Number.isFinite(value) ? "?" : format(value);

export const bytes = (v: Known) => known(v, (x) => prefixed(x, "B"));
export const rate = (v: Known) => known(v, (x) => prefixed(x, "B/s"));
export const flops = (v: Known) => known(v, (x) => prefixed(x, "FLOP"));
export const flopRate = (v: Known) => known(v, (x) => prefixed(x, "FLOP/s"));
export const percent = (v: Known) =>
  known(v, (x) => (x > 0 && x < 5e-4 ? "<0.1 %" : `${(x * 100).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`));
export const times = (v: Known) => known(v, (x) => `×${digits(x)}`);

export const binary = (v: Known) =>
  known(v, (x) => {
    for (const [factor, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]] as const) {
      if (x >= factor) return `${digits(x / factor)} ${unit}`;
    }
    return `${digits(x)} B`;
  });

// How large a memory is: caches in powers of two, device memory in decimal bytes, as ridge machine prints.
export const memorySize = (v: Known) => (typeof v === "number" && v < 1e9 ? binary(v) : bytes(v));

export const seconds = (v: Known) =>
  known(v, (x) => {
    if (x === 0) return "0 s";
    if (x >= 99.95) return `${Math.floor(x / 60)} m ${Math.round(x % 60)} s`;
    if (x >= 0.9995) return `${digits(x)} s`;
    if (x >= 0.9995e-3) return `${digits(x * 1e3)} ms`;
    if (x >= 0.9995e-6) return `${digits(x * 1e6)} µs`;
    return `${digits(x * 1e9)} ns`;
  });

// Counts stay whole up to five digits: a batch of 1024 is not 1.02 k.
export const count = (v: Known) =>
  known(v, (x) => {
    if (Math.abs(x) < 99999.5) return x === Math.round(x) || x >= 999.5 ? x.toFixed(0) : digits(x);
    for (const [factor, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]] as const) {
      if (Math.abs(x) >= factor) return `${digits(x / factor)} ${unit}`;
    }
    return digits(x);
  });

// An observed quantity of ridge explain by its name, as src/diagnose/quantity.cc knows its unit.
export function quantity(name: string, v: Known): string {
  if (/^(itl|ttft|e2e)|_time$|^decode_step$/.test(name)) return seconds(v);
  if (/_(usage|hit|share|busy|util|active|occupancy|throttled)$|^cpu$/.test(name)) return percent(v);
  if (/^power/.test(name)) return known(v, (x) => `${x.toFixed(0)} W`);
  if (/clock$/.test(name)) return known(v, (x) => `${(x / 1e6).toFixed(0)} MHz`);
  if (/^memory/.test(name)) return bytes(v);
  if (name === "flops_per_s") return flopRate(v);
  if (/bytes/.test(name)) return rate(v);
  if (/_per_s$/.test(name)) return `${count(v)}${/tokens/.test(name) ? " tok" : ""}/s`;
  return count(v) + (name === "temperature" ? " °C" : "");
}

// Short labels for axes.
export const axis = (v: number) => {
  if (v === 0) return "0";
  for (const [factor, prefix] of kPrefixes) {
    if (v >= factor * 0.9995 && factor >= 1) return `${Number((v / factor).toPrecision(3))}${prefix}`;
  }
  return `${Number(v.toPrecision(3))}`;
};
export const axisBytes = (v: number, unit = "B") => {
  const [, number = "", prefix = ""] = /^(.*?)([A-Za-z]?)$/.exec(axis(v)) ?? [];
  return `${number} ${prefix}${unit}`;
};
export const axisSeconds = (v: number) => {
  if (v === 0) return "0";
  const [factor, unit] = v >= 0.9995 ? [1, "s"] : v >= 0.9995e-3 ? [1e3, "ms"] : v >= 0.9995e-6 ? [1e6, "µs"] : [1e9, "ns"];
  return `${Number((v * (factor as number)).toPrecision(3))} ${unit}`;
};

export function csv(rows: Record<string, unknown>[]): string {
  const first = rows[0];
  if (!first) return "";
  const names = Object.keys(first).filter((name) => typeof first[name] !== "object" || first[name] === null);
  const cell = (value: unknown) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names.join(","), ...rows.map((row) => names.map((n) => cell(row[n])).join(","))].join("\n") + "\n";
}
