#!/usr/bin/env python3
"""Makes tests/data/goldens: tiny random models of every family and what transformers says of them.

    python3 tools/goldens/make_goldens.py OUT [CASE...]   (PyTorch on a CPU, transformers, safetensors)

For each case a folder with config.json, model.safetensors (bf16, and every value in the float32 model
is one that bf16 holds), expected.json (prompt, 64 greedy tokens, positions) and logits.f32 (float32,
one row of the vocabulary for each position, of prompt and tokens together). Prompts are chosen so
that the best logit leads the second by more than MARGIN at every step: equal tokens then mean equal
arithmetic, not luck. gpt-oss is stored as released: its experts are MXFP4 blocks and scales.
"""
import json
import multiprocessing
import os
import shutil
import sys
import traceback

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT, STEPS, MARGIN = 24, 64, 2e-3
POSITIONS = [0, 1, 7, 13, 23, 40, 63, 86]  # of 88; the windows are 8 to 12
CANDIDATES = 64

BASE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=64, vocab_size=256, max_position_embeddings=256, head_dim=16,
            rms_norm_eps=1e-5, tie_word_embeddings=True, torch_dtype="float32", bos_token_id=1,
            eos_token_id=2, pad_token_id=0)


def llama(**more):
    return dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"], hidden_act="silu",
                rope_theta=10000.0, tie_word_embeddings=False, **more)


def deepseek(kind, architecture, **more):
    return dict({key: value for key, value in BASE.items() if key != "head_dim"}, model_type=kind,
                architectures=[architecture], hidden_act="silu", rope_theta=10000.0,
                num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16,
                qk_rope_head_dim=8, v_head_dim=24, n_routed_experts=8, num_experts_per_tok=2,
                n_shared_experts=2, moe_intermediate_size=32, first_k_dense_replace=1,
                moe_layer_freq=1, tie_word_embeddings=False, attention_bias=False, **more)


DEEPSEEK_YARN = dict(type="yarn", factor=4.0, beta_fast=32, beta_slow=1, mscale=0.8,
                     mscale_all_dim=0.6, original_max_position_embeddings=64)
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, rms_norm_eps=1e-6)

# Each: config, and the case whose weights it shares.
CASES = {
    "llama": (llama(), None),
    "llama-linear": (llama(rope_scaling=dict(type="linear", factor=2.5)), "llama"),
    "llama-llama3": (llama(rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)), "llama"),
    "llama-yarn": (llama(rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64)), "llama"),
    "mistral": (dict(BASE, model_type="mistral", architectures=["MistralForCausalLM"],
                     sliding_window=12, rope_theta=10000.0), None),
    "qwen2": (dict(BASE, model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                   rope_theta=1000000.0, use_sliding_window=False, sliding_window=12,
                   max_window_layers=1), None),
    "qwen3": (dict(BASE, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=32,
                   rope_theta=1000000.0, attention_bias=False), None),
    "gemma2": (dict(BASE, **GEMMA, model_type="gemma2", architectures=["Gemma2ForCausalLM"],
                    sliding_window=12, attn_logit_softcapping=2.0, final_logit_softcapping=1.0,
                    rope_theta=10000.0), None),
    "gemma3": (dict(BASE, **GEMMA, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"],
                    num_hidden_layers=4, sliding_window=8, sliding_window_pattern=3,
                    layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                 "sliding_attention"],
                    rope_theta=1000000.0, rope_local_base_freq=10000.0,
                    rope_scaling=dict(rope_type="linear", factor=8.0)), None),
    "mixtral": (dict(BASE, model_type="mixtral", architectures=["MixtralForCausalLM"],
                     intermediate_size=32, num_local_experts=4, num_experts_per_tok=2,
                     sliding_window=None, rope_theta=1000000.0), None),
    "qwen3-moe": (dict(BASE, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"],
                       num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                       mlp_only_layers=[0], decoder_sparse_step=1, norm_topk_prob=True,
                       rope_theta=10000.0), None),
    # All contexts are below the original length: short factors.
    "phi3": (dict(BASE, model_type="phi3", architectures=["Phi3ForCausalLM"], sliding_window=12,
                  max_position_embeddings=512, original_max_position_embeddings=256,
                  rope_theta=10000.0, tie_word_embeddings=False,
                  rope_scaling=dict(type="longrope", short_factor=[1.0 + 0.1 * i for i in range(8)],
                                    long_factor=[1.0 + 1.5 * i for i in range(8)])), None),
    # All contexts are above the original length: long factors, on three quarters of a head.
    "phi3-long": (dict(BASE, model_type="phi3", architectures=["Phi3ForCausalLM"],
                       sliding_window=None, original_max_position_embeddings=16,
                       partial_rotary_factor=0.75, rope_theta=10000.0,
                       rope_scaling=dict(type="longrope", short_factor=[1.0] * 6,
                                         long_factor=[1.0 + 0.7 * i for i in range(6)])), None),
    "glm4": (dict(BASE, model_type="glm4", architectures=["Glm4ForCausalLM"], attention_bias=True,
                  partial_rotary_factor=0.5, rope_theta=10000.0, rms_norm_eps=1.5625e-07,
                  tie_word_embeddings=False), None),
    "gpt-oss": (dict(BASE, model_type="gpt_oss", architectures=["GptOssForCausalLM"],
                     intermediate_size=96, num_local_experts=4, num_experts_per_tok=2,
                     attention_bias=True, sliding_window=12, swiglu_limit=7.0, rope_theta=150000.0,
                     layer_types=["sliding_attention", "full_attention"],
                     rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                       truncate=False, original_max_position_embeddings=64),
                     tie_word_embeddings=False), None),
    # As DeepSeek-V2-Lite: no q_lora, greedy choice.
    "deepseek-v2": (deepseek("deepseek_v2", "DeepseekV2ForCausalLM", q_lora_rank=None,
                             topk_method="greedy", n_group=None, topk_group=None,
                             norm_topk_prob=False, routed_scaling_factor=1.0), None),
    # As DeepSeek-V2: yarn with both mscales, groups of experts.
    "deepseek-v2-yarn": (deepseek("deepseek_v2", "DeepseekV2ForCausalLM", q_lora_rank=None,
                                  topk_method="group_limited_greedy", n_group=2, topk_group=1,
                                  norm_topk_prob=False, routed_scaling_factor=3.0,
                                  rope_scaling=DEEPSEEK_YARN), "deepseek-v2"),
    "deepseek-v3": (deepseek("deepseek_v3", "DeepseekV3ForCausalLM", q_lora_rank=48,
                             topk_method="noaux_tc", scoring_func="sigmoid", n_group=4,
                             topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
                             rope_scaling=DEEPSEEK_YARN), None),
    # Chunks of 32 of 88 tokens; temperature from position 16 on; the last layer has no RoPE.
    "llama4": (dict(BASE, model_type="llama4_text", architectures=["Llama4ForCausalLM"],
                    num_hidden_layers=4, intermediate_size=32, intermediate_size_mlp=64,
                    num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2,
                    use_qk_norm=True, attention_chunk_size=32, no_rope_layers=[1, 1, 1, 0],
                    attn_temperature_tuning=True, floor_scale=16, attn_scale=0.1,
                    rope_theta=500000.0, tie_word_embeddings=False, hidden_act="silu",
                    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                      high_freq_factor=4.0,
                                      original_max_position_embeddings=32)), None),
}
# Their config.json is the one transformers writes (the newest spelling of ropes), not ours.
AS_WRITTEN = ["llama-yarn", "gemma3", "mixtral", "phi3-long"]

FP4_LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def mxfp4(values):
    """Blocks of 32 inputs of [expert, input, output]: nibbles, scales, and the values they hold."""
    experts, inputs, outputs = values.shape
    groups = values.transpose(1, 2).reshape(experts, outputs, inputs // 32, 32)
    exponent = torch.ceil(torch.log2(groups.abs().amax(-1) / 6))
    scaled = groups / torch.exp2(exponent)[..., None]
    level = (scaled.abs()[..., None] - FP4_LEVELS).abs().argmin(-1)
    code = level + 8 * (scaled < 0)
    held = FP4_LEVELS[level] * torch.where(scaled < 0, -1.0, 1.0) * torch.exp2(exponent)[..., None]
    blocks = (code[..., 0::2] + 16 * code[..., 1::2]).to(torch.uint8)
    scales = (exponent + 127).to(torch.uint8)
    return blocks, scales, held.reshape(experts, outputs, inputs).transpose(1, 2)


def save_gpt_oss(model, folder):
    """As released: bf16, and MXFP4 experts."""
    tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
            tensors[name + "_blocks"], tensors[name + "_scales"], _ = mxfp4(value)
        else:
            tensors[name] = value.to(torch.bfloat16)
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=[
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
    with open(path, "w") as file:
        json.dump(config, file, indent=1)


def draw_weights(model, seed):
    """Norms near their neutral value, matrices that keep activations near 1, a head that spreads."""
    generator = torch.Generator().manual_seed(seed)
    gemma = "gemma" in model.config.model_type
    done = set()
    for name, parameter in model.named_parameters():
        if parameter.data_ptr() in done:
            continue
        done.add(parameter.data_ptr())
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            values = noise * 0.2 + (0.0 if gemma else 1.0)
        elif name.endswith("bias"):
            values = noise * 0.3
        elif "embed" in name or "lm_head" in name:
            # Gemma's are multiplied by sqrt(64): large ones would only ever repeat their token.
            values = noise * (0.08 if gemma else 0.3)
        elif "experts." in name and model.config.model_type == "gpt_oss":
            # Stored as [expert, input, output]. Gates large enough that some reach the limit of 7.
            size = 4.0 if "gate_up" in name else 1.5
            values = mxfp4(noise * (size / parameter.shape[1] ** 0.5))[2]
        else:
            values = noise * (1.5 / parameter.shape[-1] ** 0.5)
        parameter.data.copy_(values.to(torch.bfloat16).float())
    for name, buffer in model.named_buffers():  # DeepSeek-V3: added to scores for the choice alone
        if name.endswith("e_score_correction_bias"):
            noise = torch.randn(buffer.shape, generator=generator)
            buffer.data.copy_((noise * 0.1).to(torch.bfloat16).float())


@torch.no_grad()
def generate(model, prompts):
    """Greedy tokens and, for each, the smallest lead of the best over the second logit."""
    ids, lead = prompts.clone(), torch.full((prompts.shape[0],), 1e9)
    for _ in range(STEPS):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1].float()
        top = logits.topk(2, dim=-1)
        lead = torch.minimum(lead, top.values[:, 0] - top.values[:, 1])
        ids = torch.cat([ids, top.indices[:, :1]], dim=1)
    return ids, lead


def make(arguments):
    name, root = arguments
    try:
        torch.set_num_threads(1)
        config, shared = CASES[name]
        folder = os.path.join(root, name)
        os.makedirs(folder)
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file, indent=1)
        loaded = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(loaded, attn_implementation="eager").float().eval()
        draw_weights(model, sum(map(ord, shared or name)))
        random = torch.Generator().manual_seed(7)
        prompts = torch.randint(3, config["vocab_size"], (CANDIDATES, PROMPT), generator=random)
        ids, leads = generate(model, prompts)
        distinct = torch.tensor([len(set(row[PROMPT:].tolist())) for row in ids])
        chosen = int(torch.where(leads > MARGIN, distinct, -1).argmax())
        ids, lead = generate(model, prompts[chosen:chosen + 1])  # alone: what is compared
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0].float()
        logits[POSITIONS].contiguous().numpy().astype("<f4").tofile(os.path.join(folder, "logits.f32"))
        tokens = ids[0].tolist()
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump(dict(prompt=tokens[:PROMPT], tokens=tokens[PROMPT:], positions=POSITIONS,
                           margin=round(float(lead[0]), 6),
                           transformers=transformers.__version__), file)
        if config["model_type"] == "gpt_oss":
            save_gpt_oss(model, folder)
        else:
            ours = os.path.join(folder, "ours.json")
            shutil.move(os.path.join(folder, "config.json"), ours)
            model.to(torch.bfloat16).save_pretrained(folder)
            if name not in AS_WRITTEN:
                shutil.move(ours, os.path.join(folder, "config.json"))
        for extra in os.listdir(folder):
            if extra not in ("config.json", "model.safetensors", "expected.json", "logits.f32"):
                os.remove(os.path.join(folder, extra))
        spread = float(logits.std())
        return f"{name}: margin {float(lead[0]):.4f}, {int(distinct[chosen])} distinct, " \
               f"logit deviation {spread:.2f}, {int((leads > MARGIN).sum())} of {CANDIDATES} prompts fit"
    except Exception:  # one family must not cost the others their run
        return f"{name}: FAILED\n{traceback.format_exc()}"


def main():
    root = sys.argv[1]
    cases = sys.argv[2:] or list(CASES)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    with multiprocessing.get_context("spawn").Pool(min(len(cases), os.cpu_count())) as pool:
        for line in pool.imap(make, [(name, root) for name in cases]):
            print(line, flush=True)
    for name, (_, shared) in CASES.items():  # the same tensors once
        mine = os.path.join(root, name, "model.safetensors")
        if shared and os.path.exists(mine):
            os.remove(mine)
            os.symlink(f"../{shared}/model.safetensors", mine)


if __name__ == "__main__":
    main()
