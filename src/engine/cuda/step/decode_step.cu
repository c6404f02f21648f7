#include <algorithm>

#include "engine/cuda/step/decode_step.cuh"
#include "engine/cuda/step/step_path.cuh"

namespace ridge::cuda {
namespace {

// Elements of an activation buffer. The columns of the last chunk beyond the matrix multiply zero
// weights, but must be numbers.
size_t activation_count(int columns) { return size_t(kMaxRows) * (columns + 64); }
static_assert(input_columns(DecodeVariant::gemma, kMaxGemmaRows) <= kMaxRows);
size_t mlp_count(const ModelShape& s) {
  return s.experts > 0 ? size_t(s.top_k) * choice_columns(s.expert_ffn) : activation_count(s.ffn);
}

}  // namespace

DecodeBuffers::DecodeBuffers(Workspace& workspace, const ModelShape& s, int sms, int max_steps) {
  const int group = s.heads / s.kv_heads;
  const size_t rows = kMaxRows;
  const bool gemma = decode_variant(s) == DecodeVariant::gemma;
  square_count = 3 * rows * s.hidden / kBlockRows * (gemma ? 4 : 1);
  residual = workspace.take<float>(rows * s.hidden);
  block_output = workspace.take<float>(gemma ? rows * s.hidden : 0);
  sums_of_squares = workspace.take<float>(square_count);
  qkv_count = rows * (s.heads + 2 * s.kv_heads) * s.head_dim;
  qkv_out = workspace.take<float>(qkv_count);
  split_states = workspace.take<TaggedFloat>(rows * std::max(sms, s.kv_heads) * group *
                                             size_t(s.head_dim + 2));
  logits = workspace.take<float>(rows * s.vocab);
  normed = workspace.take<uint16_t>(3 * activation_count(s.hidden));
  attention_out = workspace.take<uint16_t>(activation_count(s.heads * s.head_dim));
  mlp_hidden = workspace.take<uint16_t>(mlp_count(s));
  router_sums = workspace.take<TaggedFloat>(s.experts);
  grid_barrier = workspace.take<unsigned>(2);
  argmax_keys = workspace.take<unsigned long long>(rows * sms * 3);
  next_tokens = workspace.take<int>(rows * max_steps);
  timestamps =
      workspace.take<long long>(size_t(ops_per_step(s.layers, s.experts > 0)) * max_steps * 3);
}

DecodeStep::DecodeStep(const DeviceWeights& weights, KernelSet kernels, int sms,
                       const DecodeBuffers& buffers, int max_steps)
    : w_(weights), sms_(sms), max_steps_(max_steps), buffers_(buffers), args_(model_args()) {
  args_.kernels = kernels;
  most_rows_ = decode_rows(w_.format, args_);
  check(cudaMemset(buffers_.sums_of_squares, 0xff, buffers_.square_count * sizeof(float)),
        "filling");
  check(cudaMemset(buffers_.qkv_out, 0xff, buffers_.qkv_count * sizeof(float)), "filling");
}

size_t DecodeStep::input_bytes(size_t context_pages) {
  return StepInputs::bytes_of<RowContext>(kMaxRows) + StepInputs::bytes_of<int>(kMaxRows) +
         StepInputs::bytes_of<int>(context_pages);
}

// What no launch changes.
DecodeArgs DecodeStep::model_args() const {
  const ModelShape& s = w_.shape;
  DecodeArgs a = {};
  a.layers = s.layers, a.hidden = s.hidden, a.heads = s.heads, a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim, a.ffn = s.ffn, a.vocab = s.vocab;
  a.activation = s.gelu ? Activation::gelu_tanh : Activation::silu;
  a.norm_eps = s.norm_eps, a.embed_scale = s.embed_scale, a.query_scale = s.query_scale;
  a.attention_softcap = s.attention_softcap, a.logit_softcap = s.logit_softcap;
  std::copy(s.window.begin(), s.window.end(), a.window);

  a.embed = w_.embed.data(), a.qkv = w_.qkv.tiles, a.out = w_.out.tiles;
  a.gate_up = w_.gate_up.tiles, a.down = w_.down.tiles, a.head = w_.head.tiles;
  if (s.experts > 0) {
    a.gate_up = w_.expert_gate_up.tiles, a.down = w_.expert_down.tiles, a.router = w_.router.tiles;
    a.ffn = s.expert_ffn, a.choice_stride = choice_columns(s.expert_ffn);
    a.experts = s.experts, a.top_k = s.top_k, a.normalize_top_k = s.normalize_top_k;
  }
  a.variant = decode_variant(s);
  a.attn_norm = w_.vector(VectorKind::attn_norm, 0);
  a.post_attn_norm = w_.vector(VectorKind::post_attn_norm, 0);
  a.mlp_norm = w_.vector(VectorKind::mlp_norm, 0);
  a.post_mlp_norm = w_.vector(VectorKind::post_mlp_norm, 0);
  a.final_norm = w_.vector(VectorKind::final_norm, 0);
  a.q_norm = w_.vector(VectorKind::q_norm, 0), a.k_norm = w_.vector(VectorKind::k_norm, 0);
  a.qkv_bias = w_.vector(VectorKind::qkv_bias, 0);
  a.rope_frequency = w_.ropes.data(), a.ropes = int(s.ropes.size());
  for (int i = 0; i < a.ropes; ++i) a.rope_magnitude[i] = s.ropes[size_t(i)].magnitude;
  std::copy(s.rope.begin(), s.rope.end(), a.rope);
  a.kv_format = w_.kv_format, a.kv = w_.kv.data(), a.cache_pages = w_.cache_pages;

  const DecodeBuffers& b = buffers_;
  a.residual = b.residual, a.normed = b.normed, a.sums_of_squares = b.sums_of_squares,
  a.qkv_out = b.qkv_out;
  a.block_output = b.block_output;
  a.normed_stride = int(activation_count(s.hidden));
  a.attention_out = b.attention_out, a.mlp_hidden = b.mlp_hidden, a.split_states = b.split_states;
  a.logits = b.logits, a.argmax_keys = b.argmax_keys, a.next_tokens = b.next_tokens;
  a.grid_barrier = b.grid_barrier, a.router_sums = b.router_sums;
  return a;
}

// Columns of the matrix get the not-ready sentinel, those beyond zero.
void DecodeStep::clear_activations(cudaStream_t stream) {
  const auto clear = [&](uint16_t* x, int columns, int rows) {
    if (const int copies = input_copies(w_.format, args_.variant, rows); copies > 1) {
      check(cudaMemsetAsync(x, 0, activation_count(columns) * 2, stream), "clearing");
      check(cudaMemset2DAsync(x, size_t(copy_stride(columns)) * 2, kNotReady & 0xff,
                              size_t(columns) * 2, size_t(copies), stream),
            "clearing");
      return;
    }
    const size_t used = size_t(columns) * rows;
    check(cudaMemsetAsync(x, kNotReady & 0xff, used * 2, stream), "clearing");
    check(cudaMemsetAsync(x + used, 0, (activation_count(columns) - used) * 2, stream), "clearing");
  };
  const ModelShape& s = w_.shape;
  for (int i = 0; i < 3; ++i) {
    clear(buffers_.normed + i * activation_count(s.hidden), s.hidden,
          input_columns(args_.variant, padded_rows_));
  }
  clear(buffers_.attention_out, w_.q_columns(), padded_rows_);
  if (s.experts == 0) return clear(buffers_.mlp_hidden, s.ffn, padded_rows_);
  check(cudaMemsetAsync(buffers_.mlp_hidden, 0, mlp_count(s) * 2, stream), "clearing");
  check(cudaMemset2DAsync(buffers_.mlp_hidden, size_t(args_.choice_stride) * 2, kNotReady & 0xff,
                          size_t(s.expert_ffn) * 2, size_t(s.top_k), stream),
        "clearing");
}

void DecodeStep::prepare(cudaStream_t stream, StepInputs& inputs, const DecodeRow* rows, int count,
                         int steps) {
  const int most = decode_kernel_tokens(w_.shape, args_.kernels);
  if (count < 1 || count > most) {
    throw Error("{} tokens in a step of the decode kernel, which takes 1 to {}", count, most);
  }
  if (steps < 1 || steps > max_steps_) {
    throw Error("{} steps in a launch of at most {}", steps, max_steps_);
  }
  size_t page_count = 0;  // rows of one sequence share its list
  for (int i = 0; i < count; ++i) {
    if (i == 0 || rows[i].pages != rows[i - 1].pages) page_count += size_t(rows[i].page_count);
  }
  const StepInput<RowContext> table = inputs.add<RowContext>(size_t(count));
  const StepInput<int> tokens = inputs.add<int>(size_t(count));
  const StepInput<int> pages = inputs.add<int>(page_count);
  int listed = 0, begin = 0, last_position = 0;
  for (int i = 0; i < count; ++i) {
    const DecodeRow& row = rows[i];
    if (i == 0 || row.pages != rows[i - 1].pages) {
      begin = listed;
      std::copy_n(row.pages, row.page_count, pages.host + begin);
      listed += row.page_count;
    }
    table.host[i] = {row.past, row.first, begin};
    tokens.host[i] = row.token;
    last_position = std::max(last_position, row.past + i - row.first);
  }
  if (const int padded = padded_rows(count, args_.kernels); padded != padded_rows_) {
    padded_rows_ = padded;
    clear_activations(stream);
  }
  args_.rows = table.device, args_.tokens = tokens.device, args_.pages = pages.device;
  args_.row_count = count, args_.max_position = last_position, args_.steps = steps;
}

void DecodeStep::launch(cudaStream_t stream, bool keep_times) {
  args_.timestamps = keep_times ? buffers_.timestamps : nullptr;
  std::copy(arrivals_, arrivals_ + 2, args_.grid_barrier_base);
  launch_decode(stream, sms_, w_.format, args_);
  const int operators = ops_per_step(w_.shape.layers, w_.shape.experts > 0) * args_.steps;
  arrivals_[0] += static_cast<unsigned>((operators + 1) / 2 * sms_);
  arrivals_[1] += static_cast<unsigned>(operators / 2 * sms_);
}

std::vector<long long> DecodeStep::timestamps() const {
  std::vector<long long> clocks(size_t(ops_per_step(w_.shape.layers, w_.shape.experts > 0)) *
                                args_.steps * 3);
  check(cudaMemcpy(clocks.data(), buffers_.timestamps, clocks.size() * sizeof(long long),
                   cudaMemcpyDeviceToHost),
        "copying clocks");
  return clocks;
}

void DecodeStep::append_times(double seconds, OperatorTimes& times) const {
  static constexpr const char* kDense[] = {"qkv", "attention", "out", "gate_up", "down"};
  static constexpr const char* kSparse[] = {"qkv", "attention", "out", "router", "gate_up", "down"};
  static constexpr const char* kBarrier = "grid barrier";
  const std::vector<long long> at = timestamps();
  const int per_step = ops_per_step(w_.shape.layers, w_.shape.experts > 0),
            count = per_step * args_.steps;
  const double begin = double(at[2]), clocks = double(at[size_t(count) * 3 - 1]) - begin;
  const bool experts = w_.shape.experts > 0;
  const char* const* layer = experts ? kSparse : kDense;
  const int per_layer = ops_per_layer(experts);
  double before = begin;
  const auto add = [&](const char* name, long long until) {
    times.emplace_back(name, (double(until) - before) / clocks * seconds);
    before = double(until);
  };
  const char* wait = kBarrier;
  for (int i = 1; i < count; ++i) {
    const int op = i % per_step;
    const char* name = op == 0              ? "embed"
                       : op == per_step - 1 ? "lm_head"
                                            : layer[(op - 1) % per_layer];
    // Where SM 0 has no tile of an operator, the wait that follows is the others' work on it.
    const bool idle = op != 0 && double(at[size_t(i) * 3]) < before;
    if (op != 0 && !idle) add(wait, at[size_t(i) * 3]);
    add(name, at[size_t(i) * 3 + 2]);
    wait = idle ? name : kBarrier;
  }
}

}  // namespace ridge::cuda
