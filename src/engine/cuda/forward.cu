#include <algorithm>
#include <set>

#include "engine/cuda/argmax.cuh"
#include "engine/cuda/embedding.cuh"
#include "engine/cuda/forward.cuh"

namespace ridge::cuda {
namespace {

void check_shape(const ModelShape& s) {
  const auto refuse = [](const std::string& what) {
    throw Error("the CUDA engine has no code for {}", what);
  };
  if (s.head_dim != 64 && s.head_dim != 128 && s.head_dim != 256) {
    refuse(fmt::format("heads of {}", s.head_dim));
  }
  if (s.heads % s.kv_heads) refuse(fmt::format("{} heads on {} KV heads", s.heads, s.kv_heads));
  if (s.hidden % 64) refuse(fmt::format("{} columns", s.hidden));
  if (s.ffn % 16 || s.expert_ffn % 16) {
    refuse(fmt::format("an MLP of {} columns", s.ffn % 16 ? s.ffn : s.expert_ffn));
  }
}

std::vector<int> windows_of(const ModelShape& s) {  // each once
  if (s.window.empty()) return {0};
  const std::set<int> windows(s.window.begin(), s.window.end());
  return {windows.begin(), windows.end()};
}

int up_to(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Columns that fill no chunk meet weights of zero, but must be numbers.
DeviceBuffer<uint16_t> activations(size_t tokens, int columns) {
  DeviceBuffer<uint16_t> buffer(tokens * size_t(up_to(columns, 64)));
  buffer.fill_bytes(0);
  return buffer;
}

}  // namespace

Forward::Forward(const DeviceWeights& weights, int sms)
    : w_(weights),
      sms_(sms),
      linear_(weights.format, sms),
      router_(WeightFormat::bf16, sms),
      attention_(weights.shape.heads, weights.shape.kv_heads, weights.shape.head_dim, sms,
                 weights.kv_format, windows_of(weights.shape)) {
  check_shape(weights.shape);
}

Forward::~Forward() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void Forward::reserve(int tokens, int rows) {
  const ModelShape& s = w_.shape;
  const bool sparse = s.experts > 0;
  if (tokens > room_) {
    room_ = up_to(std::max(tokens, 2 * room_), 256);
    const size_t room = size_t(room_);
    residual_ = DeviceBuffer<float>(room * s.hidden);
    qkv_ = DeviceBuffer<float>(room * w_.qkv_rows());
    if (s.post_norms) added_ = DeviceBuffer<float>(room * s.hidden);
    squares_ = DeviceBuffer<float>(size_t(Linear::kMaxChainedTokens) * (s.hidden / 128 + 1));
    x_ = activations(room, s.hidden);
    q_ = DeviceBuffer<uint16_t>(room * w_.q_columns());
    attended_ = activations(room, w_.q_columns());
    activated_ = activations(room, s.ffn);
    token_ = DeviceBuffer<int>(room);
    at_ = DeviceBuffer<KvSlot>(room);
    if (sparse) {
      const size_t choices = room * s.top_k;
      router_logits_ = DeviceBuffer<float>(room * s.experts);
      expert_weight_ = DeviceBuffer<float>(choices);
      expert_ = DeviceBuffer<int>(choices);
      slot_ = DeviceBuffer<int>(choices);
      count_ = DeviceBuffer<int>(s.experts);
      tile_count_ = DeviceBuffer<int>(1);
      arrived_ = DeviceBuffer<unsigned>(1);
      arrived_.fill_bytes(0);
    }
  }
  if (sparse) {
    slot_tile_ = few_experts() ? kSkinnyTile
                               : Linear::tile_tokens(std::max(1, tokens * s.top_k / s.experts));
    slots_ = max_expert_slots(tokens, s.top_k, s.experts, slot_tile_);
    if (size_t(slots_) > source_.size()) {
      const size_t slots = size_t(slots_) + size_t(slots_) / 4;
      source_ = DeviceBuffer<int>(slots);
      tile_matrix_ = DeviceBuffer<int>(slots / kSkinnyTile + 1);
      sorted_ = activations(slots, s.hidden);
      sorted_activated_ = activations(slots, s.expert_ffn);
      expert_rows_ = DeviceBuffer<float>(slots * s.hidden);
    }
  }
  if (rows > rows_room_) {
    rows_room_ = std::max(rows, 2 * rows_room_);
    logits_ = DeviceBuffer<float>(size_t(rows_room_) * s.vocab);
    rows_ = DeviceBuffer<int>(rows_room_);
    chosen_ = DeviceBuffer<int>(rows_room_);
    best_ = DeviceBuffer<unsigned long long>(rows_room_);
    best_.fill_bytes(0);
    check(cudaDeviceSynchronize(), "clearing memory");
  }
}

void Forward::prepare(cudaStream_t stream, const std::vector<ForwardSlice>& slices) {
  std::vector<int> tokens, pages;
  std::vector<KvSlot> at;
  std::vector<AttentionSequence> sequences;
  wanted_.clear();
  for (const ForwardSlice& slice : slices) {
    const int first = int(tokens.size());
    sequences.push_back({first, slice.count, slice.past, int(pages.size())});
    for (int i = 0; i < slice.count; ++i) {
      const int position = slice.past + i;
      tokens.push_back(slice.tokens[i]);
      at.push_back({position, slice.pages[position / kPageTokens], position % kPageTokens});
      if (i + slice.logits >= slice.count) wanted_.push_back(first + i);
    }
    pages.insert(pages.end(), slice.pages, slice.pages + slice.page_count);
  }
  tokens_ = int(tokens.size());
  if (tokens_ == 0) throw Error("a step without tokens");
  tile_ = Linear::tile_tokens(tokens_);
  padded_ = Linear::padded(tokens_);
  reserve(tokens_, int(wanted_.size()));
  if (pages_.size() < pages.size()) pages_ = DeviceBuffer<int>(pages.size() * 2);
  token_.copy_from(tokens.data(), tokens.size(), stream);
  at_.copy_from(at.data(), at.size(), stream);
  pages_.copy_from(pages.data(), pages.size(), stream);
  if (!wanted_.empty()) rows_.copy_from(wanted_.data(), wanted_.size(), stream);
  attention_.plan(stream, sequences);
}

void Forward::mark(cudaStream_t stream, const char* name) {
  if (!keep_times_) return;
  if (used_events_ == events_.size()) {
    events_.push_back(nullptr);
    names_.push_back(nullptr);
    check(cudaEventCreate(&events_.back()), "making an event");
  }
  names_[used_events_] = name;
  check(cudaEventRecord(events_[used_events_++], stream), "timing");
}

std::vector<std::pair<const char*, double>> Forward::operators() const {
  std::vector<std::pair<const char*, double>> times;
  if (used_events_ < 2) return times;
  check(cudaEventSynchronize(events_[used_events_ - 1]), "timing");
  for (size_t i = 0; i + 1 < used_events_; ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]), "timing");
    times.emplace_back(names_[i], ms / 1e3);
  }
  return times;
}

LinearArgs Forward::product(const Matrices& m, int index, const uint16_t* x,
                            LinearArgs args) const {
  args.tiles = m.tiles;
  args.matrix = index;
  args.row_count = m.rows;
  args.x = x;
  if (args.padded == 0) args.tokens = tokens_, args.padded = padded_;
  args.activation = w_.shape.gelu ? Activation::gelu_tanh : Activation::silu;
  return args;
}

void Forward::linear(cudaStream_t stream, const Matrices& m, int index, const uint16_t* x,
                     LinearArgs args) {
  args = product(m, index, x, args);
  if (!args.tile_count && args.tokens <= skinny_gemm_max_tokens(m.format)) {
    return skinny_gemm(stream, m.format, sms_, {args});
  }
  const int tile = args.tile_count ? slot_tile_ : Linear::tile_tokens(args.tokens);
  (m.format == w_.format ? linear_ : router_).launch(stream, {args}, tile);
}

// The norm before an operator; it also adds what the block before left.
RmsNormArgs Forward::norm_args(const float* weight, const float* added_norm, const int* rows,
                               int count) {
  RmsNormArgs args = {};
  args.residual = residual_.data(), args.rows = rows;
  if (owed_) {
    args.experts = {expert_rows_.data(), slot_.data(), expert_weight_.data(), w_.shape.top_k};
  } else if (added_norm) {
    args.added = added_.data();
  }
  owed_ = false;
  args.added_norm = added_norm, args.norm = weight;
  args.out = x_.data(), args.hidden = w_.shape.hidden;
  args.count = count, args.padded = Linear::padded(count), args.eps = w_.shape.norm_eps;
  return args;
}

LinearArgs Forward::qkv_args(int layer) const {
  LinearArgs args;
  args.bias = w_.vector(VectorKind::qkv_bias, layer);
  args.rows = qkv_.data(), args.stride = w_.qkv_rows();
  return args;
}

LinearArgs Forward::out_args() const {
  LinearArgs args;
  args.epilogue = w_.shape.post_norms ? Epilogue::store : Epilogue::add;
  args.rows = w_.shape.post_norms ? added_.data() : residual_.data();
  args.stride = w_.shape.hidden;
  return args;
}

LinearArgs Forward::head_args() const {
  LinearArgs args;
  args.tokens = logit_rows(), args.padded = Linear::padded(logit_rows());
  args.softcap = w_.shape.logit_softcap;
  args.rows = logits_.data(), args.stride = w_.shape.vocab;
  return args;
}

void Forward::attend(cudaStream_t stream, int layer) {
  const ModelShape& s = w_.shape;
  const AttentionArgs args = {s.heads,
                              s.kv_heads,
                              s.head_dim,
                              s.query_scale,
                              s.attention_softcap,
                              s.window.empty() ? 0 : s.window[size_t(layer)],
                              qkv_.data(),
                              w_.vector(VectorKind::q_norm, layer),
                              w_.vector(VectorKind::k_norm, layer),
                              s.norm_eps,
                              w_.frequency_of(layer),
                              s.ropes[size_t(w_.rope_of(layer))].magnitude,
                              at_.data(),
                              q_.data(),
                              w_.kv_of(layer),
                              pages_.data(),
                              attended_.data(),
                              padded_};
  if (attention_.needs_rope()) {
    mark(stream, "rope_cache");
    attention_.rope_and_append(stream, args);
  }
  mark(stream, "attention");
  attention_.launch(stream, args);
}

void Forward::mlp(cudaStream_t stream, int layer) {
  const int index = w_.place_of(layer);
  mark(stream, "gate_up");
  LinearArgs gate;
  gate.epilogue = Epilogue::gate, gate.out = activated_.data();
  linear(stream, w_.gate_up, index, x_.data(), gate);
  mark(stream, "down");
  linear(stream, w_.down, index, activated_.data(), out_args());
}

ExpertRouting Forward::routing() const {
  const ModelShape& s = w_.shape;
  return {tokens_,           s.experts,
          s.top_k,           slot_tile_,
          s.normalize_top_k, router_logits_.data(),
          expert_.data(),    expert_weight_.data(),
          slot_.data(),      count_.data(),
          source_.data(),    tile_matrix_.data(),
          tile_count_.data()};
}

LinearArgs Forward::expert_args() const {
  LinearArgs args;
  args.tokens = slots_, args.padded = slots_, args.matrices = w_.shape.experts;
  args.tile_count = tile_count_.data(), args.tile_matrix = tile_matrix_.data();
  args.out = sorted_activated_.data();
  args.rows = expert_rows_.data(), args.stride = w_.shape.hidden;
  return args;
}

// What the experts give is summed by the norm that follows.
void Forward::experts(cudaStream_t stream, int layer) {
  const ModelShape& s = w_.shape;
  const int index = w_.place_of(layer);
  mark(stream, "router");
  LinearArgs router;
  router.rows = router_logits_.data(), router.stride = s.experts;
  linear(stream, w_.router, index, x_.data(), router);
  mark(stream, "route");
  route_tokens(stream, routing());
  gather_tokens(stream, routing(), x_.data(), padded_, sorted_.data(), slots_, s.hidden);
  mark(stream, "expert_gate_up");
  LinearArgs gate = expert_args();
  gate.epilogue = Epilogue::gate;
  linear(stream, w_.expert_gate_up, index * s.experts, sorted_.data(), gate);
  mark(stream, "expert_down");
  linear(stream, w_.expert_down, index * s.experts, sorted_activated_.data(), expert_args());
  owed_ = true;
}

// Up to four tokens an expert on average: of more than eight its weights are read again.
bool Forward::few_experts() const {
  const ModelShape& s = w_.shape;
  return s.hidden <= kFusedRoutingMaxHidden && tokens_ <= kSkinnyMaxTokens &&
         tokens_ * s.top_k <= std::min(kFusedRoutingMaxAssignments, 4 * s.experts) &&
         max_expert_slots(tokens_, s.top_k, s.experts, kSkinnyTile) <=
             kSkinnyMaxTiles * kSkinnyTile &&
         !s.post_norms;
}

void Forward::experts_of_few(cudaStream_t stream, int layer, const RmsNormArgs& norm) {
  const ModelShape& s = w_.shape;
  const int index = w_.place_of(layer);
  mark(stream, "route");
  route_tokens_fused(stream, {norm, w_.router.tiles, index, routing(), arrived_.data()});
  mark(stream, "expert_gate_up");
  SkinnyGemmArgs gate = {product(w_.expert_gate_up, index * s.experts, x_.data(), expert_args())};
  gate.epilogue = Epilogue::gate, gate.source = source_.data();
  gate.gathers = true, gate.x_padded = padded_;
  skinny_gemm(stream, w_.format, sms_, gate);
  mark(stream, "expert_down");
  SkinnyGemmArgs down = {
      product(w_.expert_down, index * s.experts, sorted_activated_.data(), expert_args())};
  down.source = source_.data();
  skinny_gemm(stream, w_.format, sms_, down);
  owed_ = true;
}

bool Forward::chains() const {
  return tokens_ <= Linear::kMaxChainedTokens && w_.shape.experts == 0 && !w_.shape.post_norms;
}

void Forward::layers_apart(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  for (int layer = 0; layer < s.layers; ++layer) {
    mark(stream, "attn_norm");
    rms_norm(stream,
             norm_args(w_.vector(VectorKind::attn_norm, layer),
                       layer > 0 ? w_.vector(VectorKind::post_mlp_norm, layer - 1) : nullptr,
                       nullptr, tokens_));
    mark(stream, "qkv");
    linear(stream, w_.qkv, layer, x_.data(), qkv_args(layer));
    attend(stream, layer);
    mark(stream, "out");
    linear(stream, w_.out, layer, attended_.data(), out_args());
    const RmsNormArgs norm =
        norm_args(w_.vector(VectorKind::mlp_norm, layer),
                  w_.vector(VectorKind::post_attn_norm, layer), nullptr, tokens_);
    if (s.is_moe(layer) && few_experts()) {
      experts_of_few(stream, layer, norm);
      continue;
    }
    mark(stream, "mlp_norm");
    rms_norm(stream, norm);
    s.is_moe(layer) ? experts(stream, layer) : mlp(stream, layer);
  }
}

// Who adds to the residual also leaves its product with the next norm's weight and its squares; the
// norm's scale is applied to the next product's result.
bool Forward::layers_chained(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  const auto normed_by = [&](LinearArgs args) {
    args.squares = squares_.data();
    args.square_tiles = (s.hidden + 127) / 128, args.square_columns = s.hidden;
    args.eps = s.norm_eps;
    return args;
  };
  const auto leaving = [&](LinearArgs args, const float* norm) {
    args.next_norm = norm, args.next_squares = squares_.data(), args.out = x_.data();
    return args;
  };
  mark(stream, "attn_norm");
  rms_norm(stream, norm_args(w_.vector(VectorKind::attn_norm, 0), nullptr, nullptr, tokens_));
  mark(stream, "qkv");
  linear(stream, w_.qkv, 0, x_.data(), qkv_args(0));
  const bool all = logit_rows() == tokens_;
  for (int layer = 0; layer < s.layers; ++layer) {
    attend(stream, layer);
    const bool last = layer + 1 == s.layers;
    LinearArgs gate;
    gate.epilogue = Epilogue::gate, gate.out = activated_.data();
    LinearArgs down = out_args();
    if (!last) down = leaving(down, w_.vector(VectorKind::attn_norm, layer + 1));
    if (last && all) down = leaving(down, w_.vector(VectorKind::final_norm, 0));
    std::vector<std::pair<const char*, LinearArgs>> chain = {
        {"out", product(w_.out, layer, attended_.data(),
                        leaving(out_args(), w_.vector(VectorKind::mlp_norm, layer)))},
        {"gate_up", product(w_.gate_up, layer, x_.data(), normed_by(gate))},
        {"down", product(w_.down, layer, activated_.data(), down)}};
    if (!last) {
      chain.emplace_back("qkv",
                         product(w_.qkv, layer + 1, x_.data(), normed_by(qkv_args(layer + 1))));
    } else if (all) {
      chain.emplace_back("lm_head", product(w_.head, 0, x_.data(), normed_by(head_args())));
    }
    std::vector<LinearArgs> ops;
    for (const auto& [name, args] : chain) {
      ops.push_back(args);
      if (!keep_times_) continue;  // timed, they are launched one by one
      mark(stream, name);
      linear_.launch(stream, ops, tile_);
      ops.clear();
    }
    if (!ops.empty()) linear_.launch(stream, ops, tile_);
  }
  return all;
}

void Forward::queue(cudaStream_t stream) {
  const ModelShape& s = w_.shape;
  used_events_ = 0;
  owed_ = false;  // a step without logits leaves its last layer's rows
  mark(stream, "embed");
  embed(stream, token_.data(), tokens_, w_.embed.data(), s.hidden, s.embed_scale, residual_.data());
  bool done = false;
  chains() ? void(done = layers_chained(stream)) : layers_apart(stream);
  const int rows = logit_rows();
  if (rows > 0 && !done) {
    mark(stream, "final_norm");
    rms_norm(stream,
             norm_args(w_.vector(VectorKind::final_norm, 0),
                       w_.vector(VectorKind::post_mlp_norm, s.layers - 1), rows_.data(), rows));
    mark(stream, "lm_head");
    linear(stream, w_.head, 0, x_.data(), head_args());
  }
  if (rows > 0) {
    mark(stream, "sample");
    argmax_rows(stream, logits_.data(), rows, s.vocab, best_.data(), chosen_.data());
  }
  mark(stream, "");
}

}  // namespace ridge::cuda
