#include "base/json_members.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json_events.h"

namespace ridge {
namespace {

// What malloc takes for an allocation: its bytes and a header of 8, in steps of 16.
constexpr size_t allocated(size_t bytes) { return (bytes + 8 + 15) / 16 * 16; }

// The parser's events as a tree with bounds.
class MemberReader final : public nlohmann::json_sax<Json> {
 public:
  MemberReader(std::string_view where, const JsonMembers& members, size_t& bytes_left)
      : where_(where), members_(members), bytes_left_(bytes_left) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add_integer(value); }
  bool number_unsigned(uint64_t value) override { return add_integer(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool binary(Json::binary_t&) override { return true; }  // not in JSON
  bool string(std::string& value) override {
    if (!skips_) charge(allocated(sizeof(std::string)) + heap_of(value));
    return add(value);
  }
  bool key(std::string& key) override {
    if (skips_) return true;
    if (open_.size() == 1) {
      member_ = key;
      skips_ = !members_.keep(key);
      packs_ = !skips_ && members_.pack && members_.pack(key);
      if (skips_) return true;
      member_left_ = members_.most_bytes ? members_.most_bytes(key) : SIZE_MAX;
    }
    auto& object = *open_.back()->get_ptr<Json::object_t*>();
    if (object.size() >= members_.most_keys) {
      refuse(fmt::format("an object with more than {} keys", members_.most_keys));
    }
    charge(heap_of(key));
    slot_ = &grow(object, key, nullptr).second;
    return true;
  }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override {
    if (open_.empty()) refuse_root();
    return open(Json::value_t::array);
  }
  bool end_object() override {
    if (skips_) return skip_end();
    check_unique(*open_.back()->get_ptr<Json::object_t*>());
    return close();
  }
  bool end_array() override { return skips_ ? skip_end() : close(); }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    if (const auto* syntax = dynamic_cast<const Json::parse_error*>(&error)) throw *syntax;
    throw dynamic_cast<const Json::out_of_range&>(error);  // a number
  }

 private:
  static size_t heap_of(const std::string& text) {
    return text.size() < sizeof(std::string) / 2 ? 0 : allocated(text.size() + 1);
  }
  [[noreturn]] void refuse(const std::string& message) const {
    throw OptionError(member_, fmt::format("{}: {}", member_, message));
  }
  [[noreturn]] void refuse_root() const { throw Error("{} must be a JSON object", where_); }

  void charge(size_t bytes) {
    if (bytes > std::min(bytes_left_, member_left_)) refuse("its values take too much memory");
    bytes_left_ -= bytes;
    member_left_ -= bytes;
  }

  template <typename List, typename... Args>
  typename List::value_type& grow(List& list, Args&&... args) {
    if (list.size() == list.capacity()) {
      constexpr size_t kHeader = allocated(0);
      charge(std::max<size_t>(list.size(), 1) * sizeof(typename List::value_type) +
             (list.empty() ? kHeader : 0));
    }
    return list.emplace_back(std::forward<Args>(args)...);
  }

  // Where the next value belongs.
  Json& place() {
    if (open_.empty()) return root_;
    Json& parent = *open_.back();
    if (parent.is_binary()) refuse("a list of 32-bit integers holds something else");
    if (auto* const list = parent.get_ptr<Json::array_t*>()) return grow(*list);
    return *slot_;
  }

  template <typename Value>
  bool add(Value&& value) {
    if (open_.empty()) refuse_root();
    if (skips_) {
      skips_ = skipped_depth_ > 0;
      return true;
    }
    place() = std::forward<Value>(value);
    return true;
  }

  template <typename Integer>
  bool add_integer(Integer value) {
    if (skips_ || !packs_ || !std::in_range<int32_t>(value)) return add(value);
    Json& parent = *open_.back();
    if (parent.is_array() && parent.empty()) {
      charge(allocated(sizeof(Json::binary_t)));
      parent = Json::binary({});
    }
    if (!parent.is_binary()) return add(value);
    std::vector<uint8_t>& bytes = parent.get_binary();
    const auto word = std::bit_cast<std::array<uint8_t, sizeof(int32_t)>>(int32_t(value));
    if (bytes.size() + word.size() > bytes.capacity()) {
      charge(std::max(bytes.capacity(), word.size()));
      bytes.reserve(std::max(2 * bytes.capacity(), word.size()));
    }
    bytes.insert(bytes.end(), word.begin(), word.end());
    return true;
  }

  bool open(Json::value_t type) {
    if (skips_) return ++skipped_depth_ > 0;
    charge(allocated(sizeof(Json::array_t)));
    Json& value = place();
    value = type;
    open_.push_back(&value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool skip_end() {
    skips_ = --skipped_depth_ > 0;
    return true;
  }

  // A reader that looks a key up would see the first value, others would see the last.
  void check_unique(const Json::object_t& object) {
    keys_.clear();
    for (const auto& [key, value] : object) keys_.push_back(key);
    std::sort(keys_.begin(), keys_.end());
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice == keys_.end()) return;
    constexpr size_t kShownBytes = 64;
    const std::string shown(twice->size() > kShownBytes ? "a long key" : *twice);
    if (open_.size() == 1) throw OptionError(shown, fmt::format("{} comes twice", shown));
    refuse(fmt::format("{} comes twice in one object", shown));
  }

  const std::string_view where_;
  const JsonMembers& members_;
  size_t& bytes_left_;
  Json root_;
  std::vector<Json*> open_;  // from the root to the innermost
  Json* slot_ = nullptr;     // of the key that was read last
  std::string member_;       // the outermost key that was read last
  size_t member_left_ = SIZE_MAX;
  bool packs_ = false;  // what member_ holds
  bool skips_ = false;  // member_ is not kept; how deep in its value:
  int skipped_depth_ = 0;
  std::vector<std::string_view> keys_;
};

}  // namespace

Json parse_members(std::string_view text, std::string_view where, const JsonMembers& members,
                   size_t& bytes_left) {
  MemberReader reader(where, members, bytes_left);
  parse_json_events(text, where, reader);
  return reader.take();
}

std::optional<std::vector<int32_t>> packed_integers(const Json& value) {
  if (!value.is_binary()) return std::nullopt;
  const std::vector<uint8_t>& bytes = value.get_binary();
  std::vector<int32_t> integers(bytes.size() / sizeof(int32_t));
  std::memcpy(integers.data(), bytes.data(), bytes.size());
  return integers;
}

}  // namespace ridge
