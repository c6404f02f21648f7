// Keys and values in pages: what do pages cost in time, and what does a reservation cost in memory?
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/account/bench_steps.h"
#include "lab/catalogue.h"
#include "lab/lab_engine.h"

namespace ridge {
namespace {

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

LabResult run_pages(Lab& lab) {
  LabResult result;
  result.x = {"tokens per page", true, 0, 0};
  result.y = {"ms per token", true, 0, 0};
  const int longest = lab.quick() ? 256 : 4096;
  const std::vector<int> lengths = sequence_lengths(longest);
  const LabShape shape = lab_shape(lab);
  LabSeries series{fmt::format("context {}", longest - 16), {}};
  std::vector<Token> first;
  bool equal = true;
  double held = 0;
  std::vector<int> sizes;
  for (int page = 16; page < std::min(longest, 512); page *= 2) sizes.push_back(page);
  sizes.push_back(longest);  // one page: contiguous
  std::string wastes;
  for (const int page : sizes) {
    lab.step(fmt::format("pages of {} tokens", page));
    const auto runner =
        lab_runner(lab, lab_weights(lab, shape, Storage::q4_0),
                   {.page_tokens = page, .cache_tokens = longest, .max_tokens = 64});
    const std::vector<Token> prompt = some_tokens(50, shape.vocab, 4);
    const std::vector<Token> tokens = lab_continue(*runner, prompt, lab.quick() ? 4 : 16);
    if (first.empty()) first = tokens;
    equal = equal && tokens == first;
    runner->fill_cache(1);
    LabPredictor predictor(lab, *runner);
    LabStep step(*runner, 1, longest - 16);
    LabPoint point = measure_step(lab, predictor, page, step, 1e3);
    if (page == longest) point.label = "contiguous";
    series.points.push_back(std::move(point));
    wastes += fmt::format("{}{} tokens {}", wastes.empty() ? "" : ", ", page,
                          pretty_percent(page_waste(lengths, page)));
    held = std::max(held, runner->weights().bytes + runner->repacked_bytes() +
                              sequence_bytes(runner->weights().model, longest, *runner->plan().kv));
  }
  result.checks.push_back({"the tokens are the same with every page size", equal});
  const double paged = series.points.front().measured, contiguous = series.points.back().measured;
  const double waste = page_waste(lengths, longest), small = page_waste(lengths, sizes.front());
  result.holds = paged < 1.15 * contiguous && small < waste / 4;
  result.sentence = fmt::format(
      "Pages of {} tokens take {:.2f}x the time of one contiguous page. Of {} sequences up to {} "
      "tokens, reserving the longest wastes {}, pages of {} waste {}.",
      sizes.front(), paged / contiguous, lengths.size(), longest, pretty_percent(waste),
      sizes.front(), pretty_percent(small));
  result.notes.push_back("Wasted by page size: " + wastes + ".");
  result.notes.push_back(
      "The CPU's attention reads keys in groups of 16, so pages are multiples of that.");
  result.notes.push_back(memory_note(held));
  result.series = {std::move(series)};
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
    true,
    false,
    4,
    run_pages};

}  // namespace ridge
