// Every threshold of the diagnosis, with its source. "DCGM" is NVIDIA's DCGM user guide and the
// readings of its load generator, "Nsight" the speed-of-light rules of Nsight Compute, "SGLang" and
// "vLLM" their tuning guides; "ours" was set here, on the cases of tests/diagnose.
#pragma once

namespace ridge::thresholds {

// --- Counters of the device.
inline constexpr double kHbmActiveMost = 0.80;   // DRAM_ACTIVE of a saturated HBM (DCGM)
inline constexpr double kGddrActiveMost = 0.90;  // of a saturated GDDR6 (A10G, ours)
inline constexpr double kTensorMost = 0.93;      // PIPE_TENSOR_ACTIVE under full load (DCGM)
// Cards whose tensor cores accumulate in fp32 at half rate never pass half of that: 0.455 was the
// most of 2833 samples on an A10G (ours).
inline constexpr double kTensorMostHalfRate = 0.5;
inline constexpr double kBusyShare = 0.6;     // of a counter's most: the ceiling is near (Nsight)
inline constexpr double kModestShare = 0.45;  // of the bandwidth, by a small model (ours)
inline constexpr double kQuietShare = 0.4;    // of it: the ceiling is far (Nsight)
inline constexpr double kGapsUtil = 0.8;      // utilisation with gaps between many steps (ours)
inline constexpr double kIdleUtil = 0.5;      // utilisation of a device that mostly waits (DCGM)
inline constexpr double kFullUtil = 0.9;      // utilisation without gaps to speak of (ours)
inline constexpr double kPowerNear = 0.95;    // of the limit: the limit binds (ours)
inline constexpr double kClockLow = 0.9;      // of the highest clock (ours)
inline constexpr double kClockVeryLow = 0.7;  // of it: even a memory-bound step slows down (ours)
// The lowest boost clock among accelerators of the last years: A100, 1410 MHz (NVIDIA).
inline constexpr double kLeastBoost_hz = 1.41e9;
inline constexpr double kCappedPower = 0.75;  // of the board's power: somebody set it (ours)
inline constexpr double kThrottled = 0.2;     // share of samples (ours)
inline constexpr double kLinkBusy = 0.5;      // of a link's rate, sustained (ours)

// --- The scheduler.
inline constexpr double kKvFull = 0.9;           // of the pages, with requests waiting (SGLang)
inline constexpr double kKvBrimming = 0.97;      // full also where nobody counts the queue (ours)
inline constexpr double kKvRoom = 0.85;          // below it a new sequence would find pages (ours)
inline constexpr double kKvLow = 0.3;            // hardly used (ours)
inline constexpr double kAtLimit = 0.95;         // of max_num_seqs (ours)
inline constexpr double kRarePreemption = 0.01;  // of the requests: no concern (SGLang: 1 a minute)
inline constexpr double kQueueShare = 0.5;  // of the time to first token spent in the queue (ours)
// Batches without a prediction beside them: so few sequences under-use any accelerator.
inline constexpr double kVerySmallBatch = 4, kSmallBatch = 16;  // ours

// --- The step against its prediction.
// Above the expected band by so much a step is slow even where the context is not known (ours).
inline constexpr double kContextSlack = 1.3;
inline constexpr double kRoofSlack = 0.97;    // clocks, sampling, rounding (ours)
inline constexpr double kUnderBatched = 0.5;  // of the useful batch (ours)
inline constexpr double kFarUnderBatched = 0.25;
inline constexpr double kWorthRaising = 1.1;  // a smaller gain is not worth a sentence (ours)
inline constexpr double kDisagree = 1.5;      // metrics of different windows (ours)
// Host work per step: thousands of launches take tens of milliseconds (vLLM #6854: 5 to 13 ms).
// Beyond it, several devices wait for each other.
inline constexpr double kHostStepMost_s = 0.3;
// Bytes/s of host memory at most: twelve channels of DDR5 (AMD EPYC 9004).
inline constexpr double kHostMemoryMost = 460e9;
// No accelerator needs so long for a few sequences, whatever the model (ours).
inline constexpr double kLongStep_s = 0.25;
// Kernels that dequantize 4-bit weights gain below about this batch (AutoAWQ: 8).
inline constexpr double kFourBitBatch = 16;
inline constexpr double kLinkShare = 0.3;  // of the expected step spent in collectives (ours)

// --- Latencies.
inline constexpr double kStalls = 3;  // p99 over median inter-token latency (ours)
inline constexpr double kMeanOverMedian = 1.5;
inline constexpr double kLongPrompt = 1024;  // tokens: a prompt that fills a step of its own (ours)
inline constexpr double kPromptHeavy = 20;   // prompt tokens per output token (ours)
inline constexpr double kPrefillShare = 0.5;  // of the device's time (ours)
inline constexpr double kFewHits = 0.2;       // of the prompt tokens (ours)
inline constexpr double kHostShare = 0.3;  // of the time to first token outside the engine (ours)
inline constexpr double kCpuBusy = 0.9;    // of the cores (ours)

// --- Speculation.
inline constexpr double kDraftsPay = 1.05;    // gain over plain decode (ours)
inline constexpr double kFewAccepted = 0.35;  // of the drafts, without a prediction (ours)

// --- Profiles.
inline constexpr double kGapShare = 0.2;        // of a step without any kernel (Nsight: latency)
inline constexpr double kExposedShare = 0.2;    // of a step in collectives alone (ours)
inline constexpr double kTinyKernel_s = 10e-6;  // below it launches outweigh kernels (TensorRT-LLM)
inline constexpr double kDominant = 0.5;        // of the kernels' time
inline constexpr double kSlowOperator = 2;      // over its expected time (ours)
inline constexpr double kNearRoof = 0.6;        // of a ceiling in Nsight Compute (Nsight)

}  // namespace ridge::thresholds
