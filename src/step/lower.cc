#include "step/lower.h"

#include <algorithm>
#include <cmath>

#include "cost/collective.h"
#include "cost/elementwise.h"
#include "cost/matmul.h"

namespace ridge {
namespace {

// Up to this many fresh tokens a sequence counts as decoding: a verify step of a speculation.
constexpr double kDecodeTokens = 16;

// What a led rank hears about a step of a few sequences, and what it answers about a row of logits
// (engine/ranks/leader_runner.cc): sums and the largest logit.
constexpr double kCallBytes = 2056, kTopLogitsBytes = 64;

void add(Work& sum, const Work& w) {
  sum.flops += w.flops;
  sum.padded_flops += w.padded_flops;
  sum.vector_flops += w.vector_flops;
  sum.kv_bytes += w.kv_bytes;
  sum.act_bytes += w.act_bytes;
  sum.chip_bytes += w.chip_bytes;
  sum.launches = std::max(sum.launches, w.launches);  // one kernel serves all sequences
}

class Writer {
 public:
  Writer(const Rank& rank, std::span<const Sequences> batch, std::vector<Op>& ops)
      : rank_(rank), plan_(rank.plan), batch_(batch), ops_(ops) {
    for (const Sequences& s : batch) {
      tokens_ += s.count * s.fresh;
      logits_ += s.count * s.logits;
    }
  }

  void write() {
    ops_.clear();
    if (is_led()) push("step_broadcast", OpKind::collective, call_work());
    push("embed", OpKind::embed,
         embed_work(tokens_, rank_.hidden, rank_.embed_bits / 8, rank_.act_bytes));
    if (plan_.tp > 1 && plan_.cut_embedding) reduce("embed_all_reduce", tokens_);
    for (const RankGroup& g : rank_.groups) {
      count_ = g.count;
      if (g.kind != MixerKind::none) mixer(g);
      mlp(g);
    }
    count_ = 1;
    if (plan_.pp > 1) {
      const double message = tokens_ * rank_.hidden * rank_.sum_bytes;
      push("send", OpKind::collective,
           collective_work(Collective::send, message, 2, plan_.tp * plan_.dp), DType::bf16,
           plan_.pp - 1);
    }
    if (logits_ <= 0) return;  // a chunk before the prompt's last ends here
    norm("final_norm", logits_);
    project(rank_.head, logits_);
    if (is_led()) {
      push("sample_broadcast", OpKind::collective, call_work());
      // The parts' top logits come to rank 0 one after the other, but for its own.
      const double parts = plan_.pp > 1 ? plan_.tp : plan_.tp - 1;
      push("top_logits", OpKind::collective,
           collective_work(Collective::send, logits_ * kTopLogitsBytes, 2), DType::bf16, parts);
    } else if (plan_.tp > 1) {
      push("logits_all_gather", OpKind::collective,
           collective_work(Collective::all_gather, logits_ * rank_.vocab * 2, plan_.tp));
    }
    push("sample", OpKind::sample, sample_work(logits_, rank_.vocab));
  }

 private:
  Op& push(const char* name, OpKind kind, const Work& work, DType math = DType::bf16) {
    return push(name, kind, work, math, count_);
  }
  Op& push(const char* name, OpKind kind, const Work& work, DType math, double count) {
    ops_.push_back({name, kind, math, work, count, OpShape(), tokens_});
    return ops_.back();
  }

  // With fusion the norm adds the residual; without fusion that is a kernel of its own.
  void norm(const char* name, double tokens) {
    if (!plan_.fusion) {
      push("residual", OpKind::elementwise, residual_work(tokens, rank_.hidden, rank_.act_bytes));
    }
    push(name, OpKind::elementwise, norm_work(tokens, rank_.hidden, rank_.act_bytes, plan_.fusion));
  }

  void reduce(const char* name, double tokens) {
    push(
        name, OpKind::collective,
        collective_work(Collective::all_reduce, tokens * rank_.hidden * rank_.sum_bytes, plan_.tp));
  }

  bool is_led() const { return plan_.led && plan_.tp * plan_.pp > 1; }
  Work call_work() const {
    return collective_work(Collective::broadcast, kCallBytes, plan_.tp * plan_.pp);
  }

  // A share of the weights may live in host memory.
  void offload(Work& work) const { work.host_bytes = plan_.offload * work.weight_bytes; }

  double input_bytes(const Projection& p) const {
    return dtype_bits(p.math) <= 8 ? dtype_bits(p.math) / 8 : rank_.act_bytes;
  }

  MatmulShape shape_of(const Projection& p, double rows) const {
    MatmulShape s;
    s.m = rows;
    s.k = p.in;
    s.n = p.out;
    s.weight_bits = p.weight_bits;
    s.in_bytes = input_bytes(p);
    s.out_bytes = rank_.act_bytes;
    s.outputs_kept = p.inner > 0 && plan_.fusion ? p.inner / p.out : 1;
    s.math = p.math;
    s.format = p.format;
    return s;
  }

  void before(const Projection& p, double rows) {
    if (!plan_.fusion && dtype_bits(p.math) <= 8) {
      push("quantize", OpKind::elementwise, quantize_work(rows, p.in, rank_.act_bytes));
    }
  }
  void after(const Projection& p, double rows) {
    if (p.inner > 0 && !plan_.fusion) {
      push("activation", OpKind::elementwise,
           activation_work(rows, p.inner, rank_.act_bytes, p.gated));
    }
  }

  void project(const Projection& p, double rows) {
    if (!p.present()) return;
    before(p, rows);
    MatmulShape s = shape_of(p, rows);
    // Not fused, every matrix is a kernel of its own and reads the input again.
    const double kernels = plan_.fusion ? 1 : p.matrices;
    s.n = p.out / kernels;
    Work work = matmul_work(s);
    offload(work);
    push(p.name, OpKind::matmul, work, p.math, count_ * kernels).shape.emplace<MatmulShape>(s);
    after(p, rows);
  }

  // Tokens that the experts of this rank choose from: those of all replicas where experts are
  // shared.
  double expert_tokens() const { return tokens_ * (plan_.ep > 1 ? plan_.dp : 1); }

  void project_experts(const RankGroup& g, const Projection& p, double rows, double experts,
                       double block_share) {
    before(p, rows);
    const MatmulShape s = shape_of(p, rows);
    Work work = grouped_matmul_work(s, experts);
    offload(work);
    Op& op = push(p.name, OpKind::expert_matmul, work, p.math);
    op.shape = ExpertBlock{expert_tokens(), rank_.hidden,     g.expert_in.inner, g.routing.experts,
                           g.routing.top_k, double(plan_.ep), g.expert_in.gated, g.routing.skew > 0,
                           p.math,          s.weight_bits,    s.in_bytes};
    op.block_share = block_share;
    after(p, rows);
  }

  void mixer(const RankGroup& g) {
    norm("attn_norm", tokens_);
    project(g.mla_down, tokens_);
    project(g.mla_up_q, tokens_);
    project(g.mixer_in, tokens_);
    project(g.index_in, tokens_);
    if (g.kind == MixerKind::attention || g.kind == MixerKind::mla) {
      rope_and_cache(g);
      attend(g);
    } else {
      scan(g);
    }
    if (g.output_gate && !plan_.fusion) {
      push("output_gate", OpKind::elementwise,
           activation_work(tokens_, g.mixer_out.in, rank_.act_bytes, true));
    }
    project(g.mixer_out, tokens_);
    if (plan_.tp > 1) reduce("attn_all_reduce", tokens_);
  }

  void rope_and_cache(const RankGroup& g) {
    const double bytes = rank_.act_bytes;
    const double stored = g.cache_per_token > 0 ? g.kv_columns : 0;  // none when KV is shared
    if (plan_.fusion) {
      push("rope_cache", OpKind::elementwise,
           rope_cache_work(tokens_, g.q_columns, stored, bytes, rank_.kv_bytes));
    } else {
      push("rope", OpKind::elementwise, rope_work(tokens_, g.q_columns + g.kv_columns / 2, bytes));
      if (stored > 0) {
        push("cache_write", OpKind::elementwise,
             cache_write_work(tokens_, stored, bytes, rank_.kv_bytes));
      }
    }
  }

  // Means over the sequences that one kernel serves.
  static void add_span(AttentionSpan& span, const Sequences& s) {
    const double all = span.count + s.count;
    span.fresh = (span.fresh * span.count + s.fresh * s.count) / all;
    span.past = (span.past * span.count + s.past * s.count) / all;
    span.count = all;
  }

  void attend(const RankGroup& g) {
    Work prefill{.launches = 0}, decode{.launches = 0}, index{.launches = 0};
    AttentionSpan prefill_span{0, 0, 0}, decode_span{0, 0, 0};
    double expanded = 0;  // tokens whose compressed KV is expanded
    const bool mla = g.kind == MixerKind::mla;
    const bool sparse = g.attention.index_topk > 0;
    for (const Sequences& s : batch_) {
      const AttentionSpan span{s.count, s.fresh, s.past};
      const bool decoding = s.fresh <= kDecodeTokens && s.past > 0;
      Work& sum = decoding ? decode : prefill;
      add_span(decoding ? decode_span : prefill_span, s);
      // Sparse picks differ per query, so sparse prefill runs on the compressed cache too.
      if (mla && (decoding || sparse)) {
        add(sum, mla_absorbed_work(g.attention, span));
      } else if (plan_.flash) {
        add(sum, flash_attention_work(g.attention, span));
      } else {
        add(sum, naive_attention_work(g.attention, span));
      }
      if (mla && !decoding && !sparse) expanded += s.count * (s.fresh + s.past);
      if (sparse) add(index, indexer_work(g.attention, span));
    }
    // Absorbed, the up-projection runs on queries and outputs; expanded, on every key.
    if (mla) project(g.mla_up_kv, std::max(expanded, tokens_));
    if (index.launches > 0) push("indexer", OpKind::attention_decode, index, DType::fp8);
    if (prefill.launches > 0) {
      push("attention", OpKind::attention_prefill, prefill).shape =
          BatchedAttention{g.attention, prefill_span};
    }
    if (decode.launches > 0) {
      push("attention", OpKind::attention_decode, decode).shape =
          BatchedAttention{g.attention, decode_span};
    }
  }

  void scan(const RankGroup& g) {
    Work sum{.launches = 0};
    for (const Sequences& s : batch_) add(sum, scan_work(g.scan, s.count, s.fresh));
    push("scan", OpKind::scan, sum);
  }

  void mlp(const RankGroup& g) {
    const bool dense = g.ffn_in.present(), moe = g.router.present();
    if (!dense && !moe) return;
    norm("mlp_norm", tokens_);
    project(g.ffn_in, tokens_);
    project(g.ffn_out, tokens_);
    if (moe) experts(g);
    // Expert outputs that came back by all-to-all are whole; partial sums are not.
    const bool partial = dense || g.shared_in.present() || !spread();
    if (plan_.tp > 1 && partial) reduce("mlp_all_reduce", tokens_);
  }

  // Experts live on other replicas' ranks, so tokens travel.
  bool spread() const { return plan_.ep > 1 && plan_.dp > 1; }

  void experts(const RankGroup& g) {
    project(g.router, tokens_);
    push("route", OpKind::elementwise,
         elementwise_work(tokens_ * g.routing.experts, tokens_ * g.routing.top_k, 4,
                          4 * g.routing.experts / g.routing.top_k))
        .block_share = 0;  // a fitted block's time counts with its GEMMs
    project(g.shared_in, tokens_);
    project(g.shared_out, tokens_);

    const double all = expert_tokens();
    const double here = std::ceil(g.routing.experts / plan_.ep);
    const double load = busiest_rank(g.routing, all, plan_.ep);
    const double pairs = all * g.routing.top_k / plan_.ep * load;
    const double active =
        std::min({here, pairs, distinct_experts(g.routing, all) / plan_.ep * load});
    if (spread()) exchange("dispatch", g, input_bytes(g.expert_in));
    const double in_share = g.expert_in.gated ? 2.0 / 3 : 0.5;  // of the block's FLOPs
    project_experts(g, g.expert_in, pairs, active, in_share);
    project_experts(g, g.expert_out, pairs, active, 1 - in_share);
    if (spread()) exchange("combine", g, rank_.act_bytes);
    if (!plan_.fusion) {
      push("combine_sum", OpKind::elementwise,
           elementwise_work(pairs * rank_.hidden, tokens_ * rank_.hidden, rank_.act_bytes,
                            2 * g.routing.top_k));
    }
  }

  // A token goes once to every rank that holds one of its experts.
  void exchange(const char* name, const RankGroup& g, double bytes) {
    const double ep = plan_.ep;
    const double ranks = ep * (1 - std::pow(1 - 1 / ep, g.routing.top_k));
    const double message = tokens_ / plan_.tp * ranks * rank_.hidden * bytes;
    push(name, OpKind::collective, collective_work(Collective::all_to_all, message, plan_.ep));
  }

  const Rank& rank_;
  const Plan& plan_;
  std::span<const Sequences> batch_;
  std::vector<Op>& ops_;
  double tokens_ = 0, logits_ = 0;
  double count_ = 1;
};

}  // namespace

void lower(const Rank& rank, std::span<const Sequences> batch, std::vector<Op>& ops) {
  Writer(rank, batch, ops).write();
}

}  // namespace ridge
