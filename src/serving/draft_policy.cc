#include "serving/draft_policy.h"

#include <algorithm>

namespace ridge {
namespace {

// A count's weight falls by this much with every step: a memory of about 20 steps.
constexpr double kDecay = 0.95;
// A request's own acceptance counts against so many decisions of all requests.
constexpr double kPrior = 2;
// Where drafts have not been worth it for so many steps, one is tried in a few steps: texts change,
// and a draft model that has fallen behind pays for that in the first of them.
constexpr int kProbeEvery = 256, kProbes = 4;
constexpr double kCorrectionRate = 0.1;

double expected_tokens(double acceptance, int drafts) {
  double sum = 1, power = 1;
  for (int i = 0; i < drafts; ++i) sum += power *= acceptance;
  return sum;
}

}  // namespace

void DraftPolicy::Counts::add(int proposed, int accepted_drafts) {
  // Drafts behind a rejected one decide nothing.
  const int newly_decided = std::min(proposed, accepted_drafts + 1);
  accepted = kDecay * accepted + accepted_drafts;
  decided = kDecay * decided + newly_decided;
}

double DraftPolicy::acceptance(RequestId id) const {
  const double mean = all_.accepted / all_.decided;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return mean;
  return (found->second.accepted + kPrior * mean) / (found->second.decided + kPrior);
}

// Of the largest number of drafts up to `drafts` that was measured.
double DraftPolicy::correction(int drafts) const {
  for (int k = std::min(drafts, int(corrections_.size()) - 1); k >= 0; --k) {
    if (corrections_[size_t(k)] > 0) return corrections_[size_t(k)];
  }
  return 1;
}

int DraftPolicy::choose(std::span<const DraftRequest> requests, std::span<const int> available) {
  int most = 0;
  double past = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    most = std::max(most, available[i]);
    past += static_cast<double>(requests[i].tokens.size());
  }
  if (most == 0) return 0;
  const int sequences = static_cast<int>(requests.size());
  past /= sequences;
  int best = 0;
  double best_rate = 0;
  for (int k = 0; k <= most; ++k) {
    double tokens = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      tokens += expected_tokens(acceptance(requests[i].id), std::min(k, available[i]));
    }
    const double seconds = (seconds_ ? seconds_(sequences, k, past) : 1) * correction(k);
    if (tokens > best_rate * seconds) {
      best_rate = tokens / seconds;
      best = k;
    }
  }
  without_ = best > 0 ? 0 : without_ + 1;
  if (without_ == kProbeEvery) probes_ = kProbes;
  if (best > 0 || probes_ == 0) return best;
  if (--probes_ == 0) without_ = 0;
  return 1;
}

void DraftPolicy::on_step(int sequences, int drafts, double past, double measured) {
  const double predicted = seconds_ ? seconds_(sequences, drafts, past) : 1;
  if (corrections_.size() <= size_t(drafts)) corrections_.resize(size_t(drafts) + 1, 0);
  double& held = corrections_[size_t(drafts)];
  // One step that the machine was busy in must not decide.
  const double largest = held > 0 ? 3 * held : measured / predicted;
  const double ratio = std::min(measured / predicted, largest);
  held = held > 0 ? (1 - kCorrectionRate) * held + kCorrectionRate * ratio : ratio;
}

void DraftPolicy::verified(RequestId id, int proposed, int accepted) {
  all_.add(proposed, accepted);
  requests_[id].add(proposed, accepted);
}

}  // namespace ridge
