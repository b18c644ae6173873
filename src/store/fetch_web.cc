// Hub and web sources, over net/download.h.

#include <algorithm>
#include <fstream>

#include "store/fetch.h"

namespace isthmus {
namespace {

constexpr size_t kMaxToken = 4096;
constexpr char kHubEndpoint[] = "https://huggingface.co";

/// Appends a download to the partial file, behind the parts that are complete.
class PartSink : public DownloadSink {
 public:
  explicit PartSink(FetchContext& context) : context_(context), base_(context.file.part_begin()) {}

  Status begin(const DownloadStart& start) override {
    ISTHMUS_RETURN_IF_ERROR(context_.file.cut(base_ + start.offset, context_.options.stop));
    ISTHMUS_RETURN_IF_ERROR(context_.file.set_validator(start.validator, start.linked_sha256));
    if (!start.total) return ok_status();
    ISTHMUS_ASSIGN_OR_RETURN(const uint64_t free, context_.partial.free_bytes());
    const uint64_t left = *start.total - std::min(*start.total, start.offset);
    if (left > free) {
      return resource_exhausted("the download needs " + std::to_string(left) + " bytes more, and " +
                                std::to_string(free) + " are free in " + context_.partial.path());
    }
    if (!context_.size && context_.parts == 1) context_.size = start.total;
    return ok_status();
  }

  Status write(std::span<const std::byte> bytes) override {
    ISTHMUS_RETURN_IF_ERROR(context_.file.append(bytes));
    context_.report(PullPhase::kDownloading, context_.file.size());
    return ok_status();
  }

 private:
  FetchContext& context_;
  const uint64_t base_;
};

Status fetch_url(DownloadRequest request, FetchContext& context) {
  request.offset = context.file.size() - context.file.part_begin();
  request.validator = context.file.validator();
  request.resume_unvalidated = context.digest_known;
  if (context.parts == 1) request.size = context.size;
  request.max_bytes = context.options.max_bytes;
  DownloadOptions options = context.options.download;
  options.http.stop = context.options.stop;
  if (!options.on_retry && context.options.notice) {
    options.on_retry = [&context](const Status& why, std::chrono::milliseconds wait) {
      context.options.notice(why.message() + "; trying again in " + std::to_string(wait.count()) + " ms");
    };
  }
  PartSink sink(context);
  ISTHMUS_RETURN_IF_ERROR(download(request, sink, options));
  return context.file.finish_part();
}

std::string without_end(std::string text, std::string_view drop) {
  while (!text.empty() && drop.find(text.back()) != std::string_view::npos) text.pop_back();
  return text;
}

std::string token_path(const EnvLookup& env) {
  if (const auto path = env("HF_TOKEN_PATH")) return *path;
  if (const auto home = env("HF_HOME")) return *home + "/token";
  if (const auto cache = env("XDG_CACHE_HOME")) return *cache + "/huggingface/token";
  const Result<std::string> home = home_path(env);
  return home.ok() ? *home + "/.cache/huggingface/token" : std::string();
}

}  // namespace

Result<std::string> hub_url(const HubFile& file, const EnvLookup& env) {
  const std::string endpoint = without_end(env("HF_ENDPOINT").value_or(kHubEndpoint), "/");
  ISTHMUS_RETURN_IF_ERROR(parse_url(endpoint).status().with_context("HF_ENDPOINT"));
  return endpoint + "/" + percent_encode(file.repository, true) + "/resolve/" +
         percent_encode(file.revision, false) + "/" + percent_encode(file.file, true);
}

Result<std::string> hub_token(const EnvLookup& env) {
  std::string token = env("HF_TOKEN").value_or(std::string());
  if (token.empty()) {
    std::ifstream file(token_path(env), std::ios::binary);
    std::string text(kMaxToken + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    token = text;
  }
  token = without_end(token, " \t\r\n");
  const bool printable_only =
      std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (token.size() > kMaxToken || !printable_only) {
    return invalid_argument("the Hugging Face token holds something that is not a printable character");
  }
  return token;
}

Status fetch_hub(const HubFile& part, FetchContext& context) {
  DownloadRequest request;
  ISTHMUS_ASSIGN_OR_RETURN(request.url, hub_url(part, context.options.env));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string token, hub_token(context.options.env));
  ISTHMUS_ASSIGN_OR_RETURN(const Url url, parse_url(request.url));
  if (token.empty()) {
    request.login_hint = "set HF_TOKEN to a token of an account that may read " + part.repository;
  } else {
    request.credential = Credential{url.origin, token};
    request.login_hint = "the token in use was refused: with its account, accept the terms on the page of " +
                         part.repository + ", or set HF_TOKEN to another";
  }
  return fetch_url(std::move(request), context);
}

Status fetch_web(const WebFile& part, FetchContext& context) {
  DownloadRequest request;
  request.url = part.url;
  request.login_hint = "download the file with your own means and pull it by its path";
  return fetch_url(std::move(request), context);
}

}  // namespace isthmus
