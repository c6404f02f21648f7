#include <algorithm>
#include <set>

#include "engine/cuda/elementwise/argmax.cuh"
#include "engine/cuda/elementwise/embedding.cuh"
#include "engine/cuda/elementwise/quantize_tokens.cuh"
#include "engine/cuda/elementwise/scale_queries.cuh"
#include "engine/cuda/gemm/prefill_gemm.cuh"
#include "engine/cuda/step/forward.cuh"

namespace ridge::cuda {

std::vector<int> distinct_windows(const ModelShape& s) {
  if (s.window.empty()) return {0};
  std::set<int> windows;
  for (int layer = 0; layer < s.layers; ++layer) {
    windows.insert(s.is_chunked(layer) ? 0 : s.window[size_t(layer)]);
  }
  return {windows.begin(), windows.end()};
}

Forward::Forward(const DeviceWeights& weights, KernelSet kernels, int sms,
                 const ForwardBuffers& buffers, const AttentionBounds& bounds,
                 RankExchange* exchange)
    : w_(weights), kernels_(kernels), sms_(sms), b_(buffers), exchange_(exchange) {
  const ModelShape& s = weights.shape;
  if (kernels == KernelSet::portable) {
    portable_gemm_.emplace(sms);
  } else {
    const bool mxfp4 = weights.format == WeightFormat::mxfp4;
    linear_.emplace(dense_format(weights.format), sms);
    second_linear_.emplace(mxfp4 ? WeightFormat::mxfp4 : WeightFormat::bf16, sms);
    const int slots = max_skinny_slots(s, kernels);
    if (slots > 0 && ExpertMlp::covers(weights.format) && !s.expert_bias) {
      expert_mlp_.emplace(weights.format, sms, s.expert_ffn, slots);
    }
  }
  if (s.latent) {
    latent_attention_.emplace(s.heads, sms);
  } else {
    attention_ = make_attention(distinct_windows(s), bounds);
  }
  if (s.chunk() > 0) {
    chunked_attention_ = make_attention({0}, bounds_of_chunks(bounds, s.chunk()));
  }
  sequences_.reserve(size_t(bounds.sequences));
}

std::unique_ptr<StepAttention> Forward::make_attention(std::vector<int> windows,
                                                       const AttentionBounds& bounds) const {
  const ModelShape& s = w_.shape;
  if (kernels_ == KernelSet::portable) {
    return std::make_unique<PortableAttention>(s.heads, s.kv_heads, s.head_dim, sms_, w_.kv_format,
                                               std::move(windows), bounds);
  }
  return std::make_unique<Attention>(s.heads, s.kv_heads, s.head_dim, sms_, w_.kv_format,
                                     std::move(windows), bounds);
}

size_t Forward::input_bytes(const ModelShape& s, KernelSet kernels, int sms,
                            const StepBounds& bounds, const AttentionBounds& attention) {
  const size_t tokens = size_t(bounds.tokens);
  const size_t common = StepInputs::bytes_of<int>(tokens) + StepInputs::bytes_of<KvSlot>(tokens) +
                        StepInputs::bytes_of<int>(size_t(attention.context_pages)) +
                        StepInputs::bytes_of<int>(size_t(bounds.logit_rows));
  if (s.latent) return common + latent_input_bytes(s, sms, bounds, attention);
  const auto of_attention =
      kernels == KernelSet::portable ? PortableAttention::input_bytes : Attention::input_bytes;
  const size_t of_chunks = s.chunk() > 0 ? of_attention(s.heads, s.kv_heads, sms, 1,
                                                        bounds_of_chunks(attention, s.chunk()))
                                         : 0;
  return common + of_attention(s.heads, s.kv_heads, sms, distinct_windows(s).size(), attention) +
         of_chunks;
}

void Forward::prepare(StepInputs& inputs, const StepSlice* slices, int count, int first_row) {
  int tokens = 0, rows = 0, page_count = 0;
  for (int i = 0; i < count; ++i) {
    tokens += slices[i].count, rows += slices[i].logits, page_count += slices[i].page_count;
  }
  if (tokens == 0) throw Error("a step without tokens");
  const StepInput<int> ids = inputs.add<int>(size_t(tokens));
  const StepInput<KvSlot> kv_slots = inputs.add<KvSlot>(size_t(tokens));
  const StepInput<int> pages = inputs.add<int>(size_t(page_count));
  const StepInput<int> logit_tokens = inputs.add<int>(size_t(rows));
  sequences_.clear();
  int token = 0, page = 0, row = 0;
  for (int i = 0; i < count; ++i) {
    const StepSlice& slice = slices[i];
    sequences_.push_back({token, slice.count, slice.past, page});
    for (int t = 0; t < slice.count; ++t, ++token) {
      const int position = slice.past + t;
      ids.host[token] = slice.tokens[t];
      kv_slots.host[token] = {position, slice.pages[position / kPageTokens],
                              position % kPageTokens};
      if (t + slice.logits >= slice.count) logit_tokens.host[row++] = token;
    }
    std::copy_n(slice.pages, slice.page_count, pages.host + page);
    page += slice.page_count;
  }
  const ModelShape& s = w_.shape;
  step_ = {};
  for (const AttentionSequence& each : sequences_) {
    const float newest = float(each.past + each.rows);  // position + 1
    step_.scales_queries |= s.temperature_scale != 0 && newest >= s.temperature_floor;
  }
  step_.path = forward_path(s, kernels_, tokens);
  step_.tokens = tokens, step_.padded = Linear::padded(tokens);
  step_.tile = Linear::tile_tokens(tokens);
  step_.fp8_products = uses_fp8_products(s, w_.format, kernels_, tokens, sms_);
  if (s.experts > 0) {
    step_.skinny_experts = uses_skinny_experts(s, kernels_, tokens);
    step_.slot_tile = expert_tile(s, kernels_, tokens);
    step_.slots = max_expert_slots(tokens, s.top_k, s.experts, step_.slot_tile);
  }
  step_.logit_rows = rows, step_.first_row = first_row;
  step_.token_ids = ids.device, step_.kv_slots = kv_slots.device, step_.pages = pages.device;
  step_.logit_tokens = logit_tokens.device;
  if (s.latent) return prepare_latents(inputs);
  attention_->plan(inputs, sequences_, pages.host);
  step_.fp8_attended =
      step_.fp8_products && step_.path == StepPath::fused_layer && attention_->can_write_fp8();
  if (chunked_attention_) {
    cut_into_chunks(sequences_, s.chunk(), chunks_);
    chunked_attention_->plan(inputs, chunks_, pages.host);
  }
}

void Forward::queue(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  timer_.restart();
  if (s.embeds) {
    timer_.mark(stream, "embed");
    const EmbeddingRows table{w_.embed.data(), s.embed_first, s.embedded_tokens()};
    embed(stream, step_.token_ids, step_.tokens, table, s.hidden, s.embed_scale, b_.residual);
    if (s.cuts_embedding()) {  // a row and zeros: the sum has the row's bits
      timer_.mark(stream, "embed_all_reduce");
      exchange_->all_reduce(stream, b_.residual, residual_floats());
    }
  } else {
    receive(stream);
  }
  if (step_.path == StepPath::fused_layer) {
    fused_layers(stream);
    if (!fuses_head()) logits(stream, {});
  } else if (s.head_columns() > 0) {
    logits(stream, separate_layers(stream));
  } else {
    send(stream, separate_layers(stream));
  }
  if (step_.logit_rows > 0 && s.head_columns() > 0) {
    timer_.mark(stream, "sample");
    argmax_rows(stream, first_logits(), step_.logit_rows, s.head_columns(), b_.best,
                b_.argmax + step_.first_row);
  }
  timer_.mark(stream, "");
}

// The path per_operator. Returns what the last layer has not added to the residual.
Forward::PendingAdd Forward::separate_layers(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  PendingAdd pending;
  for (int layer = 0; layer < s.layers; ++layer) {
    timer_.mark(stream, "attn_norm");
    rms_norm(stream, norm_args(VectorKind::attn_norm, layer, pending));
    if (s.latent) {
      latent_attention(stream, layer);
    } else {
      timer_.mark(stream, "qkv");
      gemm(stream, w_.qkv, layer, b_.x, qkv_args(layer));
      attention(stream, layer);
    }
    timer_.mark(stream, "out");
    LinearArgs out = block_output_args();
    out.bias = w_.vector(VectorKind::out_bias, layer);
    gemm(stream, w_.out, layer, b_.attended, out);
    pending = sum_of_ranks(stream, "attn_all_reduce",
                           pending_block_output(VectorKind::post_attn_norm, layer));
    pending = !s.is_moe(layer)       ? mlp(stream, layer, pending)
              : step_.skinny_experts ? skinny_experts(stream, layer, pending)
                                     : experts(stream, layer, pending);
    pending = sum_of_ranks(stream, "mlp_all_reduce", pending);
  }
  return pending;
}

// Where ranks cut the layer, what each has of a block's output is added up.
Forward::PendingAdd Forward::sum_of_ranks(cudaStream_t stream, const char* name,
                                          const PendingAdd& mine) {
  if (!w_.shape.partial_sums) return mine;
  timer_.mark(stream, name);
  if (mine.experts.rows) {
    combine_experts(stream, mine.experts, step_.tokens, w_.shape.hidden, b_.block_output);
  }
  exchange_->all_reduce(stream, b_.block_output, residual_floats());
  PendingAdd sum;
  sum.rows = b_.block_output, sum.norm = mine.norm;
  return sum;
}

void Forward::receive(cudaStream_t stream) {
  timer_.mark(stream, "receive");
  exchange_->receive_residual(stream, b_.residual, residual_floats());
}

void Forward::send(cudaStream_t stream, const PendingAdd& pending) {
  timer_.mark(stream, "send");
  // For the addition: the normed rows are not read.
  if (pending.rows || pending.experts.rows) {
    rms_norm(stream, norm_args(VectorKind::final_norm, 0, pending));
  }
  exchange_->send_residual(stream, b_.residual, residual_floats());
}

// The path fused_layer. The GEMM that adds to the residual also writes the sum times the next
// norm's weight and the sum's squares; the norm's scale is applied to the next GEMM's result.
void Forward::fused_layers(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  const auto scaled_by_norm = [&](LinearArgs args) {
    args.squares = b_.squares;
    args.square_tiles = (s.hidden + 127) / 128, args.square_columns = s.hidden;
    args.eps = s.norm_eps;
    return args;
  };
  const auto prepare_norm = [&](LinearArgs args, VectorKind norm, int layer) {
    args.next_norm = w_.vector(norm, layer), args.next_squares = b_.squares, args.out = b_.x;
    return args;
  };
  const bool fp8 = step_.fp8_products;
  const LinearArgs head = gemm_args(w_.head, 0, b_.x, scaled_by_norm(head_args()));
  timer_.mark(stream, "attn_norm");
  rms_norm(stream, norm_args(VectorKind::attn_norm, 0, {}));
  timer_.mark(stream, "qkv");
  gemm(stream, w_.qkv, 0, b_.x, qkv_args(0));
  for (int layer = 0; layer < s.layers; ++layer) {
    attention(stream, layer);
    const bool last = layer + 1 == s.layers;
    LinearArgs out = prepare_norm(block_output_args(), VectorKind::mlp_norm, layer);
    LinearArgs down = block_output_args();
    if (!last) down = prepare_norm(down, VectorKind::attn_norm, layer + 1);
    if (last && fuses_head()) down = prepare_norm(down, VectorKind::final_norm, 0);
    LinearArgs gate = scaled_by_norm(gate_args());
    out.fp8_out = gate.fp8_out = fp8, down.fp8_out = fp8 && !last;
    if (fp8 && !step_.fp8_attended) out.quantized_x = reinterpret_cast<uint8_t*>(b_.qkv);
    out.fp8_group = step_.fp8_attended ? std::min(128, s.head_dim) : 64;
    FusedGemms gemms;
    gemms.add("out", gemm_args(w_.out, layer, b_.attended, out));
    gemms.add("gate_up", gemm_args(w_.gate_up, layer, b_.x, gate));
    down.fp8_group = 64;
    gemms.add("down", gemm_args(w_.down, layer, b_.activated, down));
    if (!last) {
      gemms.add("qkv", gemm_args(w_.qkv, layer + 1, b_.x, scaled_by_norm(qkv_args(layer + 1))));
    }
    for (int i = 0; i < gemms.count; ++i) gemms.args[i].fp8_tokens = fp8;
    const bool with_head = last && fuses_head();
    if (with_head && !fp8) gemms.add("lm_head", head);
    launch(stream, gemms);
    if (with_head && fp8) {  // the logits' activations stay in bf16
      timer_.mark(stream, "lm_head");
      linear_->launch(stream, &head, 1, step_.tile);
    }
  }
}

// One kernel; where operators are timed, one each.
void Forward::launch(cudaStream_t stream, const FusedGemms& gemms) {
  if (!timer_.enabled()) return linear_->launch(stream, gemms.args, gemms.count, step_.tile);
  for (int i = 0; i < gemms.count; ++i) {
    timer_.mark(stream, gemms.names[i]);
    linear_->launch(stream, &gemms.args[i], 1, step_.tile);
  }
}

void Forward::logits(cudaStream_t stream, const PendingAdd& pending) {
  if (step_.logit_rows == 0) return;
  RmsNormArgs norm = norm_args(VectorKind::final_norm, 0, pending);
  norm.rows = step_.logit_tokens;
  norm.count = step_.logit_rows, norm.padded = Linear::padded(step_.logit_rows);
  norm.fp8_out = nullptr;
  timer_.mark(stream, "final_norm");
  rms_norm(stream, norm);
  timer_.mark(stream, "lm_head");
  gemm(stream, w_.head, 0, b_.x, head_args());
}

void Forward::attention(cudaStream_t stream, int layer) {
  const ModelShape& s = w_.shape;
  const bool rotates = s.has_rope(layer), chunked = s.is_chunked(layer);
  if (!rotates && step_.scales_queries) {
    timer_.mark(stream, "rope_cache");
    scale_queries(stream, step_.tokens,
                  {b_.qkv, w_.qkv_rows(), w_.q_columns(), step_.kv_slots, s.temperature_scale,
                   s.temperature_floor});
  }
  const AttentionArgs args = {s.heads,
                              s.kv_heads,
                              s.head_dim,
                              s.query_scale,
                              s.attention_softcap,
                              s.window.empty() || chunked ? 0 : s.window[size_t(layer)],
                              b_.qkv,
                              rotates ? w_.vector(VectorKind::q_norm, layer) : nullptr,
                              rotates ? w_.vector(VectorKind::k_norm, layer) : nullptr,
                              s.norm_eps,
                              w_.frequency_of(layer),
                              s.ropes[size_t(w_.rope_of(layer))].magnitude,
                              step_.kv_slots,
                              b_.q,
                              w_.kv_of(layer),
                              step_.pages,
                              b_.attended,
                              step_.padded,
                              w_.vector(VectorKind::sinks, layer),
                              step_.fp8_attended};
  StepAttention& planned = chunked ? *chunked_attention_ : *attention_;
  if (planned.needs_rope()) {
    timer_.mark(stream, "rope_cache");
    planned.rope_and_append(stream, args);
  }
  timer_.mark(stream, "attention");
  planned.launch(stream, args);
}

void Forward::gemm(cudaStream_t stream, const Matrices& m, int index, const uint16_t* x,
                   LinearArgs args) {
  args = gemm_args(m, index, x, args);
  const bool fp8 = step_.fp8_products && step_.path == StepPath::per_operator;
  if (fp8 && &m != &w_.head) return fp8_gemm(stream, args);
  const bool grouped = args.tile_count != nullptr;
  if (portable_gemm_) {
    const int portable_tile = grouped ? step_.slot_tile : PortableGemm::tile_tokens(args.tokens);
    return portable_gemm_->launch(stream, m.format, args, portable_tile);
  }
  if (!grouped && args.tokens <= kSkinnyDenseTokens) {
    return skinny_gemm(stream, m.format, sms_, {args});
  }
  const int tile = grouped ? step_.slot_tile : Linear::tile_tokens(args.tokens);
  Linear& linear = m.format == dense_format(w_.format) ? *linear_ : *second_linear_;
  linear.launch(stream, &args, 1, tile);
}

void Forward::fp8_gemm(cudaStream_t stream, const LinearArgs& gemm) {
  LinearArgs args = gemm;
  if (args.x != b_.x) {  // the norms write E4M3 themselves
    const int columns = args.tiles.chunks * format_info(WeightFormat::fp8).columns;
    uint8_t* const quantized = reinterpret_cast<uint8_t*>(b_.qkv);
    quantize_tokens(stream, {args.x, quantized, b_.token_scale, columns, args.padded});
    args.x = reinterpret_cast<const uint16_t*>(quantized);
  }
  prefill_gemm_fp8(stream, sms_, args, b_.token_scale);
}

}  // namespace ridge::cuda
