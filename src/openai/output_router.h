// From the engine's thread to the calls that wait: outputs are queued by one push per step and
// handed out by one thread, in order.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "serving/request.h"

namespace ridge {

class OutputReceiver {
 public:
  virtual ~OutputReceiver() = default;
  virtual void deliver(size_t choice, RequestOutput&& output) = 0;  // on the router's thread
};

class OutputRouter {
 public:
  OutputRouter();
  ~OutputRouter();  // delivers what was pushed, then ends; the engine must have ended

  // From any thread. A request must be added before it is submitted; its last output removes it.
  void add(RequestId id, std::shared_ptr<OutputReceiver> receiver, size_t choice);
  void remove(RequestId id);  // of a request that was not accepted
  std::vector<RequestId> requests() const;
  void wait_until_empty();  // every request has had its last output delivered

  // ServingEngine::Outputs.
  void push(std::vector<RequestOutput>&& outputs);

 private:
  struct Destination {
    std::shared_ptr<OutputReceiver> receiver;
    size_t choice;
  };
  void run();
  void route(RequestOutput&& output);

  mutable std::mutex queue_mutex_, destinations_mutex_;
  std::condition_variable pushed_, emptied_;
  std::vector<std::vector<RequestOutput>> queue_;
  bool ending_ = false;
  std::unordered_map<RequestId, Destination> destinations_;
  std::thread thread_;
};

}  // namespace ridge
