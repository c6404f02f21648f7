// Values that the page shows. All of it hangs on the configuration, so a change of any draws the whole
// page again; nothing finer would save work.
const watchers: (() => void)[] = [];

export const watch = (run: () => void) => void watchers.push(run);

export function signal<T>(first: T): { value: T } {
  let now = first;
  return {
    get value() { return now; },
    set value(next: T) {
      if (next === now) return;
      now = next;
      for (const run of watchers) run();
    },
  };
}
