// Keys and values in pages: what do pages cost in time, and what does a reservation cost in memory?
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/generate/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

constexpr uint64_t kPageSeed = 5;

// Lengths of sequences, spread evenly on a logarithmic scale up to `longest`: most are short.
std::vector<int> sequence_lengths(int longest) {
  std::vector<int> lengths;
  for (int length = longest; length > longest / 64; length = length * 4 / 5) {
    lengths.push_back(length);
  }
  return lengths;
}

// The share of the reserved tokens that holds nothing.
double page_waste(const std::vector<int>& lengths, int page) {
  double held = 0, used = 0;
  for (const int length : lengths) {
    held += (length + page - 1) / page * page;
    used += length;
  }
  return 1 - used / held;
}

std::unique_ptr<Runner> paged_runner(Lab& lab, int page, int longest) {
  auto runner = lab_runner(lab, lab_shape(lab), lab_format(lab, Storage::q4_0),
                           {.page_tokens = page, .cache_tokens = longest, .max_tokens = 64});
  runner->fill_cache(1);
  return runner;
}

LabPoint page_point(int page, const LabBand& band, const LabTime& time) {
  LabPoint point;
  point.x = page;
  point.band = band;
  point.measured = 1e3 * time.seconds;
  point.spread = time.spread;
  point.doubt = time.doubt;
  return point;
}

LabResult run_pages(Lab& lab) {
  LabResult result;
  result.x = {"tokens per page", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const int longest = lab.sized(256, 4096, 16384), context = longest - 16;
  const std::vector<int> lengths = sequence_lengths(longest);
  const std::vector<Token> prompt = some_tokens(50, lab_shape(lab).vocab, 4);
  const int count = lab.quick() ? 4 : 16;
  std::vector<int> sizes;
  for (int page = 16; page < std::min(longest, 512); page *= 2) sizes.push_back(page);

  // What pages are compared with. On the CPU one page holds the whole cache. On CUDA the kernels'
  // pages hold 16 tokens whatever the size, so the same pages in order stand for a contiguous
  // cache.
  lab.step("the contiguous cache");
  const auto whole = paged_runner(lab, longest, longest);
  LabPredictor whole_predictor(lab, *whole);
  LabStep whole_step(*whole, 1, context);
  const std::vector<Token> tokens = lab_continue(*whole, prompt, count);

  LabSeries paged{fmt::format("shuffled pages, context {}", context), {}};
  LabSeries plain{lab.on_cuda() ? "the same pages in order" : "one contiguous page", {}};
  bool equal = true;
  std::string wastes, ratios;
  double worst = 0, smallest = 0;  // ratios: of all sizes, of the smallest pages
  LabPoints deciding;
  std::vector<LabPoint> ratio_points;
  for (const int page : sizes) {
    lab.step(fmt::format("pages of {} tokens", page));
    const auto runner = paged_runner(lab, page, longest);
    equal = equal && lab_continue(*runner, prompt, count, kPageSeed) == tokens;
    runner->fill_cache(1);
    LabPredictor predictor(lab, *runner);
    LabStep shuffled(*runner, 1, context, 1, kPageSeed), ordered(*runner, 1, context);
    LabStep& reference = lab.on_cuda() ? ordered : whole_step;
    const LabBand band = scaled(band_of(predictor.step(shuffled.sequences())), 1e3);
    const LabBand beside =
        lab.on_cuda() ? band : scaled(band_of(whole_predictor.step(whole_step.sequences())), 1e3);
    lab.announce(band, "shuffled pages");
    lab.announce(beside, plain.name);
    const LabPair pair = lab.alternate([&] { shuffled(); }, [&] { reference(); });
    paged.points.push_back(page_point(page, band, pair.first));
    plain.points.push_back(page_point(page, beside, pair.second));
    LabPoint ratio;
    ratio.label = fmt::format("{} tokens per page", page);
    ratio.doubt = pair.doubt;
    ratio_points.push_back(ratio);
    worst = std::max(worst, pair.ratio);
    if (page == sizes.front()) smallest = pair.ratio;
    ratios += fmt::format("{}{} tokens {:.3f}", ratios.empty() ? "" : ", ", page, pair.ratio);
    wastes += fmt::format("{}{} tokens {}", wastes.empty() ? "" : ", ", page,
                          pretty_percent(page_waste(lengths, page)));
  }
  for (const LabPoint& point : ratio_points) deciding.push_back(&point);
  result.checks.push_back({"the tokens are the same with every page size", equal});
  const double waste = page_waste(lengths, longest), small = page_waste(lengths, sizes.front());
  decide(result, worst < 1.1 && small < waste / 4, deciding);
  result.sentence = fmt::format(
      "Shuffled pages of {} tokens take {:.2f}x the time of {}, the worst size {:.2f}x. Of {} "
      "sequences up to {} tokens, reserving the longest wastes {}, pages of {} waste {}.",
      sizes.front(), smallest, plain.name, worst, lengths.size(), longest, pretty_percent(waste),
      sizes.front(), pretty_percent(small));
  result.notes.push_back(
      "Times of shuffled pages over those beside them, medians of alternating pairs: " + ratios +
      ".");
  result.notes.push_back("Wasted by page size: " + wastes + ".");
  result.notes.push_back(
      lab.on_cuda()
          ? "The kernels' pages hold 16 tokens; a larger page is a run of them. Pages in random "
            "places are compared with the same pages in order: there is no kernel for a contiguous "
            "cache."
          : "Pages lie in random places of the cache, as after many requests. The CPU's attention "
            "reads keys in groups of 16, so pages are multiples of that.");
  result.series = {std::move(paged), std::move(plain)};
  return result;
}

}  // namespace

const Experiment kPagesExperiment{
    "pages",
    LabTopic::serving,
    "What do pages of the KV cache cost?",
    "Pages end the waste of reserving for the longest answer and cost no time; the tokens are the "
    "same.",
    "PagedAttention",
    "ridge predict -m llama-3-8b -M h200 --no-paging",
    run_pages,
    run_pages,
    4,
    {60e6, 200e6, 4e9, 20e9}};

}  // namespace ridge
