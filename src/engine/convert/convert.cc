// Writes weights to another file: computes the layout, then threads fill it row by row.
#include "engine/convert/convert.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace ridge {

namespace {

namespace fs = std::filesystem;

std::vector<OutTensor> lay_out(const Weights& weights, Storage storage, FileKind kind) {
  std::vector<OutTensor> tensors;
  for (const ConstSlot& slot : slots_of(weights)) {
    if (slot.vector && slot.vector->empty()) continue;  // a zero bias is not written
    OutTensor tensor;
    tensor.name = tensor_name(kind, weights.architecture, slot.role, slot.layer, slot.expert);
    tensor.shape = {slot.rows};
    if (slot.matrix) {
      tensor.shape.push_back(slot.columns);
      tensor.storage = storage_for(slot.role, slot.columns, storage);
    }
    if (!tensors.empty() && tensors.back().name == tensor.name) {
      tensors.back().slots.push_back(slot);  // the next expert of the same tensor
      continue;
    }
    if (kind == FileKind::gguf && slot.expert >= 0) {
      tensor.shape.insert(tensor.shape.begin(), weights.architecture.experts);
    }
    tensor.slots.push_back(slot);
    int64_t count = 1;
    for (int64_t extent : tensor.shape) count *= extent;
    tensor.bytes = storage_bytes(tensor.storage, count);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

struct Job {  // some rows of one matrix
  const OutTensor* tensor;
  const ConstSlot* slot;
  std::byte* to;  // address of row 0
  int64_t first, last;
};

class Writer {
 public:
  Writer(const Weights& weights, FileKind kind, std::byte* file)
      : weights_(weights), kind_(kind), file_(file) {}

  void add(const OutTensor& tensor) {
    std::byte* to = file_ + tensor.offset;
    if (tensor.slots.empty()) return void(std::memcpy(to, tensor.own.data(), tensor.bytes));
    for (const ConstSlot& slot : tensor.slots) {
      if (slot.vector) {
        write_vector(slot, to);
        continue;
      }
      const auto stride = int64_t(storage_bytes(tensor.storage, slot.columns));
      const int64_t rows = std::max<int64_t>(1, (1 << 20) / stride);
      for (int64_t row = 0; row < slot.rows; row += rows) {
        jobs_.push_back({&tensor, &slot, to, row, std::min(slot.rows, row + rows)});
      }
      to += slot.rows * stride;
    }
  }

  // Worker threads write; the calling thread reports progress.
  void run(const Progress& progress, double total) {
    const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 64);
    std::vector<std::jthread> workers;
    for (size_t t = 0; t < threads; ++t) {
      workers.emplace_back([this] {
        std::vector<float> row;
        for (size_t i = next_++; i < jobs_.size(); i = next_++) write(jobs_[i], row);
        const std::lock_guard lock(mutex_);
        ++ended_;
        ended_changed_.notify_one();
      });
    }
    std::unique_lock lock(mutex_);
    const auto tick = std::chrono::milliseconds(100);
    while (!ended_changed_.wait_for(lock, tick, [&] { return ended_ == threads; })) {
      if (progress) progress(double(done_), total);
    }
    if (progress) progress(total, total);
  }

 private:
  void write_vector(const ConstSlot& slot, std::byte* to) {
    Vector values = *slot.vector;
    // transformers stores w where the norm multiplies by 1 + w.
    if (kind_ == FileKind::safetensors && weights_.architecture.norm_plus_one &&
        is_norm(slot.role)) {
      for (float& value : values) value -= 1;
    }
    if (interleaves(slot)) {
      for (int64_t row = 0; row < slot.rows; ++row) {
        values[size_t(file_row(row, weights_.architecture, slot.role))] =
            (*slot.vector)[size_t(row)];
      }
    }
    std::memcpy(to, values.data(), values.size() * sizeof(float));
  }

  bool interleaves(const ConstSlot& slot) const {
    return interleaves_rows(kind_, weights_.architecture, slot.role);
  }

  void write(const Job& job, std::vector<float>& values) {
    const Matrix& from = *job.slot->matrix;
    const Storage storage = job.tensor->storage;
    const size_t stride = storage_bytes(storage, from.columns);
    const bool moves = interleaves(*job.slot);
    values.resize(size_t(from.columns));
    for (int64_t row = job.first; row < job.last; ++row) {
      const int64_t target = moves ? file_row(row, weights_.architecture, job.slot->role) : row;
      std::byte* to = job.to + target * int64_t(stride);
      if (storage == from.storage) {
        std::memcpy(to, from.row(row), stride);
      } else {
        dequantize(from.storage, from.row(row), from.columns, values.data());
        quantize(storage, values.data(), from.columns, to);
      }
    }
    done_ += stride * uint64_t(job.last - job.first);
  }

  const Weights& weights_;
  FileKind kind_;
  std::byte* file_;
  std::vector<Job> jobs_;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  size_t ended_ = 0;
};

void write_tensors(const Weights& weights, FileKind kind, const std::string& head,
                   const std::vector<OutTensor>& tensors, const std::string& path,
                   const Progress& progress) {
  uint64_t end = head.size();
  for (const OutTensor& tensor : tensors) end = std::max(end, tensor.offset + tensor.bytes);
  OutputFile file(path, end);
  std::memcpy(file.data(), head.data(), head.size());
  Writer writer(weights, kind, file.data());
  for (const OutTensor& tensor : tensors) writer.add(tensor);
  writer.run(progress, double(end));
  file.finish();
}

std::string safetensors_head(std::vector<OutTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const OutTensor& tensor : tensors) {
    const char* dtype = tensor.storage == Storage::f32   ? "F32"
                        : tensor.storage == Storage::f16 ? "F16"
                                                         : "BF16";
    header[tensor.name] = {{"dtype", dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  // The data starts at a multiple of 64 bytes.
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  const uint64_t length = text.size();
  const std::string head = std::string(reinterpret_cast<const char*>(&length), 8) + text;
  offset = head.size();
  for (OutTensor& tensor : tensors) {
    tensor.offset = offset;
    offset += tensor.bytes;
  }
  return head;
}

void copy_companions(const fs::path& from, const fs::path& to, Storage storage) {
  nlohmann::json config = read_json((from / "config.json").string());
  const char* dtype = storage == Storage::f32   ? "float32"
                      : storage == Storage::f16 ? "float16"
                                                : "bfloat16";
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.contains(key)) config[key] = dtype;
    if (config.contains("text_config") && config["text_config"].contains(key)) {
      config["text_config"][key] = dtype;
    }
  }
  if (!config.contains("dtype")) config["torch_dtype"] = dtype;
  config.erase("quantization_config");  // of an fp8 source
  config.erase("compression_config");
  write_file((to / "config.json").string(), config.dump(2) + "\n");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
        "generation_config.json", "chat_template.jinja"}) {
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name);
  }
}

// Writes a temporary folder next to the destination and renames it at the end.
void write_folder(const Weights& weights, Storage storage, std::vector<OutTensor>& tensors,
                  const std::string& path, const Progress& progress) {
  const fs::path from = weights.described_by;
  if (storage_info(storage).block > 1) {
    throw Error("safetensors hold f32, f16 or bf16; {} goes into a GGUF",
                storage_info(storage).name);
  }
  if (!fs::is_directory(from)) {
    throw Error("{}: a folder of safetensors is made from a folder; from this, a GGUF can be",
                weights.source);
  }
  fs::path to = fs::path(path).lexically_normal();
  if (to.filename().empty()) to = to.parent_path();
  if (fs::exists(to)) throw Error("{}: is there already", to.string());
  const fs::path partial = to.string() + ".partial";
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  try {
    if (!fs::create_directory(partial)) throw Error("{}: cannot be made", partial.string());
    copy_companions(from, partial, storage);
    const std::string head = safetensors_head(tensors);
    write_tensors(weights, FileKind::safetensors, head, tensors,
                  (partial / "model.safetensors").string(), progress);
    fs::rename(partial, to);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(partial, ignored);
    throw Error("{}: {}", path, error.code().message());
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace

Converted convert_weights(const Weights& weights, Storage storage, FileKind kind,
                          const std::string& path, const Progress& progress) {
  const std::string& family = weights.architecture.family;
  if (family == "phi3" || family == "glm4" || family == "gpt_oss" || family == "llama4_text") {
    throw Error("{}: models of the family {} are not converted yet", weights.source, family);
  }
  if (storage == Storage::fp8) {
    throw Error("fp8 is read from released checkpoints and not written: q8_0 has as many bits");
  }
  std::vector<OutTensor> tensors = lay_out(weights, storage, kind);
  Converted made;
  double elements = 0, bytes = 0;
  for (const OutTensor& tensor : tensors) {
    double count = 1;
    for (int64_t extent : tensor.shape) count *= double(extent);
    elements += count;
    bytes += double(tensor.bytes);
    const bool router = tensor.slots[0].role == TensorRole::router;
    if (tensor.slots[0].matrix && !router && tensor.storage != storage) {
      made.kept_bytes += double(tensor.bytes);
    }
  }
  made.bits = 8 * bytes / elements;
  if (kind == FileKind::safetensors) {
    write_folder(weights, storage, tensors, path, progress);
    for (const auto& entry : fs::directory_iterator(path)) made.bytes += double(entry.file_size());
  } else {
    std::error_code error;
    if (fs::is_directory(path, error)) throw Error("{}: is a folder", path);
    if (fs::equivalent(path, weights.described_by, error)) {
      throw Error("{}: a model cannot be written over itself", path);
    }
    const GgufPairs pairs = gguf_metadata(weights, storage, tensors);
    write_tensors(weights, kind, gguf_head(pairs, tensors), tensors, path, progress);
    made.bytes = double(fs::file_size(path));
  }
  return made;
}

}  // namespace ridge
