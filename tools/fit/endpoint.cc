#include "fit/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "fit/optimise.h"
#include "validate/endpoints.h"

namespace ridge {
namespace {

struct Sample {
  Endpoint endpoint;
  EndpointParts parts;
  bool held_out = false;
};

// Bounds of what is fitted. The fit moves on a logarithmic scale.
struct Knob {
  const char* name;
  double HostCosts::*member;
  double low, high;
};
constexpr Knob kKnobs[] = {{"step", &HostCosts::step, 1e-5, 5e-3},
                           {"layer", &HostCosts::layer, 1e-7, 6e-5},
                           {"sequence", &HostCosts::sequence, 1e-7, 6e-5},
                           {"experts_factor", &HostCosts::experts, 0.6, 1.4},
                           {"prompt_factor", &HostCosts::prompt, 0.7, 1.8},
                           {"prompt_experts_factor", &HostCosts::prompt_experts, 0.6, 2.5},
                           {"prompt_floor", &HostCosts::prompt_floor, 5e-5, 4e-3},
                           {"first", &HostCosts::first, 2e-3, 0.4}};
constexpr size_t kKnobCount = std::size(kKnobs);

// What is not fitted stays as it is in `host`.
HostCosts with(HostCosts host, const std::vector<double>& x) {
  for (size_t i = 0; i < kKnobCount; ++i) {
    host.*kKnobs[i].member = kKnobs[i].low * std::pow(kKnobs[i].high / kKnobs[i].low, x[i]);
  }
  return host;
}

std::vector<double> without(const HostCosts& host) {
  std::vector<double> x;
  for (const Knob& knob : kKnobs) {
    const double value = std::clamp(host.*knob.member, knob.low, knob.high);
    x.push_back(std::log(value / knob.low) / std::log(knob.high / knob.low));
  }
  return x;
}

// The first token is weighed less, and under load hardly where the client is not known: there it
// measures how requests arrive.
constexpr double kFirstWeight = 0.6, kLoadedWeight = 0.2, kFewClients = 4;
// Numbers stay near what they were unless the rows say otherwise: a kind of model may have few.
constexpr double kPrior = 0.05;

double weight_of_first(const Endpoint& e) {
  if (e.cold || e.disaggregated) return 0;
  if (e.load.clients <= kFewClients) return kFirstWeight;
  return e.known_client ? kLoadedWeight : kLoadedWeight / 10;
}

double loss(const HostCosts& start, const std::vector<double>& x, const std::vector<double>& prior,
            const std::vector<Sample>& samples, bool only_fit) {
  const HostCosts host = with(start, x);
  double sum = 0, weight = 0;
  for (const Sample& s : samples) {
    if (only_fit && s.held_out) continue;
    const EndpointEstimate e = estimate_endpoint(s.parts, host, s.endpoint.load);
    const double first = weight_of_first(s.endpoint);
    sum += std::abs(std::log(e.tpot_s / s.endpoint.tpot_s)) +
           first * std::abs(std::log(e.ttft_s / s.endpoint.ttft_s));
    weight += 1 + first;
  }
  double away = 0;
  for (size_t i = 0; i < kKnobCount; ++i) away += (x[i] - prior[i]) * (x[i] - prior[i]);
  return sum / std::max(1.0, weight) + kPrior * away;
}

HostCosts fit(const HostCosts& start, const std::vector<Sample>& samples, bool only_fit) {
  const std::vector<double> prior = without(start);
  const auto objective = [&](const std::vector<double>& x) {
    return loss(start, x, prior, samples, only_fit);
  };
  return with(start, minimise(objective, prior, 0.2, 3000, 7).x);
}

struct Errors {
  std::vector<double> token, first, loaded;
};

void add_errors(Errors& errors, const HostCosts& host, const std::vector<Sample>& samples) {
  for (const Sample& s : samples) {
    if (!s.held_out) continue;
    const Endpoint& e = s.endpoint;
    const EndpointEstimate times = estimate_endpoint(s.parts, host, e.load);
    errors.token.push_back(std::abs(times.tpot_s / e.tpot_s - 1));
    if (weight_of_first(e) == 0) continue;
    auto& first = e.load.clients <= kFewClients ? errors.first : errors.loaded;
    first.push_back(std::abs(times.ttft_s / e.ttft_s - 1));
  }
}

void print_errors(const std::string& name, Errors errors) {
  const auto text = [](std::vector<double>& values) {
    if (values.empty()) return std::string("no rows");
    double sum = 0;
    for (const double value : values) sum += value;
    std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
    return fmt::format("{:.1f} / {:.1f} ({})", 100 * sum / double(values.size()),
                       100 * values[values.size() / 2], values.size());
  };
  fmt::print("{:8} per token {}; first token, few clients {}, loaded {}\n", name,
             text(errors.token), text(errors.first), text(errors.loaded));
}

void print_numbers(const std::string& name, HostKind kind, const HostCosts& host) {
  constexpr const char* kKinds[] = {"dense", "experts", "latent"};
  fmt::print("{} {}:", name, kKinds[static_cast<int>(kind)]);
  for (const Knob& knob : kKnobs) fmt::print(" \"{}\": {:.2g},", knob.name, host.*knob.member);
  fmt::print("\n");
}

HostKind kind_of(const Endpoint& e) {
  const HostCosts* host = &host_costs(e.request.stack, *e.request.model);
  return static_cast<HostKind>(host - e.request.stack.hosts.data());
}

}  // namespace

void fit_endpoints(const std::string& data) {
  std::map<std::pair<std::string, HostKind>, std::vector<Sample>> groups;
  size_t skipped = 0;
  const auto complain = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  for (const std::string& path : find_endpoint_files(data)) {
    for (const Endpoint& e : read_endpoints(path, skipped, complain)) {
      if (!e.defect.empty() || e.disaggregated) continue;
      // One configuration's loads stay together on one side of the split.
      const std::string site = fmt::format("{} {} {} {} {}", e.request.model->name, e.gpu,
                                           e.request.plan.tp, e.load.prompt, e.load.output);
      groups[{e.framework, kind_of(e)}].push_back(
          {e, endpoint_parts(e.request, e.load), std::hash<std::string>{}(site) % 2 == 0});
    }
  }
  std::map<std::string, Errors> errors;
  for (auto& [key, samples] : groups) {
    const auto& [name, kind] = key;
    const HostCosts start = samples.front().endpoint.request.stack.host(kind);
    for (int half = 0; half < 2; ++half) {
      const HostCosts host = fit(start, samples, true);
      add_errors(errors[name], host, samples);
      add_errors(errors["all"], host, samples);
      for (Sample& s : samples) s.held_out = !s.held_out;
    }
    print_numbers(name, kind, fit(start, samples, false));
  }
  for (const auto& [name, each] : errors) print_errors(name, each);
}

}  // namespace ridge
