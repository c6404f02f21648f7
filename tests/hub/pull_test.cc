#include "hub/pull.h"

#include <sys/wait.h>

#include <thread>

#include "base/json.h"
#include "base/wait_until.h"
#include "engine/made_files.h"
#include "fake_hub.h"
#include "hub/hub_cache.h"
#include "model/read.h"
#include "support.h"
#include "text/tokenizer/vocabularies.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using fake::Reply;
using fake::Request;

class Pull : public HubFolder {
 protected:
  void SetUp() override {
    HubFolder::SetUp();
    hub_.files["config.json"] = made::changed({{"vocab_size", 258}}).dump();
    hub_.files["tokenizer.json"] = sample::byte_level_json({{"h", "i"}, {"Ġ", "hi"}}).dump();
    hub_.files["README.md"] = "not needed";
    hub_.large["model.safetensors"] =
        made::safetensors(made::tensors_of(made::changed({{"vocab_size", 258}})), "F32");
  }

  PullOptions options() const {
    set("HF_ENDPOINT", hub_.url());
    PullOptions options = pull_options_from_environment();
    options.repo = "org/name";
    options.backoff_s = 0.01;
    return options;
  }
  std::string failure(const PullOptions& options) const {
    return error_of([&] { pull(options); });
  }
  std::string failure() const { return failure(options()); }

  fs::path folder() const { return cache_ / "models--org--name"; }
  const std::string& weights() const { return hub_.large.at("model.safetensors"); }
  fs::path blob() const { return folder() / "blobs" / fake::sha256(weights()); }
  fs::path incomplete() const { return blob().string() + ".incomplete"; }
  bool has_ref() const { return fs::exists(folder() / "refs/main"); }
  // Requests for the weights themselves.
  std::vector<Request> weight_requests() const {
    std::vector<Request> found;
    for (const Request& request : hub_.requests()) {
      if (request.cdn) found.push_back(request);
    }
    return found;
  }
  // The files arrive whole, are linked, and nothing else lies there.
  void expect_whole(const Pulled& pulled) const {
    EXPECT_FALSE(pulled.cancelled);
    const fs::path snapshot = folder() / "snapshots" / hub_.commit;
    EXPECT_EQ(pulled.path, snapshot);
    EXPECT_EQ(slurp(folder() / "refs/main"), hub_.commit);
    EXPECT_EQ(slurp(snapshot / "config.json"), hub_.files.at("config.json"));
    EXPECT_EQ(slurp(snapshot / "model.safetensors"), weights());
    EXPECT_EQ(fs::read_symlink(snapshot / "model.safetensors"),
              "../../blobs/" + fake::sha256(weights()));
    EXPECT_FALSE(fs::exists(snapshot / "README.md"));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder() / "blobs")) {
      EXPECT_NE(entry.path().extension(), ".incomplete");
    }
  }

  mutable fake::Hub hub_;
};

TEST_F(Pull, WholeModelThatEveryReaderFinds) {
  const Pulled pulled = pull(options());
  expect_whole(pulled);
  EXPECT_EQ(pulled.files.size(), 3u);
  EXPECT_EQ(pulled.downloaded, pulled.bytes);

  EXPECT_EQ(find_cached_model("org/name"), pulled.path);
  const Model model = find_model("org/name");
  EXPECT_EQ(model.name, "name");
  EXPECT_EQ(model.source, "org/name");
  EXPECT_EQ(load_tokenizer("org/name")->encode("hi").size(), 1u);
  const Weights loaded = load_weights("org/name");
  EXPECT_EQ(loaded.source, "org/name");
  EXPECT_EQ(loaded.model.name, "name");
  ASSERT_NE(loaded.tokenizer, nullptr);
  const Weights random = random_weights("org/name", Storage::bf16, 1, 1);
  EXPECT_EQ(random.source, "org/name, random:1");

  const Pulled again = pull(options());  // nothing but the listing
  expect_whole(again);
  EXPECT_EQ(again.downloaded, 0u);
  EXPECT_EQ(again.missing, 0u);
  EXPECT_EQ(weight_requests().size(), 1u);
}

TEST_F(Pull, DryRunDownloadsNothing) {
  PullOptions dry = options();
  dry.dry_run = true;
  const Pulled pulled = pull(dry);
  EXPECT_EQ(pulled.files.size(), 3u);
  EXPECT_EQ(pulled.missing, pulled.bytes);
  EXPECT_EQ(hub_.requests().size(), 1u);
  EXPECT_TRUE(fs::is_empty(cache_));
}

TEST_F(Pull, GoesOnAfterTheConnectionIsCut) {
  std::atomic<int> cuts = 0;
  hub_.fault = [&](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn || cuts == 3) return std::nullopt;
    ++cuts;
    Reply cut = usual;
    cut.headers.push_back(fmt::format("Content-Length: {}", usual.body.size()));
    cut.sent = 5000;
    return cut;
  };
  const Pulled pulled = pull(options());
  expect_whole(pulled);
  const std::vector<Request> requests = weight_requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].header("range"), "");
  EXPECT_EQ(requests[3].header("range"), "bytes=15000-");
  EXPECT_EQ(pulled.downloaded, pulled.bytes);
}

TEST_F(Pull, ResumesWhatAnEarlierPullLeft) {
  write(incomplete(), weights().substr(0, 7000));
  const Pulled pulled = pull(options());
  expect_whole(pulled);
  EXPECT_EQ(weight_requests().at(0).header("range"), "bytes=7000-");
  EXPECT_EQ(pulled.downloaded, pulled.bytes - 7000);
  EXPECT_EQ(pulled.missing, pulled.bytes - 7000);
}

TEST_F(Pull, WholeButUnnamedBlobIsOnlyChecked) {
  write(incomplete(), weights());
  expect_whole(pull(options()));
  EXPECT_TRUE(weight_requests().empty());
}

TEST_F(Pull, DamagedRemainderStartsOver) {
  for (const std::string& left :
       {std::string(7000, 'x'), std::string(weights().size(), 'x'), weights() + "more"}) {
    write(incomplete(), left);
    expect_whole(pull(options()));
    fs::remove_all(folder());
  }
}

TEST_F(Pull, ServerWithoutRanges) {
  write(incomplete(), weights().substr(0, 7000));
  hub_.fault = [&](const Request& request, const Reply&) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    return Reply{200, {}, weights(), std::string::npos, 0};
  };
  expect_whole(pull(options()));
}

TEST_F(Pull, AnotherContentIsRefused) {
  hub_.fault = [&](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    Reply other = usual;
    other.body.back() ^= 1;
    return other;
  };
  EXPECT_EQ(failure(),
            "org/name: model.safetensors: what arrived has another SHA-256 than the listing says");
  EXPECT_FALSE(fs::exists(incomplete()));
  EXPECT_FALSE(fs::exists(blob()));
  EXPECT_FALSE(has_ref());
  fs::remove_all(folder());
  hub_.fault = [](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.path.ends_with("config.json")) return std::nullopt;
    Reply other = usual;
    other.body.front() = '[';
    return other;
  };
  EXPECT_NE(failure().find("config.json: what arrived has another SHA-1"), std::string::npos);
  EXPECT_FALSE(has_ref());
}

TEST_F(Pull, AnotherSizeIsRefused) {
  for (const bool longer : {false, true}) {
    for (const bool named : {false, true}) {  // Content-Length says it
      hub_.fault = [&](const Request& request, const Reply& usual) -> std::optional<Reply> {
        if (!request.cdn) return std::nullopt;
        Reply other = usual;
        other.body.resize(usual.body.size() + (longer ? 3 : -3), 'x');
        if (!named) {
          other.headers = {"Transfer-Encoding: chunked", "Content-Length-Left: out"};
          other.body = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", other.body.size(), other.body);
        }
        return other;
      };
      EXPECT_NE(failure().find("its listing says"), std::string::npos) << longer << named;
      EXPECT_FALSE(fs::exists(blob()));
      EXPECT_FALSE(has_ref());
    }
  }
}

TEST_F(Pull, TokenGoesToTheEndpointOnly) {
  set("HF_TOKEN", " hf_secret\n");
  expect_whole(pull(options()));
  int with = 0;
  for (const Request& request : hub_.requests()) {
    EXPECT_EQ(request.header("authorization"), request.cdn ? "" : "Bearer hf_secret");
    with += request.cdn ? 0 : 1;
  }
  EXPECT_EQ(with, 4);  // listing, two files, the redirect
}

TEST_F(Pull, TokenOfTheLoginFile) {
  write(cache_ / "home/token", "hf_file\n");
  EXPECT_EQ(options().token, "hf_file");
  set("HF_TOKEN", "hf_environment");
  EXPECT_EQ(options().token, "hf_environment");
  set("HF_TOKEN", "a\r\nHost: b");
  EXPECT_NE(error_of([&] { options(); }), "");
}

TEST_F(Pull, RedirectsWithinTheEndpointKeepTheToken) {
  set("HF_TOKEN", "hf_secret");
  hub_.fault = [&](const Request& request, const Reply&) -> std::optional<Reply> {
    if (!request.path.starts_with("/api/models/old/name/")) return std::nullopt;
    const std::string moved = "/api/models/org/name/" + request.path.substr(21);
    return Reply{307, {"Location: " + moved}, "", std::string::npos, 0};
  };
  PullOptions renamed = options();
  renamed.repo = "old/name";
  renamed.dry_run = true;
  EXPECT_EQ(pull(renamed).files.size(), 3u);
  EXPECT_EQ(hub_.requests().back().header("authorization"), "Bearer hf_secret");
}

TEST_F(Pull, RedirectsWithoutEnd) {
  hub_.fault = [](const Request& request, const Reply&) {
    return Reply{302, {"Location: " + request.path}, "", std::string::npos, 0};
  };
  EXPECT_NE(failure().find("redirects without end"), std::string::npos);
  hub_.fault = [](const Request&, const Reply&) {
    return Reply{302, {"Location: file:///etc/passwd"}, "", std::string::npos, 0};
  };
  EXPECT_NE(failure().find("not https"), std::string::npos);
}

TEST_F(Pull, RefusalsAreOneClearLine) {
  const auto refuse = [&](int status, const std::string& code) {
    hub_.fault = [=](const Request&, const Reply&) {
      return Reply{status, {"X-Error-Code: " + code}, "{}", std::string::npos, 0};
    };
    return failure();
  };
  EXPECT_EQ(refuse(401, ""), "org/name: no such repository, or a private one: set HF_TOKEN");
  EXPECT_EQ(refuse(401, "GatedRepo"), "org/name: access is restricted: accept the terms on " +
                                          hub_.url() + "/org/name and set HF_TOKEN");
  EXPECT_EQ(refuse(404, "RepoNotFound"), "org/name: no such repository on " + hub_.url());
  EXPECT_EQ(refuse(404, "RevisionNotFound"), "org/name: no such revision");
  EXPECT_EQ(refuse(400, ""), "org/name: " + hub_.url() + " answers with status 400");
  EXPECT_EQ(hub_.requests().size(), 5u);  // none of them is worth another attempt
  set("HF_TOKEN", "hf_x");
  EXPECT_NE(refuse(403, "GatedRepo").find("the token has no access"), std::string::npos);
}

TEST_F(Pull, GatedFilesOfAListedRepository) {
  hub_.fault = [](const Request& request, const Reply&) -> std::optional<Reply> {
    if (request.path.starts_with("/api/")) return std::nullopt;
    return Reply{403, {"X-Error-Code: GatedRepo"}, "", std::string::npos, 0};
  };
  EXPECT_NE(failure().find("access is restricted"), std::string::npos);
  EXPECT_FALSE(has_ref());
}

TEST_F(Pull, ServerErrorsAreRepeatedAndBounded) {
  std::atomic<int> failures = 0;
  hub_.fault = [&](const Request& request, const Reply&) -> std::optional<Reply> {
    if (!request.path.starts_with("/api/") || failures == 4) return std::nullopt;
    return Reply{++failures % 2 == 0 ? 503 : 500, {}, "", std::string::npos, 0};
  };
  expect_whole(pull(options()));
  EXPECT_EQ(failures, 4);

  fs::remove_all(folder());
  hub_.fault = [&](const Request& request, const Reply&) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    return Reply{502, {}, "", std::string::npos, 0};
  };
  EXPECT_NE(failure().find("answers with status 502"), std::string::npos);
  EXPECT_EQ(weight_requests().size(), 1u + 5u);
}

TEST_F(Pull, RateLimit) {
  std::atomic<int> limits = 0;
  hub_.fault = [&](const Request&, const Reply&) -> std::optional<Reply> {
    if (limits++ > 0) return std::nullopt;
    return Reply{429, {"Retry-After: 1"}, "", std::string::npos, 0};
  };
  const auto start = std::chrono::steady_clock::now();
  expect_whole(pull(options()));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  hub_.fault = [](const Request&, const Reply&) {
    return Reply{429, {"Retry-After: 3600"}, "", std::string::npos, 0};
  };
  EXPECT_NE(failure().find("try again in 3600 s"), std::string::npos);
}

TEST_F(Pull, NoServer) {
  PullOptions nowhere = options();
  nowhere.endpoint = "http://127.0.0.1:1";
  EXPECT_NE(failure(nowhere).find("http://127.0.0.1:1 cannot be reached"), std::string::npos);
  set("HF_ENDPOINT", "ftp://x");
  EXPECT_NE(error_of([] { pull_options_from_environment(); }), "");
}

TEST_F(Pull, StalledTransferFails) {
  hub_.fault = [](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    Reply slow = usual;
    slow.delay_us = 60'000'000;
    return slow;
  };
  PullOptions impatient = options();
  impatient.stall_s = 1;
  std::atomic<bool> stop = false;
  impatient.cancelled = &stop;
  const std::jthread timer([&] {  // after the second attempt has begun
    EXPECT_TRUE(wait_until("a second attempt", [&] { return weight_requests().size() >= 2; }));
    stop = true;
  });
  EXPECT_TRUE(pull(impatient).cancelled);
  EXPECT_GE(weight_requests().size(), 2u);
}

TEST_F(Pull, DribblingTransferIsGivenUpAndResumed) {
  // The first reply brings 5 KiB a second; 64 are wanted.
  std::atomic<int> replies = 0;
  hub_.fault = [&](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn || replies++ > 0) return std::nullopt;
    Reply slow = usual;
    slow.delay_us = 200'000;
    return slow;
  };
  PullOptions impatient = options();
  impatient.slowest_bytes_per_s = 64 << 10;
  impatient.stall_s = 1;
  expect_whole(pull(impatient));
  ASSERT_GE(weight_requests().size(), 2u);
  EXPECT_NE(weight_requests()[1].header("range"), "");
}

TEST_F(Pull, NamesThatLeaveTheFolderAreRefused) {
  hub_.listed = [](nlohmann::json& listing) {
    listing["siblings"][0]["rfilename"] = "../../../outside.json";
  };
  EXPECT_NE(failure().find("refused"), std::string::npos);
  EXPECT_EQ(hub_.requests().size(), 1u);
  for (const char* repo : {"../x", "org/..", "a/b/c", "/etc/passwd", "org/name@x", ""}) {
    PullOptions odd = options();
    odd.repo = repo;
    EXPECT_NE(failure(odd).find("ORG/NAME"), std::string::npos) << repo;
  }
  PullOptions odd = options();
  odd.revision = "../main";
  EXPECT_NE(failure(odd).find("a revision is"), std::string::npos);
}

TEST_F(Pull, MoreThanTheDiskHolds) {
  hub_.listed = [](nlohmann::json& listing) {
    for (nlohmann::json& file : listing["siblings"]) {
      if (file.contains("lfs")) file["lfs"]["size"] = int64_t{1} << 43;
    }
  };
  EXPECT_NE(failure().find("are free in"), std::string::npos);
  EXPECT_EQ(hub_.requests().size(), 1u);
}

TEST_F(Pull, TwoAtOnceShareTheWork) {
  hub_.fault = [](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    Reply slow = usual;
    slow.delay_us = 1000;
    return slow;
  };
  const PullOptions both = options();
  Pulled first, second;
  {
    const std::jthread one([&] { first = pull(both); });
    const std::jthread two([&] { second = pull(both); });
  }
  expect_whole(first);
  expect_whole(second);
  EXPECT_EQ(weight_requests().size(), 1u);
  EXPECT_EQ(first.downloaded + second.downloaded, first.bytes);
}

TEST_F(Pull, EqualContentsAreOneDownload) {
  hub_.files["a.txt"] = hub_.files["b.txt"] = "same";
  hub_.files["empty"] = "";
  PullOptions three = options();
  three.files = {"*.txt", "empty"};
  const Pulled pulled = pull(three);
  EXPECT_EQ(pulled.downloaded, 4u);
  EXPECT_EQ(slurp(pulled.path / "a.txt") + slurp(pulled.path / "b.txt"), "samesame");
  EXPECT_TRUE(fs::exists(pulled.path / "empty"));
}

TEST_F(Pull, GgufByNameAndRevision) {
  hub_.large.clear();
  hub_.large["q4/m-Q4_0.gguf"] = "GGUF four";
  hub_.large["m-Q8 0+.gguf"] = "GGUF eight";
  EXPECT_NE(failure().find("has 2 GGUF models"), std::string::npos);
  PullOptions one = options();
  one.files = {"q4/m-Q4_0.gguf"};
  one.revision = "refs/pr/2";
  const Pulled pulled = pull(one);
  EXPECT_EQ(slurp(pulled.path), "GGUF four");
  EXPECT_EQ(fs::read_symlink(pulled.path), "../../../blobs/" + fake::sha256("GGUF four"));
  EXPECT_EQ(find_cached_model("org/name@refs/pr/2"), pulled.path);
  EXPECT_EQ(find_cached_model("org/name@refs/pr/2:q4/m-Q4_0.gguf"), pulled.path);
  EXPECT_FALSE(find_cached_model("org/name"));
  EXPECT_TRUE(hub_.requests().back().path.ends_with("m-Q4_0.gguf"));
}

TEST_F(Pull, CancelledPullResumes) {
  hub_.fault = [](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    Reply slow = usual;
    slow.delay_us = 2000;
    return slow;
  };
  std::atomic<bool> stop = false;
  PullOptions watched = options();
  watched.cancelled = &stop;
  watched.progress = [&](const PullProgress& progress) {
    EXPECT_LE(progress.done, progress.total);
    stop = stop || progress.done > 20000;
  };
  const Pulled cut = pull(watched);
  EXPECT_TRUE(cut.cancelled);
  EXPECT_FALSE(has_ref());
  const uintmax_t kept = fs::file_size(incomplete());
  EXPECT_GT(kept, 1024u);
  hub_.fault = nullptr;
  const Pulled pulled = pull(options());
  expect_whole(pulled);
  EXPECT_EQ(pulled.downloaded, weights().size() - kept);
}

class PullCommand : public Pull {
 protected:
  struct Ran {
    int code = -1;
    std::string out;
  };
  Ran run(const std::string& arguments) const {
    set("HF_ENDPOINT", hub_.url());
    FILE* pipe =
        popen((std::string(RIDGE_BINARY) + " " + arguments + " 2>&1 </dev/null").c_str(), "r");
    Ran ran;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) ran.out.append(buffer, n);
    const int status = pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
  }
};

TEST_F(PullCommand, PulledModelRunsByItsName) {
  const Ran missing = run("run org/name");
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.out.find(": ridge pull org/name\n"), std::string::npos) << missing.out;
  for (const std::string command :
       {"model org/name", "tokenize -m org/name hi", "bench org/name",
        "perplexity org/name /dev/null", "convert org/name --to bf16 x.gguf", "predict -m org/name",
        "run org/name hi --weights random:1"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_NE(ran.out.find("ridge pull org/name\n"), std::string::npos)
        << command << ": " << ran.out;
  }
  const Ran listed = run("pull org/name --dry-run");
  EXPECT_EQ(listed.code, 0);
  EXPECT_NE(listed.out.find("model.safetensors"), std::string::npos) << listed.out;
  const Ran pulled = run("pull org/name --json");
  ASSERT_EQ(pulled.code, 0) << pulled.out;
  const Json json = Json::parse(pulled.out);
  EXPECT_EQ(json.at("commit"), hub_.commit);
  EXPECT_EQ(json.at("files").size(), 3u);
  EXPECT_EQ(json.at("bytes"), json.at("downloaded_bytes"));

  EXPECT_EQ(run("tokenize -m org/name hi").out, "256\nhi\n");
  const Ran model = run("model org/name --json");
  ASSERT_EQ(model.code, 0) << model.out;
  EXPECT_EQ(Json::parse(model.out).at("name"), "name");
  for (const std::string command : {"run org/name -n 2 -t 1", "predict -m org/name -M h200"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 0) << command << ": " << ran.out;
  }
  const std::string out = (cache_ / "made.gguf").string();
  EXPECT_EQ(run("convert org/name --to bf16 " + out).code, 0);
}

TEST_F(PullCommand, InterruptedPullExitsWith130) {
  hub_.fault = [](const Request& request, const Reply& usual) -> std::optional<Reply> {
    if (!request.cdn) return std::nullopt;
    Reply slow = usual;
    slow.delay_us = 200'000;
    return slow;
  };
  const std::jthread killer([&] {
    EXPECT_TRUE(wait_until("a part of the file", [&] {
      std::error_code error;
      const uintmax_t size = fs::file_size(incomplete(), error);
      return !error && size > 2048;
    }));
    std::ifstream pid(cache_ / "pid");
    pid_t child = 0;
    if (pid >> child && child > 1) ::kill(child, SIGINT);
  });
  // The shell writes its id, then becomes the program.
  set("HF_ENDPOINT", hub_.url());
  const std::string command =
      fmt::format("sh -c 'echo $$ >{}/pid; exec {} pull org/name' 2>{}/stderr", cache_.string(),
                  RIDGE_BINARY, cache_.string());
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(slurp(cache_ / "stderr"),
            "ridge: interrupted; the same command resumes the download\n");
  EXPECT_TRUE(fs::exists(incomplete()));
  EXPECT_FALSE(has_ref());
}

}  // namespace
}  // namespace ridge
