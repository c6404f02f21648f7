// The threads of the CPU engine: pinned one to a core, in step, spinning between operators.
#pragma once

#include <memory>
#include <type_traits>

namespace ridge::cpu {

class Workers {
 public:
  explicit Workers(int threads = 0);  // 0: one per core this process may use
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  int size() const;

  // work(index) on every thread at once, the caller being thread 0; returns when all are done.
  // Costs about a microsecond and allocates nothing. Idle threads spin for a moment (the next
  // operator is near), then sleep.
  template <typename Work>
  void run(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run_raw([](void* context, int index) { (*static_cast<Plain*>(context))(index); },
            const_cast<void*>(static_cast<const void*>(&work)));
  }

 private:
  void run_raw(void (*call)(void* context, int index), void* context);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ridge::cpu
