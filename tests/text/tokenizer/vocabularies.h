// Small vocabularies of every kind, made in code: fixtures for the tests and seeds for the fuzzer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/byte_level.h"

namespace ridge::sample {

using Merges = std::vector<std::pair<std::string, std::string>>;

inline nlohmann::json added_token(int id, const std::string& text, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Byte-level BPE: the 256 bytes are ids 0-255, what the merges make follows in order.
inline nlohmann::json byte_level_json(const Merges& merges) {
  nlohmann::json vocab, list = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_characters()[size_t(byte)]] = byte;
  int next = 256;
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = next++;
    list.push_back(left + " " + right);
  }
  return {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens", nlohmann::json::array()}};
}

// Llama 2's shape: <unk> <s> </s>, the 256 bytes as <0x00> from 3, then `pieces`.
inline nlohmann::json llama2_json(const std::vector<std::string>& pieces, const Merges& merges) {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}, list = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", unsigned(byte));
    vocab[name] = 3 + byte;
  }
  int next = 259;
  for (const std::string& piece : pieces) vocab[piece] = next++;
  for (const auto& [left, right] : merges) list.push_back({left, right});
  return {
      {"added_tokens",
       {added_token(0, "<unk>", true), added_token(1, "<s>", true), added_token(2, "</s>", true)}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "▁"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", list}}}};
}

inline nlohmann::json unigram_json(const std::vector<std::pair<std::string, double>>& pieces) {
  nlohmann::json vocab = nlohmann::json::array();
  for (const auto& [piece, score] : pieces) vocab.push_back({piece, score});
  return {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}},
          {"pre_tokenizer",
           {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}}},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}}}};
}

}  // namespace ridge::sample
