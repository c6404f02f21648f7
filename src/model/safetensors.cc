#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/read.h"

namespace ridge {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr size_t kMaxShards = 4096;
constexpr uint64_t kMaxTensorElements = uint64_t{1} << 48;

struct TypeBits {
  std::string_view name;
  uint64_t bits;
};

constexpr std::array kElementTypes = {
    TypeBits{"F64", 64},    TypeBits{"F32", 32},    TypeBits{"F16", 16},    TypeBits{"BF16", 16},
    TypeBits{"F8_E4M3", 8}, TypeBits{"F8_E5M2", 8}, TypeBits{"F8_E8M0", 8}, TypeBits{"F4", 4},
    TypeBits{"F6_E2M3", 6}, TypeBits{"F6_E3M2", 6}, TypeBits{"I64", 64},    TypeBits{"I32", 32},
    TypeBits{"I16", 16},    TypeBits{"I8", 8},      TypeBits{"U64", 64},    TypeBits{"U32", 32},
    TypeBits{"U16", 16},    TypeBits{"U8", 8},      TypeBits{"BOOL", 8},
};

uint64_t bits_of(const std::string& dtype, const std::string& where) {
  for (const TypeBits& type : kElementTypes) {
    if (type.name == dtype) return type.bits;
  }
  throw Error("{}: dtype \"{}\" is not known", where, dtype.substr(0, 40));
}

struct Extent {
  uint64_t begin, end;
};

uint64_t unsigned_at(const json& list, size_t index, const std::string& where, const char* key) {
  if (!list[index].is_number_unsigned()) {
    throw Error("{}: {} must hold whole numbers", where, key);
  }
  return list[index].get<uint64_t>();
}

// One entry of the header: checks that shape, type and extent agree.
SafeTensor read_entry(const std::string& name, const json& entry, uint64_t data, Extent& extent,
                      const std::string& file) {
  std::string where = file + ": tensor " + name.substr(0, 200);
  SafeTensor tensor;
  tensor.name = name;
  auto dtype = string_field(entry, "dtype", where);
  if (!dtype) throw Error("{}: dtype is missing", where);
  tensor.dtype = *dtype;
  for (const char* key : {"shape", "data_offsets"}) {
    if (!entry.contains(key) || !entry.at(key).is_array()) {
      throw Error("{}: {} must be a list", where, key);
    }
  }
  const json& shape = entry.at("shape");
  uint64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t size = unsigned_at(shape, d, where, "shape");
    if (size > kMaxTensorElements || (size > 0 && elements > kMaxTensorElements / size)) {
      throw Error("{}: its shape has more than 2^48 elements", where);
    }
    elements *= size;
    tensor.shape.push_back(int64_t(size));
  }
  const json& offsets = entry.at("data_offsets");
  if (offsets.size() != 2) throw Error("{}: data_offsets must hold two numbers", where);
  extent = {unsigned_at(offsets, 0, where, "data_offsets"),
            unsigned_at(offsets, 1, where, "data_offsets")};
  if (extent.begin > extent.end || extent.end > data) {
    throw Error("{}: data_offsets {} to {} do not lie in the file's data of {} bytes", where,
                extent.begin, extent.end, data);
  }
  tensor.elements = double(elements);
  tensor.bytes = extent.end - extent.begin;
  uint64_t expected = (elements * bits_of(tensor.dtype, where) + 7) / 8;
  if (tensor.bytes != expected) {
    throw Error("{}: {} bytes, but its shape and dtype need {}", where, tensor.bytes, expected);
  }
  return tensor;
}

}  // namespace

std::vector<std::string> safetensors_files(const std::string& where) {
  const fs::path folder = where;
  std::set<std::string> shards;
  fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) {
    json parsed = read_json(index.string());
    if (!parsed.is_object() || !parsed.contains("weight_map") ||
        !parsed.at("weight_map").is_object()) {
      throw Error("{}: weight_map must be an object", index.string());
    }
    for (const auto& [name, file] : parsed.at("weight_map").items()) {
      if (!file.is_string()) throw Error("{}: weight_map must hold file names", index.string());
      fs::path relative = file.get<std::string>();
      // A name, never a way out of the folder.
      if (relative.empty() || relative.has_parent_path() || relative == "..") {
        throw Error("{}: weight_map names \"{}\", not a file beside it", index.string(),
                    relative.string());
      }
      shards.insert((folder / relative).string());
    }
  } else {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") shards.insert(entry.path().string());
    }
  }
  if (shards.empty()) throw Error("{}: no safetensors files", folder.string());
  if (shards.size() > kMaxShards) {
    throw Error("{}: {} files, at most {} are read", folder.string(), shards.size(), kMaxShards);
  }
  return {shards.begin(), shards.end()};
}

std::vector<SafeTensor> parse_safetensors(std::string_view file, const std::string& where) {
  uint64_t length = 0;
  if (file.size() < sizeof(length)) throw Error("{}: too short for a safetensors file", where);
  std::memcpy(&length, file.data(), sizeof(length));
  uint64_t limit = std::min<uint64_t>(kMaxHeader, file.size() - sizeof(length));
  if (length > limit) {
    throw Error("{}: its header claims {} bytes, at most {} are possible", where, length, limit);
  }
  json header = parse_json(file.substr(sizeof(length), length), where);
  if (!header.is_object()) throw Error("{}: the header must be a JSON object", where);
  uint64_t data = file.size() - sizeof(length) - length;
  std::vector<SafeTensor> tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Extent extent{};
    tensors.push_back(read_entry(name, entry, data, extent, where));
    tensors.back().offset = sizeof(length) + length + extent.begin;
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) throw Error("{}: tensors overlap", where);
  }
  return tensors;
}

Model model_from_safetensors(const std::string& path) {
  fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  fs::path config = folder / "config.json";
  if (!fs::exists(config)) {
    throw Error("{}: weights without dimensions: a config.json must lie beside them", path);
  }
  Model model = read_config(read_json(config.string()), config.string());
  bool whole = fs::is_directory(path);
  const std::vector<std::string> files =
      whole ? safetensors_files(folder.string()) : std::vector<std::string>{path};
  double bytes = 0, elements = 0;
  bool packed = false;  // several weights in one element, so elements are not parameters
  for (const std::string& file : files) {
    MappedFile mapped(file);
    for (const SafeTensor& tensor : parse_safetensors(mapped.bytes(), file)) {
      bytes += double(tensor.bytes);
      elements += tensor.elements;
      packed = packed || tensor.dtype == "I32" || tensor.dtype == "U8" || tensor.dtype == "F8_E8M0";
    }
  }
  model.source = path;
  if (bytes == 0) throw Error("{}: the files hold no tensors", path);
  double expected = parameters(model);
  bool complete = packed || elements > 0.9 * expected;
  if (!whole && !complete) {
    model.notes.push_back("one of several files: bytes are those the config implies");
    return model;
  }
  model.exact_weight_bytes = bytes;
  if (!packed && std::abs(elements - expected) > 0.01 * expected) {
    model.notes.push_back(fmt::format("the files hold {:.4g} parameters, the config implies {:.4g}",
                                      elements, expected));
  }
  return model;
}

}  // namespace ridge
