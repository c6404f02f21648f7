#include "engine/ranks/rank_calls.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {
namespace {

// A call travels as a first piece of fixed length, which holds most of them whole, and the rest.
constexpr size_t kFirstPiece = 2048;

struct FirstPiece {
  uint64_t bytes = 0;
  std::byte begin[kFirstPiece];
};

}  // namespace

void broadcast_call(Communicator& world, Packet& call) {
  FirstPiece first;
  first.bytes = call.bytes().size();
  std::copy_n(call.bytes().begin(), std::min(call.bytes().size(), kFirstPiece), first.begin);
  world.broadcast(0, std::as_writable_bytes(std::span(&first, 1)));
  if (first.bytes > kFirstPiece) world.broadcast(0, call.bytes().subspan(kFirstPiece));
}

void receive_call(Communicator& world, Packet& call) {
  FirstPiece first;
  const Communicator::Deadline usual = world.deadline();
  world.set_deadline(Communicator::kNoDeadline);
  world.broadcast(0, std::as_writable_bytes(std::span(&first, 1)));
  world.set_deadline(usual);
  call.reset(first.bytes);
  std::copy_n(first.begin, std::min<size_t>(first.bytes, kFirstPiece), call.bytes().begin());
  if (first.bytes > kFirstPiece) world.broadcast(0, call.bytes().subspan(kFirstPiece));
}

void send_packet(Communicator& world, int to, Packet& packet) {
  const uint64_t bytes = packet.bytes().size();
  world.send(to, std::as_bytes(std::span(&bytes, 1)));
  world.send(to, packet.bytes());
}

void receive_packet(Communicator& world, int from, Packet& packet) {
  uint64_t bytes = 0;
  world.receive(from, std::as_writable_bytes(std::span(&bytes, 1)));
  packet.reset(bytes);
  world.receive(from, packet.bytes());
}

void put(Packet& to, const TopLogitsRequest& request) {
  to.put(request.count);
  to.put(request.scale);
  to.put_list(std::span(request.tokens));
  to.put(request.draw);
  to.put(request.key);
}

TopLogitsRequest get_request(Packet& from) {
  TopLogitsRequest request;
  request.count = from.get<int>();
  request.scale = from.get<float>();
  from.get_list(request.tokens);
  request.draw = from.get<bool>();
  request.key = from.get<uint64_t>();
  return request;
}

void put(Packet& to, const TopLogits& row) {
  to.put(row.broken);
  to.put(row.log_sum);
  to.put(row.scaled_sum);
  to.put_list(std::span(row.candidates));
  to.put_list(std::span(row.requested));
  to.put(row.chosen);
}

TopLogits get_top_logits(Packet& from) {
  TopLogits row;
  row.broken = from.get<bool>();
  row.log_sum = from.get<double>();
  row.scaled_sum = from.get<double>();
  from.get_list(row.candidates);
  from.get_list(row.requested);
  row.chosen = from.get<Candidate>();
  return row;
}

void put(Packet& to, const Profile& profile) {
  to.put(profile.entries().size());
  for (const Profile::Entry& entry : profile.entries()) {
    to.put_list(std::span(std::string_view(entry.name)));
    to.put(entry.seconds);
    to.put(entry.calls);
  }
}

void add_operators(Packet& from, Profile& to) {
  static std::set<std::string> names;  // those of a profile must outlive it
  for (auto left = from.get<size_t>(); left > 0; --left) {
    std::vector<char> name;
    from.get_list(name);
    const auto seconds = from.get<double>();
    const auto calls = from.get<long>();
    const std::string text(name.begin(), name.end());
    if (text != "receive") to.add(names.insert(text).first->c_str(), seconds, calls);
  }
}

}  // namespace ridge
