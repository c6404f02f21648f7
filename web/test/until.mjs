// How tests wait: for a condition, never for a number of milliseconds. The deadline is generous,
// because only a test that fails reaches it.
const kDeadline = 300_000; // ms
const kPoll = 25; // ms between two looks

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Probes until the answer is true (or another value that is not false, null, undefined, 0 or ""),
// and returns it. `what` is what the error says was awaited.
export async function until(what, probe) {
  const end = Date.now() + kDeadline;
  for (;;) {
    const found = await probe();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited ${kDeadline / 1000} s for ${what}`);
    await pause(kPoll);
  }
}

// `promise`, or an error that says what was awaited.
export async function within(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${kDeadline / 1000} s for ${what}`)), kDeadline);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
