#include "openai/output_router.h"

#include <utility>

namespace ridge {

OutputRouter::OutputRouter() : thread_([this] { run(); }) {}

OutputRouter::~OutputRouter() {
  {
    const std::lock_guard lock(queue_mutex_);
    ending_ = true;
  }
  pushed_.notify_one();
  thread_.join();
}

void OutputRouter::add(RequestId id, std::shared_ptr<OutputReceiver> receiver, size_t choice) {
  const std::lock_guard lock(destinations_mutex_);
  destinations_.insert_or_assign(id, Destination{std::move(receiver), choice});
}

void OutputRouter::remove(RequestId id) {
  Destination removed;  // destroyed outside the lock
  const std::lock_guard lock(destinations_mutex_);
  const auto found = destinations_.find(id);
  if (found == destinations_.end()) return;
  removed = std::move(found->second);
  destinations_.erase(found);
  if (destinations_.empty()) emptied_.notify_all();
}

std::vector<RequestId> OutputRouter::requests() const {
  const std::lock_guard lock(destinations_mutex_);
  std::vector<RequestId> ids;
  for (const auto& [id, destination] : destinations_) ids.push_back(id);
  return ids;
}

void OutputRouter::wait_until_empty() {
  std::unique_lock lock(destinations_mutex_);
  emptied_.wait(lock, [this] { return destinations_.empty(); });
}

void OutputRouter::push(std::vector<RequestOutput>&& outputs) {
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(outputs));
  }
  pushed_.notify_one();
}

void OutputRouter::run() {
  std::vector<std::vector<RequestOutput>> batches;
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    pushed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    batches.swap(queue_);
    lock.unlock();
    for (std::vector<RequestOutput>& outputs : batches) {
      for (RequestOutput& output : outputs) route(std::move(output));
    }
    batches.clear();
    lock.lock();
  }
}

void OutputRouter::route(RequestOutput&& output) {
  Destination destination;
  {
    const std::lock_guard lock(destinations_mutex_);
    const auto found = destinations_.find(output.id);
    if (found == destinations_.end()) return;
    destination = found->second;
  }
  const RequestId id = output.id;
  const bool last = output.end.has_value();
  destination.receiver->deliver(destination.choice, std::move(output));
  if (last) remove(id);
}

}  // namespace ridge
