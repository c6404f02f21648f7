// What the API answers; docs/json.md and docs/page.md say what the fields mean.
export type Wall = "compute" | "memory" | "launch" | "interconnect" | "host-link" | "capacity" | "power";
export type OnWalls = Record<string, number>;

export interface Phase {
  roof_s: number; expected_s: number; low_s: number; high_s: number;
  wall: Wall; next_wall: Wall; on_s: OnWalls;
  flops: number; bytes: number; intensity: number; mfu: number | null; mbu: number;
}
export interface Op {
  name: string; phase: "prefill" | "decode"; kind: string; math: string; count: number;
  flops: number; bytes: number; intensity: number; roof_s: number; expected_s: number; wall: Wall;
}
export interface PlacedOp extends Op {
  runs_as: string; flops_per_s: number; share: number; peak: number | null; bandwidth: number;
  at_peak_s: number | null; at_bandwidth_s: number; on_s: OnWalls;
  weight_bytes: number; kv_bytes: number; act_bytes: number; chip_bytes: number;
}
export interface Memory {
  weights_bytes: number; kv_bytes: number; activation_bytes: number; overhead_bytes: number;
  reserved_bytes: number; // left unused by the stack's default share of the memory
  capacity_bytes: number | null; fits: boolean; max_batch: number | null; max_context: number | null;
}
export interface Prediction<O = Op> {
  model: string; machine: string; stack: string; calibrated: boolean; basis: string; devices: number; math: string;
  plan: Record<string, unknown>; ttft_s: number; tpot_s: number;
  prefill: Phase & { prompt: number };
  decode: Phase & {
    batch: number; context: number; tokens_per_step: number; tokens_per_s: number; roof_tokens_per_s: number;
    tokens_per_s_per_user: number; tokens_per_s_per_device: number;
  };
  mixed: Phase | null; memory: Memory; dollars_per_mtok: number | null; joules_per_token: number | null;
  notes: string[]; ops: O[];
}
export interface RoofMachine {
  name: string; title: string;
  roofs: { dtype: string; peak: number; sustained: number | null; ridge: number | null }[];
  levels: { name: string; bandwidth: number; memory: boolean; measured: boolean }[];
}
export interface Landmark { name: string; intensity: number; flops_per_s?: number; wall?: Wall }
export interface Roofline {
  machines: RoofMachine[]; landmarks: Landmark[]; sentence: string; techniques: string; prediction: Prediction<PlacedOp>;
}
export interface Level {
  name: string; scope: "unit" | "device" | "host" | "network"; capacity?: number | null; instances?: number;
  read_bandwidth?: number | null; latency?: number | null;
}
export interface Machine {
  name: string; title: string; kind: string; units?: number | null; clock?: number | null; year?: number | null;
  architecture?: string; vendor?: string; levels: Level[]; power?: number | null; notes?: string;
  links?: { name: string; bandwidth?: number | null; latency?: number | null; max_devices: number }[];
  launch?: Record<string, number | null>;
  provenance: Record<string, { origin: string; source: string; date?: string; spread?: number | null }>;
}
export interface Resident { level: string; name: string; bytes: number; capacity: number | null; note: string }
export interface Pyramid {
  system: { name: string; devices: number }; machine: Machine; ridge: Record<string, number>;
  fits: { model: string; pieces: { name: string; bytes: number; count: Record<string, number | null> }[] };
  residents: Resident[];
}
export interface TileStep { issued_s: number; started_s: number; from_memory_s: number; in_shared_s: number; computing_s: number; done_s: number }
export interface Tiles {
  machine: string; tile: number[]; dtype: string; stages: number; stage_bytes: number; shared_bytes: number;
  capacity_bytes: number; fits: boolean; in_flight_bytes: number; needed_bytes: number; seconds: number;
  memory_busy: number; compute_busy: number; units: number; memory: string; cache: string | null;
  life: { memory: number; cache: number; waiting: number; computing: number };
  ladder: { stages: number; shared_bytes: number; fits: boolean; in_flight_bytes: number; memory_busy: number; compute_busy: number; seconds: number }[];
  sizes: { side: number; bytes: number; in_shared: number; in_cache: number | null }[];
  notes: string[]; steps: TileStep[];
}
export interface SweepPoint {
  batch?: string; weights?: string; context?: string;
  ttft_s: number; tpot_s: number; tpot_low_s: number; tpot_high_s: number; tokens_per_s: number; roof_tokens_per_s: number;
  tokens_per_s_per_user: number; tokens_per_s_per_device: number; wall: Wall; next_wall: Wall;
  mfu: number | null; mbu: number; memory_bytes: number; fits: boolean; max_batch: number | null; pareto: boolean;
}
export interface Sweep { sweep: string[]; axes: { name: string; labels: string[] }[]; points: SweepPoint[] }
interface Percentiles { mean: number; p50: number; p90: number; p99: number }
export interface Endpoint {
  clients: number; prompt: number; output: number; running: number; ttft_s: number; tpot_s: number; tokens_per_s: number;
  simulated: { ttft_s: Percentiles; itl_s: Percentiles; e2e_s: Percentiles; requests_per_s: number; output_tokens_per_s: number };
  dollars_per_mtok: number | null;
}
export interface Users {
  target_s: number; by_memory: number | null; by_latency: number; users: number; decides: Wall;
  tpot_s?: number; tokens_per_s?: number;
}
export interface Profile {
  tool: string; devices: number; wall_s: number; busy_s: number; kernel_s: number; launches: number; graph_launches: number;
  gaps_s: { launch: number; synchronize: number; host: number; outside: number };
  exposed_collective_s: number; steps: number;
  operators: { family: string; seconds: number; launches: number; expected_s: number | null; flops: number | null; bytes: number | null }[];
  kernels: {
    name: string; family: string; seconds: number; launches: number;
    dram_bytes?: number; flops?: number; memory_share?: number; dram_share?: number; compute_share?: number; tensor_share?: number;
  }[];
}
export interface Lever {
  name: string; setting: string; targeted: boolean; note: string;
  gain: number | null; ttft_gain: number | null; tpot_s: number | null; next_wall: Wall | null;
}
export interface Explanation {
  verdict: string; healthy: boolean; wall: Wall | null; next_wall: Wall | null; sentence: string;
  confidence: number; runner_up: string | null; runner_up_confidence?: number;
  observed: {
    step_s: number | null; batch: number | null;
    share_of_roof?: number; over_expected?: number; mbu?: number; mfu?: number | null;
    quantities: { name: string; value: number; trust: string; origin: string; file: number; window_s?: number }[];
  };
  expected: {
    model: string; machine: string; stack: string; phase: "prefill" | "decode"; roof_s: number; low_s: number; expected_s: number; high_s: number;
    flops: number; bytes: number; peak: number | null; bandwidth: number; memory: string;
    useful_batch: number;
  } | null;
  evidence: { bearing: "supports" | "contradicts"; text: string }[];
  missing: string[]; levers: Lever[];
  files: { path: string; kind: string; window: string; notes: string[]; unknown: string[] }[];
  identified: string[];
  profile?: Profile;
}
export interface ModelDetails {
  name: string; title: string; parameters: number; active_parameters: number; weight_bytes: number;
  kv_bytes_per_token: number; layers: number; max_context: number | null; kv_format: string;
  layer_groups: { count: number; kind: string; window: number; parameters: number }[];
  parts: { name: string; parameters: number; bytes: number }[];
  kv: { context: number; bytes: number }[]; notes: string[];
}
export interface MachineLine { name: string; title: string; kind: string; year: number | null; peak: number | null; bandwidth: number | null; capacity: number | null; ridge: number | null }
export interface ModelLine { name: string; title: string; family: string; parameters: number; active_parameters: number }
export interface StackLine { name: string; title: string; basis: string; calibrated: boolean }
export interface History {
  records: { name: string; architecture: string; year: number; dtype: string; peak: number; bandwidth: number; ridge: number }[];
  growth: { from: string; to: string; peak: number; fp32: number | null; bandwidth: number; ridge: number }[];
}
