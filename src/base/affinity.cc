#include "base/affinity.h"

#include <pthread.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace ridge {
namespace {

// The file lists the logical processors of one core, as in "0-1,64". The first of them names the
// core.
int first_sibling(int processor) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(processor) +
                     "/topology/thread_siblings_list");
  int first = processor;
  return file >> first ? first : processor;
}

}  // namespace

std::vector<int> usable_processors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(static_cast<size_t>(i), &set)) processors.push_back(i);
    }
  }
  if (processors.empty()) {
    const int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    for (int i = 0; i < count; ++i) processors.push_back(i);
  }
  return processors;
}

std::vector<int> one_per_core(const std::vector<int>& processors) {
  std::vector<int> chosen, cores;
  for (const int processor : processors) {
    const int core = first_sibling(processor);
    if (std::find(cores.begin(), cores.end(), core) != cores.end()) continue;
    cores.push_back(core);
    chosen.push_back(processor);
  }
  return chosen;
}

bool pin_thread(std::thread::native_handle_type thread, int processor) {
  if (processor < 0 || processor >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  return pthread_setaffinity_np(thread, sizeof set, &set) == 0;
}

AffinityScope::AffinityScope()
    : known_(pthread_getaffinity_np(pthread_self(), sizeof saved_, &saved_) == 0) {}

AffinityScope::~AffinityScope() {
  if (known_) pthread_setaffinity_np(pthread_self(), sizeof saved_, &saved_);
}

}  // namespace ridge
