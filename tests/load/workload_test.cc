// What is sent and when: lengths, arrivals, prefixes, traces, and that a seed decides all of it.
#include "load/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace ridge {
namespace {

WorkloadOptions fixed(int requests) {
  WorkloadOptions options;
  options.requests = requests;
  options.prompt = parse_length("16", "prompt");
  options.output = parse_length("8", "output");
  return options;
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments_of(const std::vector<double>& values) {
  Moments m;
  for (const double value : values) m.mean += value / double(values.size());
  for (const double value : values) {
    m.variance += (value - m.mean) * (value - m.mean) / double(values.size());
  }
  return m;
}

// The gaps of a gamma process with shape b have the mean 1/rate and the variance 1/(b rate^2).
TEST(Workload, ArrivalsHaveTheMeanAndTheVarianceOfTheirDistribution) {
  constexpr int kArrivals = 40'000;
  constexpr double kRate = 50;
  for (const double burstiness : {0.5, 1., 4.}) {
    WorkloadOptions options = fixed(kArrivals);
    options.rate = kRate;
    options.burstiness = burstiness;
    const Workload workload(options);
    const std::vector<double>& arrivals = workload.arrivals();
    ASSERT_EQ(arrivals.size(), size_t(kArrivals));
    EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
    EXPECT_NEAR(arrivals.back(), kArrivals / kRate, 1e-6);
    std::vector<double> gaps{arrivals[0]};
    for (size_t i = 1; i < arrivals.size(); ++i) gaps.push_back(arrivals[i] - arrivals[i - 1]);
    const Moments m = moments_of(gaps);
    EXPECT_NEAR(m.mean, 1 / kRate, 1e-9);
    // The variance of a sample variance is (kurtosis - 1) / n times its square; the kurtosis of a
    // gamma distribution is 3 + 6 / shape.
    const double variance = 1 / (burstiness * kRate * kRate);
    const double sigma = variance * std::sqrt((2 + 6 / burstiness) / kArrivals);
    EXPECT_NEAR(m.variance, variance, 4 * sigma) << burstiness;
  }
}

// Arrivals in windows of a second are Poisson: as many on average as their variance.
TEST(Workload, PoissonCountsHaveEqualMeanAndVariance) {
  WorkloadOptions options = fixed(40'000);
  options.rate = 20;
  const Workload workload(options);
  std::vector<double> counts(2000);
  for (const double arrival : workload.arrivals()) {
    ++counts[std::min(size_t(arrival), counts.size() - 1)];
  }
  const Moments m = moments_of(counts);
  EXPECT_NEAR(m.mean, 20, 1e-9);
  EXPECT_NEAR(m.variance, 20, 4 * 20 * std::sqrt(2. / 2000));
}

TEST(Workload, LengthsFollowTheirDistribution) {
  WorkloadOptions options = fixed(20'000);
  options.prompt = parse_length("100..300", "prompt");
  options.output = parse_length("lognormal:200,0.5", "output");
  const Workload workload(options);
  std::vector<double> prompts, logs;
  for (int i = 0; i < workload.conversations(); ++i) {
    prompts.push_back(workload.prompt_tokens(i, 0));
    logs.push_back(std::log(workload.output_tokens(i, 0)));
  }
  const auto [low, high] = std::minmax_element(prompts.begin(), prompts.end());
  EXPECT_EQ(*low, 100);
  EXPECT_EQ(*high, 300);
  const double sigma = std::sqrt((201. * 201 - 1) / 12 / 20'000);
  EXPECT_NEAR(moments_of(prompts).mean, 200, 4 * sigma);
  const Moments m = moments_of(logs);
  EXPECT_NEAR(m.mean, std::log(200), 4 * 0.5 / std::sqrt(20'000));
  EXPECT_NEAR(std::sqrt(m.variance), 0.5, 0.02);  // cut at 3 sigma: 1 % less
}

TEST(Workload, BadLengthsAreNamed) {
  for (const char* text : {"", "x", "0", "-3", "1.5", "9..3", "0..4", "1..", "lognormal:",
                           "lognormal:10", "lognormal:0,1", "lognormal:9,9", "1e99", "nan"}) {
    try {
      parse_length(text, "prompt");
      ADD_FAILURE() << text;
    } catch (const OptionError& error) {
      EXPECT_EQ(error.option(), "prompt");
      EXPECT_NE(std::string(error.what()).find("--prompt"), std::string::npos);
    }
  }
}

TEST(Workload, ASeedDecidesEverything) {
  WorkloadOptions options = fixed(50);
  options.prompt = parse_length("10..90", "prompt");
  options.rate = 3;
  const Workload one(options), same(options);
  options.seed = 2;
  const Workload other(options);
  EXPECT_EQ(one.arrivals(), same.arrivals());
  EXPECT_NE(one.arrivals(), other.arrivals());
  EXPECT_EQ(one.prompt(7, 0, 1000), same.prompt(7, 0, 1000));
  EXPECT_NE(one.prompt(7, 0, 1000), other.prompt(7, 0, 1000));
  std::set<std::vector<uint32_t>> prompts;
  for (int i = 0; i < 50; ++i) prompts.insert(one.prompt(i, 0, 1000));
  EXPECT_EQ(prompts.size(), 50u);
}

TEST(Workload, PrefixesAreSharedWithinAGroup) {
  WorkloadOptions options = fixed(12);
  options.prefix_groups = 3;
  options.prefix_tokens = 20;
  const Workload workload(options);
  EXPECT_EQ(workload.prefix(1, 100).size(), 20u);
  EXPECT_EQ(workload.prefix(1, 100), workload.prefix(4, 100));
  EXPECT_NE(workload.prefix(1, 100), workload.prefix(2, 100));
  EXPECT_NE(workload.prompt(1, 0, 100), workload.prompt(4, 0, 100));
  EXPECT_EQ(workload.longest_request(), 20 + 16 + 8);
}

TEST(Workload, TurnsMakeConversations) {
  WorkloadOptions options = fixed(10);
  options.turns = 4;
  const Workload workload(options);
  EXPECT_EQ(workload.conversations(), 3);
  EXPECT_EQ(workload.turns(0), 4);
  EXPECT_EQ(workload.turns(2), 2);
  EXPECT_NE(workload.prompt(0, 0, 100), workload.prompt(0, 1, 100));
}

TEST(Workload, TracesGiveArrivalsAndLengths) {
  WorkloadOptions options = fixed(3);
  options.trace = parse_trace(
                      "{\"arrival_s\": 12.5, \"prompt_tokens\": 30, \"output_tokens\": 3}\n\n"
                      "{\"arrival_s\": 10, \"prompt_tokens\": 10, \"output_tokens\": 1}\r\n"
                      "{\"arrival_s\": 11, \"prompt_tokens\": 20, \"output_tokens\": 2}",
                      "t")
                      .rows;
  const Workload workload(options);
  EXPECT_EQ(workload.arrivals(), (std::vector<double>{0, 1, 2.5}));
  EXPECT_EQ(workload.prompt_tokens(0, 0), 10);
  EXPECT_EQ(workload.prompt(2, 0, 9).size(), 30u);
  EXPECT_EQ(workload.output_tokens(1, 0), 2);
  EXPECT_EQ(workload.longest_request(), 33);
}

TEST(Workload, BadTracesAreNamedByLine) {
  for (const char* text :
       {"", "\n", "[1]", "{\"prompt_tokens\": 1}", "{\"prompt_tokens\": 0, \"output_tokens\": 1}",
        "{\"prompt_tokens\": 1, \"output_tokens\": 1, \"arrival_s\": -1}",
        "{\"prompt_tokens\": 1, \"output_tokens\": 1}\nx"}) {
    EXPECT_THROW(parse_trace(text, "t"), Error) << text;
  }
  try {
    parse_trace("{\"prompt_tokens\": 1, \"output_tokens\": 1}\n{\"prompt_tokens\": 1}", "trace");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "trace:2: output_tokens is missing");
  }
}

}  // namespace
}  // namespace ridge
