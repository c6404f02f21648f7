// The cache of latent attention (DeepSeek's MLA) on the device: pages of 16 rows in bf16. A row is
// a token's normed latent, then the rotated part of its key. Narrower latents end in zeros, which
// change no score and no sum. C++17 without CUDA.
#pragma once

namespace ridge::cuda {

constexpr int kLatentRank = 512, kLatentRope = 64;  // of DeepSeek V2, V2-Lite, V3 and R1
constexpr int kLatentRow = kLatentRank + kLatentRope;
constexpr int kLatentPageBytes = 16 * kLatentRow * 2;

}  // namespace ridge::cuda
