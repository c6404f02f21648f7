#!/usr/bin/env python3
"""Train the models that ship with Ridge: a byte-level BPE of 4096 tokens, ridge-7m, and ridge-1m with the same tokens.

    python3 tools/train/train.py --text FILE.xz... --held-out tests/data/held-out.txt --out DIR [--seconds-7m S] [--seconds-1m S]

Needs one CUDA GPU, PyTorch, tokenizers, safetensors and transformers (the last to check the files against
LlamaForCausalLM and to sample). A FILE named twice counts twice. The budget is wall time: the learning rate is a
function of the share of it that is spent.
"""
import argparse, json, lzma, math, os, shutil, time

import torch
import torch.nn as nn
import torch.nn.functional as F

EOT, EOT_ID, VOCAB, CONTEXT = "<|endoftext|>", 0, 4096, 1024

# ffn and hidden of ridge-7m are multiples of 256 so that Q4_K blocks, which run along the input, fit every matrix.
MODELS = {
    "ridge-7m": dict(hidden_size=256, num_hidden_layers=7, num_attention_heads=8, num_key_value_heads=4, intermediate_size=768),
    "ridge-1m": dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=256),
}
HEAD, THETA, EPS = 32, 10000.0, 1e-5

PROMPTS = ["The", "To install a package,", "The file system", "In the beginning", "She was", "When you open a document,",
           "A good programmer", "The history of", "It is a truth universally acknowledged,", "If the server does not respond,"]

log_file = None


def log(*words):
    line = " ".join(str(w) for w in words)
    print(line, flush=True)
    log_file.write(line + "\n")
    log_file.flush()


# ---------------------------------------------------------------- the model: names of parameters as in Hugging Face's Llama

class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = nn.Linear(d, self.heads * HEAD, bias=False)
        self.k_proj = nn.Linear(d, self.kv * HEAD, bias=False)
        self.v_proj = nn.Linear(d, self.kv * HEAD, bias=False)
        self.o_proj = nn.Linear(self.heads * HEAD, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, HEAD).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv, HEAD).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv, HEAD).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.kv, dim=1)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.heads * HEAD))


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(d, f, bias=False)
        self.up_proj = nn.Linear(d, f, bias=False)
        self.down_proj = nn.Linear(f, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Body(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c["num_hidden_layers"]) if deep else 0.02)
        angle = torch.outer(torch.arange(CONTEXT).float(), THETA ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos[:t], self.sin[:t])
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def loss(self, ids, reduction="mean"):
        """ids [b, t + 1]: cross entropy of each token given those before it, in nats."""
        logits = self(ids[:, :-1]).float()
        return F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1), reduction=reduction)


# ---------------------------------------------------------------- text

def train_tokenizer(documents, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # GPT-2's pattern
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[EOT], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(documents, trainer)
    tok.post_processor = processors.TemplateProcessing(single=f"{EOT} $A", pair=f"{EOT} $A {EOT} $B", special_tokens=[(EOT, EOT_ID)])
    assert tok.get_vocab_size() == VOCAB and tok.token_to_id(EOT) == EOT_ID
    tok.save(path, pretty=False)
    return tok


def encode(tok, documents):
    """All documents, each after an <|endoftext|>, as one tensor."""
    parts = []
    for i in range(0, len(documents), 4096):
        for e in tok.encode_batch(documents[i:i + 4096]):
            parts.append(torch.tensor(e.ids, dtype=torch.int16))  # the post-processor put the <|endoftext|> in front
    return torch.cat(parts).int().cuda()


# ---------------------------------------------------------------- training

def optimizer(model, lr):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=norms, weight_decay=0.0)],
                             lr=lr, betas=(0.9, 0.95), fused=True)


def rate(share, step, peak):
    """Warm up over 200 steps, hold for the first fifth of the time, then fall linearly to zero."""
    return peak * min(1.0, (step + 1) / 200) * min(1.0, (1.0 - share) / 0.8 + 1e-3)


def train(name, tokens, held, seconds, batch, peak):
    torch.manual_seed(5)
    model = Llama(MODELS[name]).cuda()
    count = sum(p.numel() for p in model.parameters())
    log(f"{name}: {count} parameters, batch {batch} x {CONTEXT} tokens, peak rate {peak}, {seconds} s")
    opt = optimizer(model, peak)
    loss_of = torch.compile(model.loss)
    window = torch.arange(CONTEXT + 1, device="cuda")
    began, step, share, start = time.time(), 0, 0.0, None
    running = torch.zeros((), device="cuda")
    while share < 1.0:
        if step == 20:  # compiled: the budget starts here
            torch.cuda.synchronize()
            start = time.time()
            log(f"{name}: compiled in {start - began:.0f} s")
        at = torch.randint(0, len(tokens) - CONTEXT - 1, (batch, 1), device="cuda")
        ids = tokens[at + window].long()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in opt.param_groups:
            group["lr"] = rate(share, step, peak)
        opt.step()
        opt.zero_grad(set_to_none=True)
        running += loss.detach()
        step += 1
        if step % 250 == 0:
            mean = running.item() / 250
            running.zero_()
            done = time.time() - start
            line = f"{name}: step {step} time {done:.0f} s, tokens {step * batch * CONTEXT / 1e6:.0f} M, loss {mean:.4f}"
            if step % 2000 == 0:
                line += f", held out {evaluate(model, held)[0]:.4f}"
            log(line, f", {(step - 20) * batch * CONTEXT / done / 1e6:.2f} M tokens/s")
        if start:
            share = (time.time() - start) / seconds
    torch.cuda.synchronize()
    seen = step * batch * CONTEXT
    log(f"{name}: {step} steps, {seen} tokens, {seen / len(tokens):.1f} epochs, {time.time() - start:.0f} s after compiling")
    return model


@torch.no_grad()
def evaluate(model, ids):
    """Mean loss per token over consecutive windows of CONTEXT tokens, and the sum; the last, short window included."""
    total, count = 0.0, 0
    for i in range(0, len(ids) - 1, CONTEXT):
        part = ids[i:i + CONTEXT + 1][None].long()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            total += model.loss(part, reduction="sum").item()
        count += part.shape[1] - 1
    return total / count, total


def save(model, name, folder):
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    state = {k: v.detach().to(torch.bfloat16).contiguous().cpu() for k, v in model.state_dict().items()}
    save_file(state, f"{folder}/model.safetensors", metadata={"format": "pt"})
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, **MODELS[name], head_dim=HEAD,
                  hidden_act="silu", max_position_embeddings=CONTEXT, rms_norm_eps=EPS, rope_theta=THETA, rope_scaling=None,
                  tie_word_embeddings=True, attention_bias=False, mlp_bias=False, attention_dropout=0.0, initializer_range=0.02,
                  bos_token_id=EOT_ID, eos_token_id=EOT_ID, pad_token_id=None, use_cache=True, torch_dtype="bfloat16")
    json.dump(config, open(f"{folder}/config.json", "w"), indent=2)
    json.dump(dict(bos_token_id=EOT_ID, eos_token_id=EOT_ID, do_sample=True, temperature=0.7, top_p=0.95),
              open(f"{folder}/generation_config.json", "w"), indent=2)
    model.load_state_dict({k: v.float() for k, v in state.items()})  # from here on the model is what was saved


def check_and_sample(model, tok, folder, held):
    from transformers import LlamaForCausalLM
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).cuda().eval()
    ids = held[None, :256].long()
    with torch.no_grad():
        difference = (theirs(ids).logits - model(ids)).abs().max().item()
    log(f"largest difference of logits to LlamaForCausalLM in float32: {difference:.2e}")
    torch.manual_seed(7)
    for prompt in PROMPTS:
        ids = torch.tensor([[EOT_ID] + tok.encode(prompt, add_special_tokens=False).ids]).cuda()
        out = theirs.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=0.7, top_k=0, top_p=1.0,
                              max_new_tokens=110, pad_token_id=EOT_ID)
        log("---", tok.decode(out[0].tolist(), skip_special_tokens=True))


def main():
    global log_file
    arg = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arg.add_argument("--text", required=True, nargs="+", help="xz files of `collect`; one named twice is seen twice as often")
    arg.add_argument("--held-out", required=True)
    arg.add_argument("--out", required=True)
    arg.add_argument("--seconds-7m", type=float, default=350)
    arg.add_argument("--seconds-1m", type=float, default=70)
    arg.add_argument("--batch", type=int, default=64, help="windows of 1024 tokens for each step")
    arg.add_argument("--peak-7m", type=float, default=3e-3)
    arg.add_argument("--peak-1m", type=float, default=6e-3)
    arg = arg.parse_args()
    os.makedirs(arg.out, exist_ok=True)
    log_file = open(f"{arg.out}/train.log", "w")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    began = time.time()
    log(torch.__version__, torch.cuda.get_device_name())

    documents = []
    for path in arg.text:
        documents += [d for d in lzma.open(path, "rt", encoding="utf-8").read().split("\n\f\n") if d]
    log(f"{len(documents)} documents, {sum(map(len, documents)) / 1e6:.1f} M characters; {time.time() - began:.0f} s")
    seven, one = f"{arg.out}/ridge-7m", f"{arg.out}/ridge-1m"
    os.makedirs(seven, exist_ok=True)
    tok = train_tokenizer(documents[::2], f"{seven}/tokenizer.json")
    log(f"tokeniser trained; {time.time() - began:.0f} s")
    tokens = encode(tok, documents)
    text = open(arg.held_out, encoding="utf-8").read()
    held = torch.tensor(tok.encode(text).ids, dtype=torch.int32, device="cuda")
    log(f"{len(tokens)} tokens, {sum(map(len, documents)) / len(tokens):.2f} characters each; held out: {len(held) - 1} tokens, "
        f"{len(text.encode())} bytes; {time.time() - began:.0f} s")

    os.makedirs(one, exist_ok=True)
    shutil.copy(f"{seven}/tokenizer.json", one)
    trained = []
    for name, folder, seconds, peak in (("ridge-7m", seven, arg.seconds_7m, arg.peak_7m), ("ridge-1m", one, arg.seconds_1m, arg.peak_1m)):
        model = train(name, tokens, held, seconds, arg.batch, peak)
        save(model, name, folder)
        mean, total = evaluate(model, held)
        log(f"{name}: held out after rounding to bfloat16: loss {mean:.4f}, perplexity {math.exp(mean):.2f}, "
            f"{total / math.log(2) / len(text.encode()):.4f} bits per byte; {time.time() - began:.0f} s")
        trained.append((model, folder))
    for model, folder in trained:
        check_and_sample(model, tok, folder, held)
    log(f"done in {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
