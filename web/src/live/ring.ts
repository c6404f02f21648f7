// A table of numbers that keeps its newest rows: its memory never grows.
export class Ring<K extends string> {
  count = 0; // rows ever pushed
  private readonly columns: Record<K, Float64Array>;

  constructor(readonly names: readonly K[], readonly capacity: number) {
    this.columns = Object.fromEntries(names.map((name) => [name, new Float64Array(capacity)])) as Record<K, Float64Array>;
  }
  push(row: Readonly<Record<K, number>>): void {
    const place = this.count++ % this.capacity;
    for (const name of this.names) this.columns[name][place] = row[name];
  }
  // The oldest row that is kept; rows are numbered from the first ever pushed.
  get first(): number {
    return Math.max(0, this.count - this.capacity);
  }
  at(name: K, row: number): number {
    return this.columns[name][row % this.capacity] as number;
  }
  // The first row whose `name` (which never falls) is at least `value`.
  from(name: K, value: number): number {
    let [low, high] = [this.first, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.at(name, middle) < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  clear(): void {
    this.count = 0;
  }
}
