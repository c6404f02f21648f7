// An engine that sends what /api/live sends, for tests that need hours of events in a moment. It is
// deterministic: its clock is the sum of its steps.

export const serving = {
  serving: true, model: "ridge-7m", machine: "this", weights: "bf16", kv: "f16", device: "CPU, invented", max_context: 1024,
  max_sequences: 32, max_drafts: 4, page_tokens: 16, pages: 512, streams_from: { level: "L3", bytes_per_s: 74e9, measured: true },
  peak_flops_per_s: 198e9, roofs: [{ kind: "datasheet", bytes_per_s: null, flops_per_s: 198e9 }, { kind: "measured", bytes_per_s: 74e9, flops_per_s: null }, { kind: "predicted", bytes_per_s: 52e9, flops_per_s: 120e9 }], weight_bytes: 13.2e6, kv_bytes_per_token: 3584, profiles: true,
};

// Calls send(event, data) for everything that happens.
export class InventedEngine {
  constructor(send) {
    this.send = send;
    this.now = 100;
    this.next = 1;
    this.running = [];
    this.owners = new Array(serving.pages).fill(0);
  }
  hello() {
    this.send("hello", { ...serving, now_s: this.now });
    this.send("pages", { full: true, changes: [], left_out: 0, ...this.pool() });
  }
  pool() {
    const free = this.owners.filter((o) => o === 0).length, cached = this.owners.filter((o) => o === -1).length;
    return { free, cached, held: serving.pages - free - cached };
  }
  own(owner, pages) {
    const changes = [];
    for (const kind of [0, -1]) {
      for (let page = 0; page < serving.pages && changes.length < pages; ++page) {
        if (this.owners[page] !== kind || changes.some(([p]) => p === page)) continue;
        changes.push([page, 1, owner, 1]);
      }
    }
    for (const [page] of changes) this.owners[page] = owner;
    return changes;
  }
  arrive(prompt, output, cached = 0) {
    const id = this.next++;
    this.running.push({ id, prompt, left: output, output, prefilled: cached, cached });
    this.send("requests", { dropped: 0, requests: [{ id, at_s: this.now, event: "arrived", prompt_tokens: prompt }, { id, at_s: this.now, event: "admitted", prompt_tokens: prompt, cached_tokens: cached }] });
    this.send("pages", { full: false, changes: this.own(id, Math.ceil(prompt / 16)), left_out: 0, ...this.pool() });
  }
  // One step of everything that runs, of `seconds`; false where nothing does.
  step(seconds = 0.02) {
    if (this.running.length === 0) {
      this.now += seconds;
      return false;
    }
    const rows = [], ended = [];
    let prefill = 0, decode = 0, generated = 0, accepted = 0, drafted = 0;
    for (const r of this.running) {
      if (r.prefilled < r.prompt) {
        const chunk = Math.min(64, r.prompt - r.prefilled);
        r.prefilled += chunk;
        prefill += chunk;
        rows.push([r.id, "prefill", chunk]);
        if (r.prefilled === r.prompt) { --r.left; ++generated; }
      } else {
        const lucky = r.left > 2 && r.left % 5 === 0;
        rows.push(lucky ? [r.id, "draft", 2, 1, 4] : [r.id, "decode", 1]);
        r.left -= lucky ? 2 : 1;
        generated += lucky ? 2 : 1;
        accepted += lucky ? 1 : 0;
        drafted += lucky ? 4 : 0;
        ++decode;
      }
      if (r.left <= 0) ended.push(r);
    }
    this.running = this.running.filter((r) => r.left > 0);
    const at_s = this.now;
    this.now += seconds;
    const tokens = prefill + decode + drafted;
    this.send("steps", { dropped: 0, steps: [{
      steps: 1, at_s, until_s: this.now, wall: prefill ? "compute" : "memory", measured_s: seconds * 0.9, predicted_s: seconds * 0.7, roof_s: seconds * 0.3, gap_s: seconds * 0.1,
      flops: tokens * 14e6, bytes: 13.2e6 + tokens * 5e5, prefill_tokens: prefill, prefill_sequences: 0, decode_sequences: decode, draft_tokens: drafted, accepted_tokens: accepted,
      generated_tokens: generated, preempted: 0, running: this.running.length, waiting: 0, rows,
    }] });
    for (const r of ended) {
      this.send("requests", { dropped: 0, requests: [{ id: r.id, at_s: this.now, event: "finished", prompt_tokens: r.prompt, generated_tokens: r.output, end: "length" }] });
      const changes = this.owners.flatMap((o, page) => (o === r.id ? [[page, 1, -1, 0]] : []));
      for (const [page] of changes) this.owners[page] = -1;
      this.send("pages", { full: false, changes, left_out: 0, ...this.pool() });
    }
    return true;
  }
}
