#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "model/read.h"

namespace ridge {

namespace {

// Far above real files (a few hundred keys, some ten thousand tensors), far below what would
// exhaust memory.
constexpr uint64_t kMaxKeys = 1 << 20, kMaxTensors = 1 << 20;
constexpr uint64_t kMaxNameLength = 4096;
constexpr uint64_t kMaxTextLength = 1 << 20;  // longer strings (chat templates) keep a prefix
constexpr uint64_t kMaxKeptList = 4096;
constexpr int kMaxListDepth = 4;
constexpr uint64_t kMaxElements = uint64_t{1} << 48;

// ggml's storage types: weights and bytes per block. Blocks as ggml lays them out.
struct GgmlType {
  uint32_t id;
  const char* name;
  DType dtype;
  uint32_t elements, bytes;
};

constexpr std::array kTypes = {
    GgmlType{0, "fp32", DType::fp32, 1, 4},        GgmlType{1, "fp16", DType::fp16, 1, 2},
    GgmlType{2, "q4_0", DType::int4, 32, 18},      GgmlType{3, "q4_1", DType::int4, 32, 20},
    GgmlType{6, "q5_0", DType::int8, 32, 22},      GgmlType{7, "q5_1", DType::int8, 32, 24},
    GgmlType{8, "q8_0", DType::int8, 32, 34},      GgmlType{9, "q8_1", DType::int8, 32, 36},
    GgmlType{10, "q2_k", DType::int4, 256, 84},    GgmlType{11, "q3_k", DType::int4, 256, 110},
    GgmlType{12, "q4_k", DType::int4, 256, 144},   GgmlType{13, "q5_k", DType::int8, 256, 176},
    GgmlType{14, "q6_k", DType::int8, 256, 210},   GgmlType{15, "q8_k", DType::int8, 256, 292},
    GgmlType{16, "iq2_xxs", DType::int4, 256, 66}, GgmlType{17, "iq2_xs", DType::int4, 256, 74},
    GgmlType{18, "iq3_xxs", DType::int4, 256, 98}, GgmlType{19, "iq1_s", DType::int4, 256, 50},
    GgmlType{20, "iq4_nl", DType::int4, 32, 18},   GgmlType{21, "iq3_s", DType::int4, 256, 110},
    GgmlType{22, "iq2_s", DType::int4, 256, 82},   GgmlType{23, "iq4_xs", DType::int4, 256, 136},
    GgmlType{24, "int8", DType::int8, 1, 1},       GgmlType{25, "int16", DType::fp32, 1, 2},
    GgmlType{26, "int32", DType::fp32, 1, 4},      GgmlType{27, "int64", DType::fp64, 1, 8},
    GgmlType{28, "fp64", DType::fp64, 1, 8},       GgmlType{29, "iq1_m", DType::int4, 256, 56},
    GgmlType{30, "bf16", DType::bf16, 1, 2},       GgmlType{34, "tq1_0", DType::int4, 256, 54},
    GgmlType{35, "tq2_0", DType::int4, 256, 66},   GgmlType{39, "mxfp4", DType::fp4, 32, 17},
};

const GgmlType* find_type(uint32_t id) {
  for (const GgmlType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

// Little-endian values in order, every read checked against the end.
class Cursor {
 public:
  Cursor(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  template <typename T>
  T read(const char* what) {
    static_assert(std::endian::native == std::endian::little, "GGUF is read in host order");
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view take(uint64_t length, const char* what) {
    if (length > bytes_.size() - at_) {
      throw Error("{}: truncated: {} needs {} bytes at offset {}, {} are left", where_, what,
                  length, at_, bytes_.size() - at_);
    }
    std::string_view taken = bytes_.substr(at_, length);
    at_ += length;
    return taken;
  }

  std::string_view text(const char* what, uint64_t longest) {
    auto length = read<uint64_t>(what);
    if (length > longest) {
      throw Error("{}: {} of {} bytes, at most {} are read", where_, what, length, longest);
    }
    return take(length, what);
  }

  uint64_t position() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::string_view bytes_;
  const std::string& where_;
  uint64_t at_ = 0;
};

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kTypeCount
};

// Bytes of one value; 0 for strings and arrays, whose length varies.
uint64_t value_size(uint32_t type) {
  constexpr std::array<uint64_t, kTypeCount> kSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[type];
}

uint32_t read_value_type(Cursor& cursor, const std::string& where) {
  auto type = cursor.read<uint32_t>("a value type");
  if (type >= kTypeCount) throw Error("{}: unknown metadata value type {}", where, type);
  return type;
}

nlohmann::json read_number(Cursor& cursor, uint32_t type) {
  constexpr const char* kWhat = "a metadata value";
  switch (type) {
    case kU8:
      return cursor.read<uint8_t>(kWhat);
    case kI8:
      return cursor.read<int8_t>(kWhat);
    case kU16:
      return cursor.read<uint16_t>(kWhat);
    case kI16:
      return cursor.read<int16_t>(kWhat);
    case kU32:
      return cursor.read<uint32_t>(kWhat);
    case kI32:
      return cursor.read<int32_t>(kWhat);
    case kBool:
      return cursor.read<uint8_t>(kWhat) != 0;
    case kU64:
      return cursor.read<uint64_t>(kWhat);
    case kI64:
      return cursor.read<int64_t>(kWhat);
    default:
      break;
  }
  // Not a number or infinite has no JSON; nothing that is read here may be either.
  double value = type == kF32 ? double(cursor.read<float>(kWhat)) : cursor.read<double>(kWhat);
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

// Walks over an array without keeping it.
void skip_array(Cursor& cursor, uint32_t type, uint64_t count, int depth,
                const std::string& where) {
  if (depth > kMaxListDepth) throw Error("{}: metadata arrays nested too deep", where);
  if (value_size(type) > 0) {
    if (count > cursor.left() / value_size(type)) {
      throw Error("{}: truncated: an array of {} values does not fit the file", where, count);
    }
    cursor.take(count * value_size(type), "an array");
    return;
  }
  // Every string or array takes at least eight bytes, so a false count ends at the file's end.
  for (uint64_t i = 0; i < count; ++i) {
    if (type == kString) {
      cursor.take(cursor.read<uint64_t>("a string"), "a string");
    } else {
      uint32_t inner = read_value_type(cursor, where);
      skip_array(cursor, inner, cursor.read<uint64_t>("an array length"), depth + 1, where);
    }
  }
}

void read_array(GgufHeader& header, Cursor& cursor, const std::string& key,
                const std::string& where) {
  uint32_t type = read_value_type(cursor, where);
  auto count = cursor.read<uint64_t>("an array length");
  header.arrays[key] = {type, count, cursor.position()};
  if (value_size(type) == 0 || count > kMaxKeptList) {
    return skip_array(cursor, type, count, 1, where);
  }
  nlohmann::json list = nlohmann::json::array();
  for (uint64_t i = 0; i < count; ++i) list.push_back(read_number(cursor, type));
  header.values[key] = std::move(list);
}

void read_metadata(GgufHeader& header, Cursor& cursor, uint64_t count, const std::string& where) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = cursor.position();
    std::string key(cursor.text("a key", kMaxNameLength));
    uint32_t type = read_value_type(cursor, where);
    if (type == kArray) {
      read_array(header, cursor, key, where);
    } else if (type == kString) {
      auto length = cursor.read<uint64_t>("a string");
      header.values[key] = std::string(cursor.take(length, "a string").substr(0, kMaxTextLength));
    } else {
      header.values[key] = read_number(cursor, type);
    }
    header.pairs.push_back({std::move(key), begin, cursor.position()});
  }
}

GgufTensor read_tensor(Cursor& cursor, const std::string& where) {
  GgufTensor tensor;
  tensor.name = std::string(cursor.text("a tensor name", kMaxNameLength));
  auto dimensions = cursor.read<uint32_t>("a tensor's dimensions");
  if (dimensions < 1 || dimensions > 4) {
    throw Error("{}: tensor {} has {} dimensions", where, tensor.name, dimensions);
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dimensions; ++d) {
    auto extent = cursor.read<uint64_t>("a tensor's dimension");
    if (extent == 0 || extent > kMaxElements / elements) {
      throw Error("{}: tensor {} has an impossible dimension {}", where, tensor.name, extent);
    }
    elements *= extent;
    tensor.shape.push_back(int64_t(extent));
  }
  auto id = cursor.read<uint32_t>("a tensor's type");
  const GgmlType* type = find_type(id);
  if (type == nullptr) {
    throw Error("{}: tensor {} has ggml type {}, which is not known", where, tensor.name, id);
  }
  if (uint64_t(tensor.shape[0]) % type->elements != 0) {
    throw Error("{}: tensor {}: {} rows of {} do not fill its blocks of {}", where, tensor.name,
                type->name, tensor.shape[0], type->elements);
  }
  tensor.elements = double(elements);
  tensor.bytes = elements / type->elements * type->bytes;
  tensor.format = {type->dtype, 8.0 * type->bytes / type->elements, type->name};
  tensor.offset = cursor.read<uint64_t>("a tensor's offset");
  return tensor;
}

uint64_t alignment_of(const GgufHeader& header, const std::string& where) {
  auto found = header.values.find("general.alignment");
  if (found == header.values.end()) return 32;
  bool valid = found->second.is_number_unsigned() && found->second > 0u &&
               found->second <= (1u << 20) && std::has_single_bit(found->second.get<uint64_t>());
  if (!valid) throw Error("{}: general.alignment must be a power of two up to 2^20", where);
  return found->second.get<uint64_t>();
}

}  // namespace

GgufHeader parse_gguf(std::string_view file, const std::string& where) {
  if (!file.starts_with("GGUF")) throw Error("{}: not a GGUF file", where);
  Cursor cursor(file, where);
  cursor.take(4, "the magic number");
  auto version = cursor.read<uint32_t>("the version");
  if (version != 2 && version != 3) {
    throw Error("{}: GGUF version {} is not supported, 2 and 3 are", where, version);
  }
  auto tensors = cursor.read<uint64_t>("the tensor count");
  auto keys = cursor.read<uint64_t>("the key count");
  if (tensors > kMaxTensors || keys > kMaxKeys) {
    throw Error("{}: {} tensors and {} keys, at most {} of each are read", where, tensors, keys,
                kMaxKeys);
  }
  GgufHeader header;
  read_metadata(header, cursor, keys, where);
  uint64_t alignment = alignment_of(header, where);
  std::vector<GgufTensor> placed;
  for (uint64_t i = 0; i < tensors; ++i) placed.push_back(read_tensor(cursor, where));
  std::sort(placed.begin(), placed.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.offset < b.offset; });

  uint64_t start = (cursor.position() + alignment - 1) / alignment * alignment;
  uint64_t data = file.size() > start ? file.size() - start : 0;
  uint64_t end = 0;
  for (GgufTensor& tensor : placed) {
    if (tensor.offset % alignment != 0 || tensor.offset > data ||
        tensor.bytes > data - tensor.offset) {
      throw Error("{}: tensor {}: its {} bytes at offset {} do not lie in the file's data of {}",
                  where, tensor.name, tensor.bytes, tensor.offset, data);
    }
    if (tensor.offset < end) {
      throw Error("{}: tensor {} overlaps the one before it", where, tensor.name);
    }
    end = tensor.offset + tensor.bytes;
    tensor.offset += start;
    header.tensor_bytes += tensor.bytes;
    std::string name = tensor.name;
    if (!header.tensors.emplace(name, std::move(tensor)).second) {
      throw Error("{}: tensor {} appears twice", where, name);
    }
  }
  return header;
}

std::vector<std::string_view> gguf_strings(std::string_view file, const GgufHeader& header,
                                           std::string_view key, const std::string& where) {
  std::vector<std::string_view> strings;
  auto found = header.arrays.find(key);
  if (found == header.arrays.end()) return strings;
  const GgufArray& array = found->second;
  if (array.type != kString) throw Error("{}: {} must be a list of strings", where, key);
  Cursor cursor(file, where);
  cursor.take(array.offset, "an array");
  strings.reserve(array.count);  // walked over before, so the count is true
  for (uint64_t i = 0; i < array.count; ++i) {
    strings.push_back(cursor.take(cursor.read<uint64_t>("a string"), "a string"));
  }
  return strings;
}

std::vector<double> gguf_numbers(std::string_view file, const GgufHeader& header,
                                 std::string_view key, const std::string& where) {
  std::vector<double> numbers;
  auto found = header.arrays.find(key);
  if (found == header.arrays.end()) return numbers;
  const GgufArray& array = found->second;
  if (value_size(array.type) == 0) throw Error("{}: {} must be a list of numbers", where, key);
  Cursor cursor(file, where);
  cursor.take(array.offset, "an array");
  numbers.reserve(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    const nlohmann::json number = read_number(cursor, array.type);
    if (number.is_null()) throw Error("{}: {} holds what is no number", where, key);
    numbers.push_back(number.is_boolean() ? double(number.get<bool>()) : number.get<double>());
  }
  return numbers;
}

// Large models come in pieces; the first holds the metadata.
std::vector<std::string> gguf_pieces(const std::string& path, const GgufHeader& header) {
  auto split = header.values.find("split.count");
  if (split == header.values.end() || !split->second.is_number_unsigned() || split->second <= 1u) {
    return {path};
  }
  const auto count = split->second.get<uint64_t>();
  constexpr uint64_t kMaxPieces = 1000;
  constexpr size_t kTail = sizeof("-00001-of-00003.gguf") - 1;
  std::string tail = path.size() > kTail ? path.substr(path.size() - kTail) : "";
  if (count > kMaxPieces || tail != fmt::format("-00001-of-{:05}.gguf", count)) {
    throw Error("{}: one of {} pieces: name the first, *-00001-of-{:05}.gguf", path, count, count);
  }
  std::vector<std::string> pieces{path};
  std::string stem = path.substr(0, path.size() - kTail);
  for (uint64_t i = 2; i <= count; ++i) {
    pieces.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, count));
  }
  return pieces;
}

Model model_from_gguf(const std::string& path) {
  GgufHeader header = parse_gguf(MappedFile(path).bytes(), path);
  const std::vector<std::string> pieces = gguf_pieces(path, header);
  for (size_t i = 1; i < pieces.size(); ++i) {
    GgufHeader other = parse_gguf(MappedFile(pieces[i]).bytes(), pieces[i]);
    header.tensor_bytes += other.tensor_bytes;
    header.tensors.merge(other.tensors);
  }
  Model model = model_from_gguf_header(header, path);
  model.source = path;
  return model;
}

}  // namespace ridge
