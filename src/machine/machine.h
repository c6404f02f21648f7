// What a piece of hardware can do: its memory levels, peaks, links and fixed costs.
//
// Every number may be unknown (nullopt), never zero or guessed, and every known number has a
// provenance: where it was read, derived or measured. SI units throughout: bytes, bytes/s,
// operations/s (2 per multiply-add), seconds, hertz, watts.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace ridge {

using Maybe = std::optional<double>;

enum class Scope : uint8_t {
  unit,     // one instance per SM, compute unit or core
  device,   // shared by the whole device
  host,     // the host's memory, through the host link
  network,  // other nodes
};

// One level of the pyramid, innermost first: registers, L1 (shared memory and L1 of a GPU), L2,
// L3, then device memory (HBM, GDDR, DRAM), host, network.
struct Level {
  std::string name;
  Scope scope = Scope::device;
  Maybe capacity;        // bytes of one instance
  double instances = 1;  // how many the device has
  Maybe read_bandwidth;  // bytes/s, all instances together; host and network: one direction
  Maybe latency;         // seconds for a dependent load

  Maybe total_capacity() const { return capacity ? Maybe(*capacity * instances) : std::nullopt; }
};

// What a message of a size took on a link.
struct LinkPoint {
  double bytes = 0, seconds = 0;
};

// A link to peer devices in the same node (or NVLink domain).
struct Link {
  std::string name;
  Maybe bandwidth;      // bytes/s out of one device, one direction
  Maybe latency;        // seconds for the smallest message
  int max_devices = 1;  // devices one domain joins
  // Whether devices reach each other's memory. Without it (GeForce over PCIe) every message is
  // copied to host memory and from there to the peer.
  std::optional<bool> p2p;
  // Measured by size, from small to large, where latency and bandwidth do not tell it (MPI changes
  // its protocol with the size): bytes that every device sends and receives at once, and bytes that
  // one sends to another. Empty: latency and bandwidth do.
  std::vector<LinkPoint> exchanges, messages;
  // Bytes/s that a device copies within its own memory, where collectives wait for such copies.
  Maybe copy_bandwidth;
};

// What one more dependent kernel costs beyond its body, seconds. In a stream the host launches
// ahead while bodies run, so its cost bounds the rate; it is never less than the edge of a graph,
// which the device pays in both cases.
struct Launch {
  Maybe stream;      // the host's period of back-to-back launches
  Maybe graph;       // an edge between two nodes of a CUDA graph, the body not counted
  Maybe persistent;  // a grid barrier inside a persistent kernel; a thread-pool barrier on CPUs
};

enum class Origin : uint8_t { datasheet, derived, measured, estimate };

struct Provenance {
  Origin origin = Origin::datasheet;
  std::string source;  // where it was read, how it was derived, or what measured it
  Maybe spread;        // measured: relative spread over repeats
  std::string date;    // measured: ISO date
};

enum class MachineKind : uint8_t { gpu, accelerator, cpu, soc };

struct Machine {
  std::string name;   // "h100-sxm"
  std::string title;  // "NVIDIA H100 SXM5 80GB"
  std::vector<std::string> aliases;
  std::string vendor, architecture;
  std::string isa;  // compute capability or instruction set
  MachineKind kind = MachineKind::gpu;
  Maybe year;                                // of release
  Maybe units;                               // SMs, compute units, cores
  Maybe lanes;                               // fp32 multiply-adds per unit and clock
  Maybe clock;                               // Hz, the one that reproduces the fp32 peak
  std::array<Maybe, kDTypeCount> peak;       // dense operations/s by DType
  std::array<Maybe, kDTypeCount> sustained;  // the same under the power limit, where measured
  std::vector<Level> levels;                 // innermost first
  std::vector<Link> links;                   // fastest first
  Launch launch;
  Maybe power;           // board power limit, W
  Maybe price_per_hour;  // US dollars for one device
  std::string notes;
  std::map<std::string, Provenance> provenance;  // by path prefix, see provenance_of

  const Level* level(std::string_view level_name) const;  // nullptr if there is none
  const Level& memory() const;  // the device memory: the last level of scope device
  const Level* cache() const;   // the largest on-chip level (L2, L3); nullptr if unknown
  Maybe peak_of(DType dtype) const { return peak[static_cast<int>(dtype)]; }
  Maybe ridge(DType dtype) const;  // FLOP/byte at which compute and device memory balance
};

// The provenance of a number, by its JSON path ("peak.bf16", "levels.HBM.read_bandwidth"): the
// entry with the longest matching prefix of the path; nullptr if none covers it.
const Provenance* provenance_of(const Machine& machine, std::string_view path);

// The JSON paths of every number the machine knows, in the order of the struct.
std::vector<std::string> known_numbers(const Machine& machine);

// Devices joined into nodes, nodes into a cluster: "2x8xh100-sxm" is 2 nodes of 8.
struct System {
  Machine device;
  int devices_per_node = 1;
  int nodes = 1;

  int devices() const { return devices_per_node * nodes; }
  std::string name() const;  // "8xh100-sxm"
};

}  // namespace ridge
