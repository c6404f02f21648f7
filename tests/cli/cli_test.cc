// The program as people and scripts meet it: exit codes, one clear line, output that parses.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string out, error;
};

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ridge-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  Ran run(const std::string& arguments) const {
    const fs::path errors = folder_ / "stderr";
    const std::string command =
        std::string(RIDGE_BINARY) + " " + arguments + " 2>" + errors.string() + " </dev/null";
    Ran ran;
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return ran;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) ran.out.append(buffer, n);
    const int status = pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.error = slurp(errors);
    return ran;
  }

  // Exit 2, nothing on standard output, one line that starts with the program's name.
  std::string refused(const std::string& arguments) const {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << arguments;
    EXPECT_EQ(ran.out, "") << arguments;
    EXPECT_TRUE(ran.error.starts_with("ridge: ")) << arguments << ": " << ran.error;
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
    EXPECT_EQ(ran.error.find("internal error"), std::string::npos) << ran.error;
    return ran.error;
  }

  Json json(const std::string& arguments) const {
    const Ran ran = run(arguments + " --json");
    EXPECT_EQ(ran.code, 0) << arguments << ": " << ran.error;
    Json value = Json::parse(ran.out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << arguments;
    return value;
  }

  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  fs::path folder_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t columns_of(const std::string& line) {
  return 1 + size_t(std::count(line.begin(), line.end(), ','));
}

TEST_F(Cli, UnknownNamesSuggestTheNearest) {
  EXPECT_TRUE(has(refused("predict -m lama-3-8b"), "llama-3-8b"));
  EXPECT_TRUE(has(refused("predict -M h100-smx"), "h100-sxm"));
  EXPECT_TRUE(has(refused("machine h100-smx"), "h100-sxm"));
  EXPECT_TRUE(has(refused("model lama-3-8b"), "llama-3-8b"));
  EXPECT_TRUE(has(refused("predict --stack typcal"), "typical"));
  EXPECT_TRUE(has(refused("predict --weights fp99"), "fp8"));
  EXPECT_TRUE(has(refused("tiles --dtype fp99"), "fp8"));
}

TEST_F(Cli, BadNumbersAreNamed) {
  for (const char* value : {"0", "-1", "nan", "inf", "1e300", "abc", "1.5"}) {
    EXPECT_TRUE(has(refused(std::string("predict --batch ") + value), "--batch")) << value;
    EXPECT_TRUE(has(refused(std::string("predict --context ") + value), "--context")) << value;
  }
  for (const char* value : {"0", "-1", "nan", "1e300", "2.5"}) {
    EXPECT_TRUE(has(refused(std::string("predict --tp ") + value), "--tp")) << value;
  }
  for (const char* value : {"-0.1", "1.1", "nan"}) {
    EXPECT_TRUE(has(refused(std::string("predict --offload ") + value), "--offload")) << value;
  }
  for (const char* value : {"0", "-5", "nan", "1e300", "5parsecs"}) {
    EXPECT_TRUE(has(refused(std::string("explain --itl ") + value), "--itl")) << value;
    EXPECT_TRUE(has(refused(std::string("explain --observed ") + value), "--observed")) << value;
  }
  EXPECT_TRUE(has(refused("explain --itl 9ms --dram-active 95"), "--dram-active"));
  EXPECT_TRUE(has(refused("explain"), "--observed"));
  EXPECT_TRUE(has(refused("predict --tp 100000 --pp 100000"), "devices"));
  refused("predict -p 1e9 --chunk 1");
  refused("predict -M 0xh100-sxm");
  refused("predict -M 99999999999xh100-sxm");
}

TEST_F(Cli, UnitsAreReadAsPeopleWriteThem) {
  EXPECT_TRUE(has(refused("explain --itl 12"), "12ms or 12s"));
  EXPECT_TRUE(has(refused("explain --ttft 0.9"), "0.9ms or 0.9s"));
  EXPECT_EQ(json("explain --itl 12ms --gpu-util 85%"),
            json("explain --itl 0.012s --gpu-util 0.85"));
  EXPECT_EQ(json("explain --observed '280 tokens/s'"), json("explain --observed 280"));
  EXPECT_EQ(json("predict --prefix-hit 85%"), json("predict --prefix-hit 0.85"));
  EXPECT_EQ(json("predict --price '$2.5'"), json("predict --price 2.5"));
  EXPECT_TRUE(has(refused("predict --price '2$5'"), "--price"));
  EXPECT_TRUE(has(refused("predict --batch 85%"), "--batch"));
  EXPECT_TRUE(has(refused("predict --price 85%"), "--price"));
}

TEST_F(Cli, NamesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(json("predict --weights Q4_K_M"), json("predict --weights q4_k_m"));
  EXPECT_EQ(json("predict --weights AWQ"), json("predict --weights int4"));
  EXPECT_EQ(json("predict --weights gptq"), json("predict --weights int4"));
  EXPECT_EQ(json("predict --weights fp4"), json("predict --weights nvfp4"));
  EXPECT_EQ(json("predict --stack vLLM"), json("predict --stack vllm"));
  EXPECT_EQ(json("predict --stack TensorRT-LLM"), json("predict --stack trtllm"));
  EXPECT_TRUE(has(refused("predcit -m llama-3-8b"), "did you mean predict"));
  EXPECT_TRUE(has(refused("--atlas . machin"), "did you mean machine"));
}

TEST_F(Cli, TensorParallelismCutsHeadsEvenly) {
  EXPECT_TRUE(has(refused("predict -m llama-3-70b -M 8xh100-sxm --tp 3"), "64 attention heads"));
  EXPECT_EQ(run("predict -m llama-3-70b -M 8xh100-sxm --tp 4").code, 0);
}

TEST_F(Cli, WhatDoesNotFitHasNoRate) {
  const std::string text = run("predict -m llama-3-70b -M h100-sxm").out;
  EXPECT_TRUE(has(text, "does not fit"));
  EXPECT_FALSE(has(text, "tok/s"));
  EXPECT_FALSE(has(text, "per million tokens"));
}

TEST_F(Cli, TheFirstLineNamesTheStack) {
  const auto first = [&](const std::string& arguments) {
    return lines_of(run("predict " + arguments).out).front();
  };
  EXPECT_TRUE(has(first("-M h100-sxm"), "stack vllm"));
  EXPECT_TRUE(has(first("-M h100-sxm"), "the default for h100-sxm"));
  EXPECT_TRUE(has(first("-M rtx-4090"), "stack llama.cpp"));
  EXPECT_TRUE(has(first("-M mi300x"), "stack typical"));
  EXPECT_FALSE(has(first("-M mi300x --stack typical"), "the default for"));
  EXPECT_TRUE(has(first("-M h100-sxm -b 1,2"), "stack vllm"));
  EXPECT_TRUE(has(run("predict -M 8xh100-sxm").out, "layouts that fit"));
}

TEST_F(Cli, EmptyValuesAreNotDefaults) {
  for (const char* name : {"model", "machine", "stack", "batch", "context", "prompt"}) {
    const std::string option = std::string("--") + name;
    EXPECT_TRUE(has(refused("predict " + option + " ''"), option)) << name;
  }
}

TEST_F(Cli, OptionsWithoutEffectAreRefused) {
  for (const char* option : {"--weights", "--kv", "--activations", "--svg", "--draft"}) {
    EXPECT_TRUE(has(refused(std::string("predict ") + option + " ''"), option)) << option;
  }
  refused("machine ''");
  refused("model ''");
  EXPECT_TRUE(has(refused("predict --output 64"), "--clients"));
  EXPECT_TRUE(has(refused("predict --acceptance 0.5"), "--speculate"));
  EXPECT_TRUE(has(refused("predict --draft llama-3.2-1b"), "--speculate"));
  EXPECT_TRUE(has(refused("predict --reserve 64"), "--no-paging"));
  EXPECT_TRUE(has(refused("predict --ep 2"), "no experts"));
  EXPECT_TRUE(has(refused("predict --expert-skew 1"), "no experts"));
  EXPECT_EQ(run("predict -m llama-3-8b,mixtral-8x7b --expert-skew 1").code, 0);
  refused("explain --itl 9ms --clients 4");
  EXPECT_TRUE(has(refused("explain --itl 9ms --levers -1"), "--levers"));
  EXPECT_EQ(json("explain -m llama-3-8b -M h100-sxm --itl 9ms --levers 2")["levers"].size(), 2u);
  EXPECT_TRUE(has(refused("run x --seed -1"), "--seed"));
  EXPECT_TRUE(has(refused("run x -i"), "not both"));
  EXPECT_TRUE(has(refused("run x --prompt-file " + write("p", "y")), "not both"));
  EXPECT_TRUE(has(refused("run x --system y"), "--chat"));
  EXPECT_TRUE(has(refused("run x --logprobs 3"), "--json"));
  EXPECT_TRUE(has(refused("measure --tolerance 3"), "--compare"));
  EXPECT_TRUE(has(refused("run x --format int4"), "--format int4"));
  EXPECT_TRUE(has(refused("bench --format q3_k"), "--format q3_k"));
}

TEST_F(Cli, AReportOfWrongOptionsIsNotWritten) {
  const std::string page = (folder_ / "r.html").string();
  for (const char* option : {"--target foo", "--target 0", "--compare nope", "--clients 4"}) {
    refused("report -o " + page + " " + option);
  }
  EXPECT_FALSE(fs::exists(page));
}

TEST_F(Cli, BadSweepsAndTiles) {
  for (const char* sweep : {"1,2,3,5..9", "5..1", ",,", "1..", "..4", "1,2..x", "1..1e9"}) {
    refused(std::string("predict --batch ") + sweep);
  }
  EXPECT_TRUE(has(refused("predict -b 1..1000 -c 1..1000"), "100000 points"));
  EXPECT_TRUE(has(refused("explain --itl 9ms -c 1,2"), "context"));
  for (const char* tile : {"128x128", "0x1x1", "-1x128x64", "axbxc", "128x128x64x2", "1e9x1x1"}) {
    refused(std::string("tiles --tile ") + tile);
  }
  refused("tiles --stages 0");
  refused("tiles --steps -1");
  refused("tiles --reuse nan");
}

TEST_F(Cli, UnknownOptionsAndCommands) {
  EXPECT_TRUE(has(refused("frobnicate"), "unknown command 'frobnicate'; ridge --help lists them"));
  EXPECT_TRUE(has(refused("predict --frobnicate"), "--frobnicate (see ridge predict --help)"));
  EXPECT_TRUE(has(refused("--frobnicate"), "--frobnicate (see ridge --help)"));
  EXPECT_TRUE(has(refused("predict --batch"), "--batch"));
  refused("--atlas /nonexistent predict");
}

TEST_F(Cli, HostileModelFiles) {
  const std::string config = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 14336, "vocab_size": 128256})";
  EXPECT_EQ(run("predict -m " + write("config.json", config)).code, 0);
  EXPECT_TRUE(has(refused("predict -m /nonexistent/config.json"), "no such file"));
  refused("predict -m " + write("truncated.json", config.substr(0, config.size() / 2)));
  refused("predict -m " + write("empty.json", ""));
  refused("predict -m " + write("array.json", "[1, 2, 3]"));
  refused("predict -m " + write("nan.json", R"({"model_type": "llama", "hidden_size": NaN})"));
  refused("predict -m " + write("binary.json", std::string("\0\xff\xfe{", 4)));
  refused("predict -m " + write("deep.json", std::string(200000, '[')));
  std::string nested = config;
  nested.back() = ',';
  nested += "\"x\":" + std::string(5000, '[') + std::string(5000, ']') + "}";
  refused("predict -m " + write("nested.json", nested));
  std::string missing = config;
  missing.replace(missing.find("hidden_size"), 11, "hidden_sise");
  EXPECT_TRUE(has(refused("predict -m " + write("missing.json", missing)), "hidden_size"));
  std::string family = config;
  family.replace(family.find("\"llama\""), 7, "\"yodel\"");
  family.replace(family.find("LlamaForCausalLM"), 16, "YodelForCausalLM");
  EXPECT_TRUE(has(refused("predict -m " + write("family.json", family)), "yodel"));
  for (const char* number : {"0", "-4096", "1e300", "4096.5", "\"big\"", "null"}) {
    std::string absurd = config;
    absurd.replace(absurd.find("4096"), 4, number);
    refused("predict -m " + write("absurd.json", absurd));
  }
  // 65 MB, sparse: refused by size before it is read.
  const std::string huge = write("huge.json", config);
  fs::resize_file(huge, 65u << 20);
  EXPECT_TRUE(has(refused("predict -m " + huge), "arger"));
  // Other headers, cut short.
  refused("predict -m " + write("cut.gguf", std::string("GGUF\3\0\0\0\xff\xff", 10)));
  refused("predict -m " +
          write("cut.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8)));
}

TEST_F(Cli, UnwritablePicturesLeaveNothing) {
  refused("predict --svg /nonexistent/x.svg");
  refused("predict -b 1,2,4 --svg /nonexistent/x.svg");
  refused("predict -M h100-sxm,h200 --svg " + (folder_ / "names.svg").string());  // no number swept
  EXPECT_FALSE(fs::exists(folder_ / "names.svg"));
  refused("predict --svg " + folder_.string());  // a folder
  const fs::path good = folder_ / "good.svg";
  EXPECT_EQ(run("predict --svg " + good.string()).code, 0);
  EXPECT_TRUE(has(slurp(good), "</svg>"));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 2u);  // the picture and our own stderr: no temporary left behind
}

TEST_F(Cli, HelpHasExamples) {
  for (const char* command : {"", "predict ", "explain ", "machine ", "model ", "tiles "}) {
    const Ran ran = run(std::string(command) + "--help");
    EXPECT_EQ(ran.code, 0) << command;
    EXPECT_TRUE(has(ran.out, "Examples:")) << command;
    EXPECT_EQ(ran.error, "") << command;
  }
  EXPECT_TRUE(run("--version").out.starts_with("ridge "));
}

TEST_F(Cli, JsonParsesForEveryCommand) {
  const Json predicted = json("predict -m llama-3-70b -M 8xh100-sxm -b 32");
  EXPECT_EQ(predicted["decode"]["batch"], 32);
  EXPECT_GT(predicted["layouts"].size(), 1u);
  for (const char* degree : {"tp", "pp", "dp", "ep"}) {
    EXPECT_EQ(predicted["plan"][degree], predicted["layouts"][0][degree]) << degree;
  }
  EXPECT_EQ(json("explain --itl 9ms --batch 16")["observed"]["batch"], 16);
  EXPECT_TRUE(json("tiles").contains("life"));
  EXPECT_EQ(json("tiles -M epyc-9654")["dtype"], "bf16");  // it has no fp16
  // What was printed can be given back.
  const std::string file = write("back.json", run("machine h100-sxm --json").out);
  for (const char* key : {"levels", "peak", "aliases"}) {
    EXPECT_EQ(json("machine " + file)["machine"][key], json("machine h100-sxm")["machine"][key]);
  }
  for (const char* command : {"machine", "machine h100-sxm", "machine --history",
                              "machine compare h100-sxm h200", "model"}) {
    EXPECT_FALSE(json(command).empty()) << command;
  }
  const Json model = json("model llama-3-8b");
  for (const char* key : {"name", "parameters", "active_parameters", "weight_bytes",
                          "kv_bytes_per_token", "layers"}) {
    EXPECT_TRUE(model.contains(key)) << key;
  }
}

TEST_F(Cli, OutputIsPlainWhereNobodyWatches) {
  for (const char* command :
       {"predict --ops --roofline", "explain -m llama-3-8b -M h100-sxm --itl 9ms --batch 16",
        "tiles", "predict -M m4-max --roofline", "predict -b 1,2,4..64"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 0) << command;
    EXPECT_EQ(ran.error, "") << command;
    EXPECT_FALSE(has(ran.out, "\033[")) << command;
    EXPECT_FALSE(has(ran.out, "nan")) << command;
  }
}

TEST_F(Cli, SweepsAreTheProductInOrder) {
  const Json sweep = json("predict -M h100-sxm,h200 -b 1,2,4..16 -c 1024,2048");
  EXPECT_EQ(sweep["sweep"], Json({"machine", "batch", "context"}));
  ASSERT_EQ(sweep["points"].size(), 2u * 5 * 2);
  EXPECT_EQ(sweep["points"][0]["machine"], "h100-sxm");
  EXPECT_EQ(sweep["points"][1]["decode"]["context"], 2048);  // the last axis runs fastest
  EXPECT_EQ(sweep["points"][2]["decode"]["batch"], 2);
  EXPECT_EQ(sweep["points"][19]["machine"], "h200");
  // A point of a sweep is the prediction alone.
  EXPECT_EQ(sweep["points"][19], json("predict -M h200 -b 16 -c 2048"));
}

TEST_F(Cli, CsvHasOneHeaderAndEvenColumns) {
  const std::vector<std::string> sweep = lines_of(run("predict -b 1,2,4..64 --csv").out);
  ASSERT_EQ(sweep.size(), 1u + 7);
  EXPECT_TRUE(sweep[0].starts_with("batch,ttft_s,tpot_s,tokens_per_s,"));
  EXPECT_TRUE(sweep[0].ends_with(",memory_bytes,fits"));
  EXPECT_TRUE(sweep[3].starts_with("4,"));
  EXPECT_TRUE(sweep[3].ends_with(",true"));
  const std::vector<std::string> ops = lines_of(run("predict --csv").out);
  ASSERT_GT(ops.size(), 10u);
  EXPECT_TRUE(ops[0].starts_with("phase,op,count,flops,bytes,"));
  for (const char* command : {"machine", "model"}) {  // as in --json
    const Json list = json(command);
    const std::string csv = run(std::string(command) + " --csv").out;
    std::string header;
    for (const auto& [key, value] : list.front().items())
      header += (header.empty() ? "" : ",") + key;
    EXPECT_EQ(lines_of(csv).front(), header);
    EXPECT_EQ(lines_of(csv).size(), 1 + list.size());
  }
  for (const auto* table : {&sweep, &ops}) {
    for (const std::string& line : *table) EXPECT_EQ(columns_of(line), columns_of(table->front()));
  }
}

TEST_F(Cli, SweepsOverClientsShowTheEndpoint) {
  const std::string options = "predict -m llama-3-8b,llama-3-70b --clients 4,8 --output 256";
  const Json points = json(options)["points"];
  const std::vector<std::string> rows = lines_of(run(options + " --csv").out);
  ASSERT_EQ(rows.size(), 1u + 4);
  EXPECT_TRUE(rows[0].ends_with(",serving_ttft_s,serving_tpot_s,serving_tokens_per_s"));
  for (const std::string& row : rows) EXPECT_EQ(columns_of(row), columns_of(rows[0]));
  EXPECT_TRUE(
      rows[1].ends_with(fmt::format(",{:.6g}", double(points[0]["serving"]["tokens_per_s"]))));
  EXPECT_GT(points[1]["serving"]["tokens_per_s"], points[0]["serving"]["tokens_per_s"]);
  EXPECT_EQ(points[1]["decode"]["batch"], 8);
  EXPECT_TRUE(rows[3].ends_with(",false,,,,"));  // 70B on one H100: no endpoint
  EXPECT_TRUE(points[3]["serving"].is_null());
  EXPECT_TRUE(has(run(options).out, "none"));
}

TEST_F(Cli, TrainingShowsMemoryByPartAndWhatFits) {
  const std::string options = "predict -m llama-3-8b -M 8xh100-sxm --training -b 2 -c 4096";
  const Json fit = json(options);
  const double n = fit["parameters"];
  EXPECT_EQ(fit["whole"]["weights_bytes"], 2 * n);
  EXPECT_EQ(fit["whole"]["gradients_bytes"], 2 * n);
  EXPECT_EQ(fit["whole"]["master_weights_bytes"], 4 * n);
  EXPECT_EQ(fit["whole"]["moments_bytes"], 8 * n);
  EXPECT_EQ(fit["whole"]["activation_bytes"], 34.0 * 4096 * 2 * 4096 * 32);
  EXPECT_EQ(fit["devices"], 8);
  ASSERT_EQ(fit["per_device"].size(), 4u);
  EXPECT_EQ(fit["per_device"][0]["sharding"], "none");
  EXPECT_EQ(fit["per_device"][0]["fits"], false);  // 16 bytes x 8 billion in 80 GB
  EXPECT_TRUE(fit["per_device"][0]["fewest_devices"].is_null());
  EXPECT_EQ(fit["per_device"][3]["sharding"], "zero3");
  EXPECT_EQ(fit["per_device"][3]["fits"], true);
  EXPECT_EQ(fit["per_device"][3]["weights_bytes"], 2 * n / 8);
  const std::string text = run(options).out;
  for (const char* word : {"gradients", "master weights", "Adam moments", "activations", "ZeRO-3",
                           "fewest devices", "8xh100-sxm"}) {
    EXPECT_TRUE(has(text, word)) << word;
  }
  const std::vector<std::string> rows = lines_of(run(options + " --csv").out);
  ASSERT_EQ(rows.size(), 1u + 4);
  for (const std::string& row : rows) EXPECT_EQ(columns_of(row), columns_of(rows[0]));
  const Json sweep = json("predict -m llama-3-8b -M h100-sxm,b200 --training");
  EXPECT_EQ(sweep["points"].size(), 2u);
  EXPECT_EQ(sweep["points"][1]["machine"], "b200");
  refused("predict --training --tp 2");
  refused("predict --training --ops");
}

TEST_F(Cli, LoadThatIsNotGivenFollowsFromTheRest) {
  EXPECT_EQ(json("predict")["decode"]["context"], 2048);
  const Json long_prompt = json("predict -m llama-3-8b -p 100000");
  EXPECT_EQ(long_prompt["decode"]["context"], 100000);
  EXPECT_TRUE(has(long_prompt["notes"].dump(), "beyond the model's 8192"));
  EXPECT_TRUE(has(json("predict -m llama-3-8b -p 100000 -c 512")["notes"].dump(), "100000"));
  const Json endpoint = json("predict --clients 16 -p 1000 --output 500");
  EXPECT_EQ(endpoint["decode"]["context"], 1250);
  EXPECT_EQ(endpoint["decode"]["batch"], 16);
  EXPECT_TRUE(has(refused("predict --clients 16 -b 2"), "leave out"));
  const Json times = endpoint.at("serving").at("simulated");
  EXPECT_LE(times.at("ttft_s").at("p50"), times.at("ttft_s").at("p99"));
  EXPECT_NEAR(times.at("requests"), 144, 1);  // ten each, less the first
  const Json rate = json("predict --rate 2 -p 1000 --output 100");
  EXPECT_NEAR(rate.at("serving").at("simulated").at("requests_per_s"), 2, 0.2);
  EXPECT_TRUE(has(refused("predict --rate 1e6 -p 1000"), "at most"));
  EXPECT_TRUE(has(refused("predict --rate 2 --clients 3"), "leave out"));
  EXPECT_TRUE(has(refused("predict --tp auto"), "--tp"));
}

TEST_F(Cli, IdleDevicesAreNamedAndPaid) {
  const Json three = json("predict -m llama-3-8b -M 3xh100-sxm --price 3");
  const Json two = json("predict -m llama-3-8b -M 2xh100-sxm --price 3");
  EXPECT_EQ(three["devices"], 2);
  EXPECT_TRUE(has(three["notes"].dump(), "uses 2 of 3 devices"));
  EXPECT_EQ(two["notes"].size(), 0u);
  EXPECT_NEAR(three["dollars_per_mtok"], 1.5 * double(two["dollars_per_mtok"]), 1e-9);
  EXPECT_EQ(three["joules_per_token"], two["joules_per_token"]);
  // A plan that was asked for counts its own devices.
  EXPECT_EQ(json("predict -m llama-3-8b -M 3xh100-sxm --tp 2 --price 3")["dollars_per_mtok"],
            two["dollars_per_mtok"]);
}

TEST_F(Cli, TheModelInsideWritesText) {
  const Json first = json("run \"The memory of a computer\" -n 24");
  EXPECT_EQ(first.at("tokens").size(), first.at("sampled").size());
  EXPECT_GE(first.at("text").get<std::string>().size(), 20u);
  EXPECT_EQ(first.at("generation").at("steps"), first.at("tokens").size() - 1);
  EXPECT_GT(first.at("generation").at("share_of_roof"), 0.0);
  // Equal seeds give equal text, whatever the threads and the chunks.
  const Json again = json("run \"The memory of a computer\" -n 24 --threads 1 --chunk 3");
  EXPECT_EQ(again.at("tokens"), first.at("tokens"));
  const Json other = json("run \"The memory of a computer\" -n 24 --seed 5");
  EXPECT_NE(other.at("tokens"), first.at("tokens"));
}

TEST_F(Cli, AProfileAddsUpToTheStep) {
  const std::string trace = (folder_ / "trace.json").string();
  // Another process that takes the core does so within operators, too: their share stays near 95 %.
  const Json ran = json("run ridge-7m \"The\" -n 256 -t 1 --temperature 0 --trace " + trace);
  const Json& generation = ran.at("generation");
  double operators = 0;
  for (const Json& op : generation.at("operators")) operators += op.at("measured_s").get<double>();
  const double share = operators / generation.at("seconds").get<double>();
  EXPECT_LE(share, 1);
  EXPECT_GT(share, 0.5);
  EXPECT_GT(Json::parse(slurp(trace)).at("traceEvents").size(), 100u);
  const Ran shown = run("run --profile ridge-1m \"The\" -n 4 --invariant");
  EXPECT_TRUE(has(shown.error, "gate_up"));
  EXPECT_TRUE(shown.out.starts_with("The"));
}

TEST_F(Cli, StopStringsAndBiasesAreKept) {
  const Json plain = json("run ridge-1m \"The\" -n 12 --temperature 0 --repetition-penalty 1");
  const std::string text = plain.at("text");
  const std::string stop = text.substr(text.size() / 2, 2);
  const Json stopped = json(
      "run ridge-1m \"The\" -n 12 --temperature 0 --repetition-penalty 1 "
      "--stop \"" +
      stop + "\"");
  EXPECT_EQ(stopped.at("end"), "stop");
  EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(stop)));
  const int first = plain.at("tokens").at(0);
  const Json biased = json("run ridge-1m \"The\" -n 1 --temperature 0 --logit-bias " +
                           std::to_string(first) + "=-100");
  EXPECT_NE(biased.at("tokens").at(0), first);
}

// The word after an option that takes one value, or none, is the prompt.
TEST_F(Cli, OptionsLeaveTheNextWordAlone) {
  const std::string model = write("m.gguf", slurp(RIDGE_SOURCE_DIR "/models/ridge-1m.gguf"));
  const auto size = fs::file_size(model);
  EXPECT_TRUE(run("run --profile " + model + " Once -n 2").out.starts_with("Once"));
  EXPECT_EQ(fs::file_size(model), size);
  EXPECT_TRUE(run("run --stop zzz --stop yyy Once -n 2").out.starts_with("Once"));
  EXPECT_TRUE(run("run --logit-bias 40=1 Once -n 2").out.starts_with("Once"));
  const std::string long_prompt(300, 'x');  // longer than a file's name may be
  EXPECT_TRUE(run("run " + long_prompt + " -n 2").out.starts_with(long_prompt));
}

TEST_F(Cli, LostOutputIsAnError) {
  for (const char* command : {"predict", "machine", "--help"}) {
    for (const char* where : {" >/dev/full", " >&-"}) refused(std::string(command) + where);
  }
}

TEST_F(Cli, OutputPathsAreCheckedBeforeTheWork) {
  EXPECT_TRUE(has(refused("run x --trace /nowhere/t.json"), "/nowhere/t.json"));
  EXPECT_TRUE(
      has(refused("measure --compare " + write("none.json", R"({"name": "this"})")), "none"));
  EXPECT_TRUE(has(
      refused("measure --device cpu --compare " RIDGE_SOURCE_DIR "/atlas/machines/h100-sxm.json"),
      "describes a GPU"));
  EXPECT_TRUE(has(refused("measure --device cpu -o /nowhere/x.json"), "/nowhere/x.json"));
  EXPECT_TRUE(has(refused("measure --device cpu --svg /nowhere/x.svg"), "/nowhere/x.svg"));
}

TEST_F(Cli, BenchHoldsARunAgainstItsRoof) {
  const Json bench = json("bench ridge-1m -p 32 -n 3 -b 1,2 -c 16,32");
  ASSERT_EQ(bench.at("rows").size(), 5u);
  for (const Json& row : bench.at("rows")) {
    EXPECT_GT(row.at("tokens_per_s"), 0.0);
    EXPECT_GT(row.at("roof_s"), 0.0);
  }
  EXPECT_TRUE(has(run("bench ridge-1m -p 8 -n 1 --csv").out, "generate,1,128"));
}

// The figure of docs/model-card.md, computed by PyTorch on the same text; there only the first
// window begins with the beginning token, here each does and its first token is scored too.
TEST_F(Cli, HeldOutPerplexityIsTheCards) {
  const Json score = json("perplexity ridge-1m " RIDGE_SOURCE_DIR
                          "/tests/data/held-out.txt "
                          "--window 1024");
  EXPECT_NEAR(score.at("perplexity").get<double>(), 27.88, 0.03 * 27.88);
}

// Eight bits cost next to nothing, four some; the K format's searched scales less than plain ones.
TEST_F(Cli, QuantizingCostsWhatItsBitsDo) {
  const std::string text =
      write("text.txt", slurp(RIDGE_SOURCE_DIR "/tests/data/held-out.txt").substr(0, 24000));
  const auto perplexity = [&](const std::string& model) {
    return json("perplexity " + model + " " + text).at("perplexity").get<double>();
  };
  const auto converted = [&](const std::string& storage) {
    const std::string path = (folder_ / (storage + ".gguf")).string();
    EXPECT_EQ(run("convert ridge-7m --to " + storage + " " + path).code, 0);
    return perplexity(path);
  };
  // The parts of a file add up to its bytes, norms in f32 included.
  const std::string q4 = (folder_ / "parts.gguf").string();
  EXPECT_EQ(run("convert ridge-7m --to q4_k " + q4).code, 0);
  const Json model = json("model " + q4);
  for (const char* list : {"parts", "formats"}) {
    int64_t bytes = 0;
    for (const Json& part : model.at(list)) bytes += part.at("bytes").get<int64_t>();
    EXPECT_EQ(bytes, model.at("weight_bytes")) << list;
  }
  EXPECT_EQ(json("model ridge-7m").at("parameters"), model.at("parameters"));
  const double bf16 = perplexity("ridge-7m"), q8_0 = converted("q8_0");
  const double q4_0 = converted("q4_0"), q4_k = converted("q4_k");
  EXPECT_NEAR(q8_0, bf16, 0.01 * bf16);
  EXPECT_GT(q4_k, bf16);
  EXPECT_LT(q4_k, q4_0);
  EXPECT_LT(q4_0, 1.25 * bf16);
}

TEST_F(Cli, TheEngineRefusesWhatItCannotRun) {
  EXPECT_TRUE(has(refused("run /nowhere/model.gguf x"), "no such model"));
  EXPECT_TRUE(has(refused("run nemotron-3-nano-30b-a3b x --weights random:1"), "not executed"));
  refused("run lama-3-8b x --weights random:1");
  refused("run ridge-1m x --weights random:one");
  refused("run x --kv fp99");
  refused("run x --page 17");
  refused("run x --temperature -1");
  refused("run x --logit-bias 5");
  refused("run x --logit-bias 999999=1");
  refused("run x --device tpu");
  if (!fs::exists("/dev/nvidiactl")) refused("run x --device cuda");
  // What a device cannot keep is refused by its name, before anything is loaded.
  EXPECT_TRUE(has(refused("run x --device cuda --format q4_0"), "--format q4_0"));
  EXPECT_TRUE(has(refused("run x --device cuda --format q4_0"), "fp8"));
  EXPECT_TRUE(has(refused("run x --device cuda --kv f32"), "--kv f32: with --device cuda bf16"));
  EXPECT_TRUE(has(refused("run x --kv fp8"), "--kv fp8: with --device cpu f32"));
  EXPECT_TRUE(has(refused("run x --device cuda --invariant"), "--invariant: with --device cpu"));
  EXPECT_TRUE(has(refused("run x --weights random:1 --format int3"), "stored as"));
  refused("bench ridge-1m -b 0");
  refused("perplexity ridge-1m /nowhere");
  refused("perplexity ridge-1m " + write("one.txt", "a"));
  refused("run " + write("bad.gguf", "GGUF and no more") + " x");
  const std::string prompt = write("long.txt", std::string(40000, 'x'));
  EXPECT_TRUE(has(refused("run ridge-1m --context 64 --prompt-file " + prompt), "--context"));
}

TEST_F(Cli, BareRunIsATour) {
  const Ran ran = run("");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.error, "");
  EXPECT_GE(std::count(ran.out.begin(), ran.out.end(), '\n'), 20);
  EXPECT_TRUE(has(ran.out, "h100-sxm"));
  EXPECT_TRUE(has(ran.out, "ridge predict"));  // what to try next
  EXPECT_TRUE(has(ran.out, "The memory of a computer"));
  EXPECT_FALSE(has(ran.out, "nan"));
  // The prompt is the one of `ridge run`, with the beginning token that the tokenizer adds.
  const Json tour = Json::parse(run("--json").out).at("run");
  const Json plain = Json::parse(run("run 'The memory of a computer' -n 60 --json").out);
  EXPECT_EQ(tour.at("prompt_tokens"), plain.at("prompt_tokens"));
  EXPECT_EQ(tour.at("text"), plain.at("text"));
}

// Nobody opens a server to others by mistake.
TEST_F(Cli, AServerForOthersNeedsAKeyOrAWord) {
  EXPECT_TRUE(has(refused("serve --no-model --host 0.0.0.0"), "--no-auth"));
  EXPECT_TRUE(has(refused("serve --no-model --allowed-hosts models.example"), "--allowed-hosts"));
  EXPECT_TRUE(has(refused("serve --no-model --no-auth --api-key k"), "exclude"));
  EXPECT_TRUE(has(refused("serve --no-model --api-key ''"), "empty"));
}

}  // namespace
}  // namespace ridge
